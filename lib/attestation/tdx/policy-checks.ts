/**
 * Checks whether the trust domain is the one that a reference value of the manifest describes, by what quote
 * and PCK certificate say (docs/protocol/attestation.md 11, 19.10, 19.12). Nothing is read or fetched.
 */
import { type Finding, finding, hex, notApplicable, oneOf, rowsFrom } from '../check.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import type { SignerSubject } from './quote-checks.ts';

export interface EntrySubject extends SignerSubject {
  readonly entry: TdxReferenceValues;
}

/** Only bit 28, SEPT_VE_DISABLE; fixed here, so that a domain under debug can never pass. */
const TD_ATTRIBUTES = Uint8Array.of(0, 0, 0, 0x10, 0, 0, 0, 0);
/** CET_U and CET_S, which may differ from the manifest: newer VMMs pass on what the host can do (19.10). */
const XFAM_IGNORED = 0x1800n;
/** x87 and SSE. */
const XFAM_ALWAYS_SET = 0x3n;
const XFAM_MAY_BE_SET = 0x6dbe7n;

const u64 = (bytes: Uint8Array): bigint =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getBigUint64(0, true);
const NOT_ASKED_FOR = notApplicable('the manifest does not ask for it');
/** Passes only if the PCK certificate states that the flag is off. */
const mustBeOff = (flag: boolean | undefined): Finding => finding(flag === false, `${flag ?? 'not stated'}`);

const measurement = (title: string, member: 'mrSeam' | 'mrTd') => ({
  title,
  expected: 'the value of the manifest',
  judge: ({ body, entry }: EntrySubject) => oneOf(body[member], [entry[member]]),
});

/** A run-time measurement; the manifest may state alternatives for the first one. */
const rtmr = (i: 0 | 1 | 2 | 3) => ({
  title: `Run-time measurement ${i} is the expected one`,
  expected: 'the value of the manifest',
  judge: ({ body, entry }: EntrySubject) =>
    oneOf(body.rtmrs[i], [entry.rtmrs[i], ...(i === 0 ? entry.rtmr0Alternatives : [])]),
});

export const POLICY_ROWS = rowsFrom<EntrySubject>('attestation.md 11', {
  'tdx.policy.mrconfigid': {
    source: 'attestation.md 4.3, 19.12',
    title: 'The domain runs as the coordinator',
    expected: 'the policy hash of a coordinator entry of the manifest, then 16 zero bytes',
    judge: ({ body, coordinatorHashes }) => {
      const padded = coordinatorHashes.map((hash) => Uint8Array.of(...hash, ...new Uint8Array(16)));
      return oneOf(body.mrConfigId, padded);
    },
  },
  'tdx.policy.mrseam': measurement('The TDX module is the expected one', 'mrSeam'),
  'tdx.policy.mrtd': measurement('The initial memory is the expected one', 'mrTd'),
  'tdx.policy.rtmr0': { ...rtmr(0), source: 'attestation.md 11, 19.10' },
  'tdx.policy.rtmr1': rtmr(1),
  'tdx.policy.rtmr2': rtmr(2),
  'tdx.policy.rtmr3': rtmr(3),
  'tdx.policy.xfam': {
    source: 'attestation.md 19.10',
    title: 'The domain has the expected processor features',
    expected: 'the value of the manifest but for the two CET bits',
    judge: ({ body: { xfam }, entry }) => {
      const difference = u64(xfam) ^ u64(entry.xfam);
      const holds = (difference & ~XFAM_IGNORED) === 0n;
      const cet = holds && difference !== 0n ? ' (the CET bits differ, which is allowed)' : '';
      return finding(holds, `${hex(xfam)}${cet}`, hex(entry.xfam));
    },
  },
  'tdx.policy.xfam_fixed_bits': {
    title: 'The processor features are ones that exist',
    expected: 'bits 0 and 1 set, no bit outside 0x6dbe7',
    judge: ({ body }) => {
      const xfam = u64(body.xfam);
      const holds = (xfam & XFAM_ALWAYS_SET) === XFAM_ALWAYS_SET && (xfam & ~XFAM_MAY_BE_SET) === 0n;
      return finding(holds, hex(body.xfam));
    },
  },
  'tdx.policy.td_attributes': {
    title: 'The domain is not under debug',
    expected: hex(TD_ATTRIBUTES),
    judge: ({ body }) => oneOf(body.tdAttributes, [TD_ATTRIBUTES]),
  },
  'tdx.policy.memory_integrity': {
    title: 'Memory is protected with integrity',
    expected: 'SGX type 2',
    conditional: true,
    judge: ({ entry, sgx: { sgxType: type } }) =>
      entry.memoryIntegrity ? finding(type === 2, `SGX type ${type}`) : NOT_ASKED_FOR,
  },
  'tdx.policy.smt_disabled': {
    title: 'Simultaneous multithreading is off',
    expected: 'SMTEnabled false',
    conditional: true,
    judge: ({ entry, sgx }) => (entry.smtDisabled ? mustBeOff(sgx.smtEnabled) : NOT_ASKED_FOR),
  },
  'tdx.policy.static_platform': {
    title: 'The platform cannot be extended',
    expected: 'DynamicPlatform false',
    conditional: true,
    judge: ({ entry, sgx }) => (entry.staticPlatform ? mustBeOff(sgx.dynamicPlatform) : NOT_ASKED_FOR),
  },
  'tdx.policy.piid': {
    title: 'The platform is one of those named',
    expected: 'a PIID of the manifest',
    conditional: true,
    judge: ({ entry: { allowedPiids }, sgx }) =>
      allowedPiids.length > 0 ? oneOf(sgx.piid, allowedPiids) : NOT_ASKED_FOR,
  },
});
