/** Whether the trust domain is the one that the manifest describes (docs/protocol/attestation.md 11, 19.10, 19.12). */
import { constantTimeEqual } from '../../crypto/digest.ts';
import { type Finding, finding, notApplicable, valueIn } from '../check.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import type { SgxExtension } from './sgx-extension.ts';
import { hex, rowsFrom, type TdxRow } from './subject.ts';

/** Only bit 28, SEPT_VE_DISABLE; fixed here, so that a domain under debug can never pass (docs/protocol/attestation.md 11). */
const TD_ATTRIBUTES = Uint8Array.of(0, 0, 0, 0x10, 0, 0, 0, 0);
/** CET_U and CET_S: newer VMMs pass the host's capability on to the domain (docs/protocol/attestation.md 19.10). */
const XFAM_IGNORED = 0x1800n;
/** x87 and SSE. */
const XFAM_ALWAYS_SET = 0x3n;
const XFAM_MAY_BE_SET = 0x6dbe7n;
const SGX_TYPE_WITH_INTEGRITY = 2;

const u64 = (bytes: Uint8Array): bigint => {
  if (bytes.length !== 8) return -1n;
  return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true);
};

/** Passes for one of the allowed values; with none allowed, nothing passes. */
function oneOf(found: Uint8Array | undefined, allowed: readonly Uint8Array[]): Finding {
  const holds = found !== undefined && allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found ?? new Uint8Array()), allowed.map(hex).join(' or '));
}

/** A property of the platform, from the PCK certificate, that the manifest may ask for. */
function platformCheck(
  name: string,
  title: string,
  expected: string,
  demanded: (entry: TdxReferenceValues) => boolean,
  judge: (sgx: SgxExtension, entry: TdxReferenceValues) => Finding,
): TdxRow {
  return {
    id: `tdx.policy.${name}`,
    source: 'attestation.md 11',
    title,
    expected,
    conditional: true,
    judge: ({ entry, sgx }) => {
      if (!demanded(entry)) return notApplicable('the manifest does not ask for it');
      const platform = valueIn(sgx);
      return platform && judge(platform, entry);
    },
  };
}

/** Passes only where the certificate states the flag to be off. */
const mustBeOff = (flag: boolean | undefined): Finding =>
  finding(flag === false, String(flag ?? 'not stated'));

export const POLICY_ROWS = rowsFrom('attestation.md 11', [
  {
    id: 'tdx.policy.report_data',
    source: 'attestation.md 3',
    title: 'The evidence answers our nonce and binds the CA certificates',
    expected: 'the value of the manifest',
    judge: ({ quote, context }) => oneOf(quote.tdQuoteBody.reportData, [context.expectedReportData]),
  },
  {
    id: 'tdx.policy.mrconfigid',
    source: 'attestation.md 4.3, 19.12',
    title: 'The domain runs as the coordinator',
    expected: 'the value of the manifest',
    judge: ({ quote, context }) => {
      const padded = context.coordinatorHashes.map((hash) => Uint8Array.of(...hash, ...new Uint8Array(16)));
      return oneOf(quote.tdQuoteBody.mrConfigId, padded);
    },
  },
  {
    id: 'tdx.policy.mrseam',
    title: 'The TDX module is the expected one',
    expected: 'the value of the manifest',
    judge: ({ quote, entry }) => oneOf(quote.tdQuoteBody.mrSeam, [entry.mrSeam]),
  },
  {
    id: 'tdx.policy.mrtd',
    title: 'The initial memory is the expected one',
    expected: 'the value of the manifest',
    judge: ({ quote, entry }) => oneOf(quote.tdQuoteBody.mrTd, [entry.mrTd]),
  },
  ...([0, 1, 2, 3] as const).map(
    (i): TdxRow => ({
      id: `tdx.policy.rtmr${i}`,
      source: i === 0 ? 'attestation.md 11, 19.10' : 'attestation.md 11',
      title: `Run-time measurement ${i} is the expected one`,
      expected: 'the value of the manifest',
      judge: ({ quote, entry: { rtmrs, rtmr0Alternatives } }) =>
        oneOf(quote.tdQuoteBody.rtmrs[i], [rtmrs[i], ...(i === 0 ? rtmr0Alternatives : [])]),
    }),
  ),
  {
    id: 'tdx.policy.xfam',
    source: 'attestation.md 19.10',
    title: 'The domain has the expected processor features',
    expected: 'the value of the manifest but for the two CET bits',
    judge: ({ quote, entry }) => {
      const [found, wanted] = [u64(quote.tdQuoteBody.xfam), u64(entry.xfam)];
      const difference = found ^ wanted;
      const cet = difference === 0n ? '' : ' (the CET bits differ, which is allowed)';
      const holds = wanted >= 0n && (difference & ~XFAM_IGNORED) === 0n;
      return finding(holds, `${hex(quote.tdQuoteBody.xfam)}${holds ? cet : ''}`, hex(entry.xfam));
    },
  },
  {
    id: 'tdx.policy.xfam_fixed_bits',
    title: 'The processor features are ones that exist',
    expected: 'bits 0 and 1 set, no bit outside 0x6dbe7',
    judge: ({ quote }) => {
      const xfam = u64(quote.tdQuoteBody.xfam);
      const holds = (xfam & XFAM_ALWAYS_SET) === XFAM_ALWAYS_SET && (xfam & ~XFAM_MAY_BE_SET) === 0n;
      return finding(holds, hex(quote.tdQuoteBody.xfam));
    },
  },
  {
    id: 'tdx.policy.td_attributes',
    title: 'The domain is not under debug',
    expected: hex(TD_ATTRIBUTES),
    judge: ({ quote }) => oneOf(quote.tdQuoteBody.tdAttributes, [TD_ATTRIBUTES]),
  },
  platformCheck(
    'memory_integrity',
    'Memory is protected with integrity',
    'SGX type 2',
    (entry) => entry.memoryIntegrity,
    ({ sgxType }) => finding(sgxType === SGX_TYPE_WITH_INTEGRITY, `SGX type ${sgxType}`),
  ),
  platformCheck(
    'smt_disabled',
    'Simultaneous multithreading is off',
    'SMTEnabled false',
    (entry) => entry.smtDisabled,
    ({ smtEnabled }) => mustBeOff(smtEnabled),
  ),
  platformCheck(
    'static_platform',
    'The platform cannot be extended',
    'DynamicPlatform false',
    (entry) => entry.staticPlatform,
    ({ dynamicPlatform }) => mustBeOff(dynamicPlatform),
  ),
  platformCheck(
    'piid',
    'The platform is one of those named',
    'a PIID of the manifest',
    (entry) => entry.allowedPiids.length > 0,
    ({ piid }, { allowedPiids }) => oneOf(piid, allowedPiids),
  ),
]);
