/** Verification of Intel TDX evidence against one reference value (attestation.md 9 to 11, 13, 19.10). */
import { PrivatemodeError } from '../../errors.ts';
import { attempt, valueIn } from '../attempt.ts';
import { type Check, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceContext, type EvidenceFormat } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, parseCertificate } from '../x509/certificate.ts';
import { extensionValue } from '../x509/extensions.ts';
import { type Collateral, fetchCollateral } from './collateral.ts';
import { CRL_ROWS } from './crl-checks.ts';
import { DOCUMENT_ROWS } from './document-checks.ts';
import { decodeQuoteV4, type QuoteV4 } from './message.ts';
import { PCK_ROWS, readPckChain } from './pck.ts';
import { POLICY_ROWS } from './policy.ts';
import { FORM_ROWS, SIGNATURE_ROWS } from './quote-checks.ts';
import { readSgxExtension, SGX_EXTENSION_OID, type SgxExtension } from './sgx-extension.ts';
import type { TdxRow, TdxSubject } from './subject.ts';
import { TCB_ROWS } from './tcb-checks.ts';

/** What the evidence alone decides. */
const OFFLINE = [FORM_ROWS, PCK_ROWS, SIGNATURE_ROWS];
/** What needs collateral from Intel, and then the policy. */
const ONLINE = [DOCUMENT_ROWS, CRL_ROWS, TCB_ROWS, POLICY_ROWS];

export const TDX: EvidenceFormat<QuoteV4, TdxReferenceValues> = {
  decode: decodeQuoteV4,
  rows: [...OFFLINE, ...ONLINE].flat(),
  verify: verifyTdx,
};

/** Nothing is fetched once a check has failed: forged evidence must not make this program call anybody. */
async function verifyTdx(
  quote: QuoteV4,
  entry: TdxReferenceValues,
  context: EvidenceContext,
): Promise<readonly Check[]> {
  const subject = readSubject(quote, entry, context);
  const offline = await judge(OFFLINE, subject);
  const collateral = firstFailure(offline) === undefined ? await collateralFor(subject) : undefined;
  return [...offline, ...(await judge(ONLINE, { ...subject, collateral }))];
}

/** Judges by all rows, group by group, so that other work can run in between. */
async function judge(groups: readonly (readonly TdxRow[])[], subject: TdxSubject): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const rows of groups) {
    await breathe();
    checks.push(...runChecks(rows, subject));
  }
  return checks;
}

function readSubject(quote: QuoteV4, entry: TdxReferenceValues, context: EvidenceContext): TdxSubject {
  const { certificationData } = quote.signedData;
  const { pckCertChain } = certificationData.qeReportCertificationData.pckCertificateChainData;
  const chain = attempt(() => readPckChain(pckCertChain));
  const leaf = valueIn(chain)?.leaf;
  return {
    quote,
    entry,
    context,
    chain,
    pinnedRoot: attempt(() => readPinnedRoot(context.roots.tdx?.root)),
    sgx: leaf === undefined ? undefined : attempt(() => readSgx(leaf)),
    collateral: undefined,
  };
}

function readPinnedRoot(pem: string | undefined): Certificate {
  if (pem === undefined) throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted');
  return parseCertificate(decodeOneCertificate(pem));
}

function readSgx({ extensions }: Certificate): SgxExtension {
  const value = extensionValue(extensions, SGX_EXTENSION_OID);
  if (value === undefined) {
    throw new PrivatemodeError('evidence_malformed', `the PCK certificate has no ${SGX_EXTENSION_OID}`);
  }
  return readSgxExtension(value);
}

async function collateralFor(subject: TdxSubject): Promise<Collateral | undefined> {
  const [platform, pinnedRoot] = [valueIn(subject.sgx), valueIn(subject.pinnedRoot)];
  if (platform === undefined || pinnedRoot === undefined) return undefined;
  return fetchCollateral({
    fmspc: platform.fmspc,
    evaluationDataNumber: subject.entry.minTcbEvaluationDataNumber,
    pinnedRoot,
    context: subject.context,
  });
}
