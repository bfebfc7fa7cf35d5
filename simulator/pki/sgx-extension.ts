/** Writes Intel's extension of a PCK certificate, 1.2.840.113741.1.13.1 (docs/protocol/attestation.md 10). */
import { SGX_EXTENSION_OID } from '../../lib/attestation/tdx/chain.ts';
import { TDX_PLATFORM } from '../tdx-platform.ts';
import { boolean, enumerated, integer, octetString, oid, sequence } from './der.ts';
import { type EncodedExtension, vendorExtension } from './extensions.ts';

type Pair = readonly [suffix: string, value: Uint8Array];

/**
 * The extension as (suffix, DER value) pairs; `tcb` and `configuration` are the lists below its parts 2 and
 * 7.
 */
export interface SgxParts {
  readonly parts: readonly Pair[];
  readonly tcb: readonly Pair[];
  readonly configuration: readonly Pair[];
}

const pairs = (list: readonly Pair[]): Uint8Array[] =>
  list.map(([suffix, value]) => sequence(oid(`${SGX_EXTENSION_OID}.${suffix}`), value));

/** The DER value of the extension, its parts in the order of their suffixes. */
export function encodeSgx({ parts, tcb, configuration }: SgxParts): Uint8Array {
  const all: Pair[] = [...parts, ['2', sequence(...pairs(tcb))], ['7', sequence(...pairs(configuration))]];
  return sequence(...pairs(all.toSorted(([a], [b]) => Number(a) - Number(b))));
}

/** SGX type "scalable". */
const SGX_TYPE_SCALABLE = 1;

/** The parts for a platform with these ids, 16 bytes each. */
export function sgxParts(ids: { readonly ppid: Uint8Array; readonly piid: Uint8Array }): SgxParts {
  const { componentSvns, pceSvn, cpuSvn, pceId, fmspc } = TDX_PLATFORM;
  return {
    parts: [
      ['1', octetString(ids.ppid)],
      ['3', octetString(pceId)],
      ['4', octetString(fmspc)],
      ['5', enumerated(SGX_TYPE_SCALABLE)],
      ['6', octetString(ids.piid)],
    ],
    tcb: [
      ...componentSvns.map((svn, index): Pair => [`2.${index + 1}`, integer(svn)]),
      ['2.17', integer(pceSvn)],
      ['2.18', octetString(cpuSvn)],
    ],
    configuration: [
      ['7.1', boolean(true)], // dynamic platform
      ['7.2', boolean(true)], // cached keys
      ['7.3', boolean(true)], // SMT enabled
    ],
  };
}

export const sgxExtension = (ids: Parameters<typeof sgxParts>[0]): EncodedExtension =>
  vendorExtension(SGX_EXTENSION_OID, encodeSgx(sgxParts(ids)));
