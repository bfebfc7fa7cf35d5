/**
 * Verifies Intel TDX evidence against one reference value (docs/protocol/attestation.md 9 to 11, 13, 19.10).
 */
import { constantTimeEqual } from '#crypto';
import { allPass, judgeOf } from '../authentic.ts';
import { type Check, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceContext, type EvidenceFormat } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { CRL_ROWS, DOCUMENT_ROWS } from './collateral-checks.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import { decodeQuoteV4, type QuoteV4 } from './quote.ts';
import { FORM_ROWS, PCK_ROWS, SIGNATURE_ROWS } from './quote-checks.ts';
import { fetchCollateral, readSubject, type TdxRow, type TdxSubject } from './subject.ts';
import { TCB_ROWS } from './tcb-checks.ts';

/** The checks that need nothing but the evidence. */
const OFFLINE = [FORM_ROWS, PCK_ROWS, SIGNATURE_ROWS];
/** The checks that need collateral from Intel, then those of the policy. */
const ONLINE = [DOCUMENT_ROWS, CRL_ROWS, TCB_ROWS, POLICY_ROWS];

export const TDX: EvidenceFormat<QuoteV4, TdxReferenceValues> = {
  decode: decodeQuoteV4,
  rows: [...OFFLINE, ...ONLINE].flat(),
  verify: verifyTdx,
  async authentic(quote, context) {
    if (context.roots.tdx === undefined) return 'unknown';
    // These rows read nothing of a reference value.
    const checks = await judgeHardware(readSubject(quote, {} as TdxReferenceValues, context));
    return allPass(checks) ? 'yes' : 'no';
  },
};

const judgeHardware = judgeOf([...OFFLINE, POLICY_ROWS].flat(), [
  ...[
    'tdx.quote.version',
    'tdx.quote.key_type',
    'tdx.quote.tee_type',
    'tdx.quote.structure',
    'tdx.policy.report_data',
  ],
  ...['tdx.pck.format', 'tdx.pck.profile', 'tdx.pck.chain'],
  ...['tdx.quote.signature', 'tdx.qe.report_signature', 'tdx.qe.key_binding', 'tdx.qe.vendor'],
]);

/**
 * Fetches nothing once a check has failed, and nothing for evidence made for another nonce: neither must make
 * this program contact anybody.
 */
async function verifyTdx(
  quote: QuoteV4,
  entry: TdxReferenceValues,
  context: EvidenceContext,
): Promise<readonly Check[]> {
  const subject = readSubject(quote, entry, context);
  const offline = await judge(OFFLINE, subject);
  const isForOurNonce = constantTimeEqual(subject.body.reportData, context.expectedReportData);
  const isOpen = isForOurNonce && firstFailure(offline) === undefined;
  const collateral = isOpen ? await fetchCollateral(subject) : undefined;
  return [...offline, ...(await judge(ONLINE, { ...subject, ...collateral }))];
}

/** Runs all rows, group by group, so that other work can run in between. */
async function judge(groups: readonly (readonly TdxRow[])[], subject: TdxSubject): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const rows of groups) {
    await breathe();
    checks.push(...(await runChecks(rows, subject)));
  }
  return checks;
}
