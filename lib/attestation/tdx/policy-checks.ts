/**
 * Checks whether the trust domain matches a reference value of the manifest, by the data in the quote and the
 * PCK certificate (docs/protocol/attestation.md 11, 19.10, 19.12). No check in this file fetches data.
 */
import { type Finding, finding, hex, notApplicable, oneOf, type Rows, row } from '../check.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import type { SignerSubject } from './quote-checks.ts';

export interface EntrySubject extends SignerSubject {
  readonly entry: TdxReferenceValues;
}

/** Only bit 28 (SEPT_VE_DISABLE) is set, whatever the manifest says. So no domain under debug passes. */
const TD_ATTRIBUTES = Uint8Array.of(0, 0, 0, 0x10, 0, 0, 0, 0);
/** CET_U and CET_S may differ from the manifest, because newer VMMs pass on the host's values (19.10). */
const XFAM_IGNORED = 0x1800n;
/** The bits of XFAM for x87 and SSE, which must always be set. */
const XFAM_ALWAYS_SET = 0x3n;
const XFAM_MAY_BE_SET = 0x6dbe7n;

const u64 = (bytes: Uint8Array): bigint =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getBigUint64(0, true);
const NOT_ASKED_FOR = notApplicable('the manifest does not ask for it');
/** Returns a finding that passes only if the PCK certificate states that the flag is off. */
const mustBeOff = (flag: boolean | undefined): Finding => finding(flag === false, `${flag ?? 'not stated'}`);

const measurement = (member: 'mrSeam' | 'mrTd', what: string) =>
  row<EntrySubject>(`tdx.policy.${member.toLowerCase()}`, `${what} is the expected one`, '11', {
    expected: 'the value of the manifest',
    judge: ({ body, entry }) => oneOf(body[member], [entry[member]]),
  });

/** Checks a run-time measurement. For RTMR0, the manifest may allow several values. */
const rtmr = (i: 0 | 1 | 2 | 3, section: string) =>
  row<EntrySubject>(`tdx.policy.rtmr${i}`, `Run-time measurement ${i} is the expected one`, section, {
    expected: 'the value of the manifest',
    judge: ({ body, entry }) =>
      oneOf(body.rtmrs[i], [entry.rtmrs[i], ...(i === 0 ? entry.rtmr0Alternatives : [])]),
  });

export const POLICY_ROWS: Rows<EntrySubject> = [
  row('tdx.policy.mrconfigid', 'The domain runs as the coordinator', '4.3, 19.12', {
    expected: 'the policy hash of a coordinator entry of the manifest, then 16 zero bytes',
    judge: ({ body, coordinatorHashes }) => {
      const padded = coordinatorHashes.map((hash) => Uint8Array.of(...hash, ...new Uint8Array(16)));
      return oneOf(body.mrConfigId, padded);
    },
  }),
  measurement('mrSeam', 'The TDX module'),
  measurement('mrTd', 'The initial memory'),
  rtmr(0, '11, 19.10'),
  ...([1, 2, 3] as const).map((i) => rtmr(i, '11')),
  row('tdx.policy.xfam', 'The domain has the expected processor features', '19.10', {
    expected: 'the value of the manifest but for the two CET bits',
    judge: ({ body: { xfam }, entry }) => {
      const difference = u64(xfam) ^ u64(entry.xfam);
      const holds = (difference & ~XFAM_IGNORED) === 0n;
      const cet = holds && difference !== 0n ? ' (the CET bits differ, which is allowed)' : '';
      return finding(holds, `${hex(xfam)}${cet}`, hex(entry.xfam));
    },
  }),
  row('tdx.policy.xfam_fixed_bits', 'The processor features are ones that exist', '11', {
    expected: 'bits 0 and 1 set, no bit outside 0x6dbe7',
    judge: ({ body }) => {
      const xfam = u64(body.xfam);
      const holds = (xfam & XFAM_ALWAYS_SET) === XFAM_ALWAYS_SET && (xfam & ~XFAM_MAY_BE_SET) === 0n;
      return finding(holds, hex(body.xfam));
    },
  }),
  row('tdx.policy.td_attributes', 'The domain is not under debug', '11', {
    expected: hex(TD_ATTRIBUTES),
    judge: ({ body }) => oneOf(body.tdAttributes, [TD_ATTRIBUTES]),
  }),
  row('tdx.policy.memory_integrity', 'Memory is protected with integrity', '11', {
    expected: 'SGX type 2',
    conditional: true,
    judge: ({ entry, sgx: { sgxType: type } }) =>
      entry.memoryIntegrity ? finding(type === 2, `SGX type ${type}`) : NOT_ASKED_FOR,
  }),
  row('tdx.policy.smt_disabled', 'Simultaneous multithreading is off', '11', {
    expected: 'SMTEnabled false',
    conditional: true,
    judge: ({ entry, sgx }) => (entry.smtDisabled ? mustBeOff(sgx.smtEnabled) : NOT_ASKED_FOR),
  }),
  row('tdx.policy.static_platform', 'The platform cannot be extended', '11', {
    expected: 'DynamicPlatform false',
    conditional: true,
    judge: ({ entry, sgx }) => (entry.staticPlatform ? mustBeOff(sgx.dynamicPlatform) : NOT_ASKED_FOR),
  }),
  row('tdx.policy.piid', 'The platform is one of those named', '11', {
    expected: 'a PIID of the manifest',
    conditional: true,
    judge: ({ entry: { allowedPiids }, sgx }) =>
      allowedPiids.length > 0 ? oneOf(sgx.piid, allowedPiids) : NOT_ASKED_FOR,
  }),
];
