/** What the error of a rejected verdict says about who signed the evidence. */
import type { Authentic, Check } from '../attestation/check.ts';
import type { ErrorCode } from '../errors.ts';
import type { Doubt } from './verdict.ts';

const DOUBTS = {
  no: 'no hardware vouches for this evidence: ',
  unknown: 'nothing shows which hardware signed this evidence: ',
} as const;

/** Codes that say the same whoever signed: faults of the manifest itself, and missing collateral. */
const WHOEVER_SIGNED: ReadonlySet<ErrorCode> = new Set([
  'manifest_unsupported',
  'manifest_invalid',
  'collateral_unavailable',
]);

const NOT_AUTHENTIC_REMEDY =
  'Do not trust the remote: check its address and the network, and report it if both are right.';

/** Undefined if the hardware itself said what was judged, or if nobody has to have said it. */
export function doubtOf({ code, detail }: Check, authentic: Authentic): Doubt | undefined {
  if (authentic === 'yes' || WHOEVER_SIGNED.has(code ?? 'attestation_failed')) return undefined;
  const isBetterKnown = authentic === 'unknown' && (detail?.clock ?? detail?.newer) !== undefined;
  const remedy = isBetterKnown ? {} : { remedy: NOT_AUTHENTIC_REMEDY };
  return { begins: DOUBTS[authentic], options: { ...remedy, detail: { ...detail, unvouched: true } } };
}
