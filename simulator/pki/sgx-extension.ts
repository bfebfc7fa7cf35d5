/** Intel's extension of a PCK certificate, 1.2.840.113741.1.13.1 (docs/protocol/attestation.md 10). */
import { SGX_EXTENSION_OID } from '../../lib/attestation/tdx/sgx-extension.ts';
import { TDX_PLATFORM } from '../tdx-platform.ts';
import { boolean, enumerated, integer, octetString, oid, sequence } from './der.ts';
import { type EncodedExtension, vendorExtension } from './extensions.ts';

/** A (OID, value) pair, the OID below the extension's own. */
const pair = (suffix: string, value: Uint8Array): Uint8Array =>
  sequence(oid(`${SGX_EXTENSION_OID}.${suffix}`), value);

/** SGX type "scalable". */
const SGX_TYPE_SCALABLE = 1;

/** For a platform with these ids, 16 bytes each. */
export function sgxExtension(ids: {
  readonly ppid: Uint8Array;
  readonly piid: Uint8Array;
}): EncodedExtension {
  const { componentSvns, pceSvn, cpuSvn, pceId, fmspc } = TDX_PLATFORM;
  const tcb = sequence(
    ...componentSvns.map((svn, index) => pair(`2.${index + 1}`, integer(svn))),
    pair('2.17', integer(pceSvn)),
    pair('2.18', octetString(cpuSvn)),
  );
  const configuration = sequence(
    pair('7.1', boolean(true)), // dynamic platform
    pair('7.2', boolean(true)), // cached keys
    pair('7.3', boolean(true)), // SMT enabled
  );
  return vendorExtension(
    SGX_EXTENSION_OID,
    sequence(
      pair('1', octetString(ids.ppid)),
      pair('2', tcb),
      pair('3', octetString(pceId)),
      pair('4', octetString(fmspc)),
      pair('5', enumerated(SGX_TYPE_SCALABLE)),
      pair('6', octetString(ids.piid)),
      pair('7', configuration),
    ),
  );
}
