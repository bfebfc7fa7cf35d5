/**
 * Verifies Intel TDX evidence: who signed it, what it says about what runs, and what Intel's collateral says
 * about its platform (docs/protocol/attestation.md 9 to 11, 13, 19.10).
 */
import type { CheckRow, Checks, Stages } from '../check.ts';
import { asCollateral, type EvidenceContext, type ReadList, readFetchedList } from '../collateral.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import { type Certificate, crlDistributionPoint } from '../x509.ts';
import { judgeSigner, readPckChain, readPinnedRoot } from './chain.ts';
import {
  type DocumentSubject,
  documentChecks,
  type ListSubject,
  PCK_CRL_ROWS,
  QE_ROWS,
  ROOT_CRL_ROWS,
  SIGNING_ROWS,
  TCB_ROWS,
} from './collateral-checks.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import type { QuoteV4 } from './quote.ts';
import { CHAIN_ROWS, FORM_ROWS, SIGNATURE_ROWS, type SignerSubject } from './quote-checks.ts';
import { readSgxExtension, SGX_EXTENSION_OID } from './sgx-extension.ts';
import { type QeIdentity, readQeDocument, readTcbDocument, type TcbInfo } from './tcb-info.ts';

const TCB_INFO_ROWS: readonly CheckRow<DocumentSubject<TcbInfo>>[] = [
  ...documentChecks('tdx.tcb_info', 'TCB info', { id: 'TDX', version: 3 }),
  ...TCB_ROWS,
];
const QE_IDENTITY_ROWS: readonly CheckRow<DocumentSubject<QeIdentity>>[] = [
  ...documentChecks('tdx.qe_identity', 'QE identity', { id: 'TD_QE', version: 2 }),
  ...QE_ROWS,
];

export const TDX_ROWS: Stages = {
  signer: [...FORM_ROWS, ...CHAIN_ROWS, ...SIGNATURE_ROWS],
  policy: POLICY_ROWS,
  revocation: [...TCB_INFO_ROWS, ...QE_IDENTITY_ROWS, ...ROOT_CRL_ROWS, ...PCK_CRL_ROWS, ...SIGNING_ROWS],
};

/** What is judged, and by which reference values. */
export interface TdxEvidence {
  readonly message: QuoteV4;
  readonly entries: readonly TdxReferenceValues[];
  readonly context: EvidenceContext;
}

/** Returns whether all checks hold; `documentHolds` makes those of the document in between. */
export async function verifyTdx(
  checks: Checks,
  evidence: TdxEvidence,
  documentHolds: (checks: Checks) => Promise<boolean>,
): Promise<boolean> {
  const signer = await whoSigned(checks, evidence);
  if (signer === undefined || !(await documentHolds(checks))) return false;
  return whatRuns(checks, evidence, signer);
}

/** Judges who signed the quote; undefined unless an enclave under the pinned root did. Fetches nothing. */
async function whoSigned(
  checks: Checks,
  { message: quote, context }: TdxEvidence,
): Promise<SignerSubject | undefined> {
  const { expectedReportData, roots, now } = context;
  if (!(await checks.run(FORM_ROWS, { quote, expectedReportData }))) return undefined;
  const { pckCertificateChainData } = quote.signedData.certificationData.qeReportCertificationData;
  const chain = await checks.read('tdx.pck.format', () => readPckChain(pckCertificateChainData.pckCertChain));
  const pinned = await checks.read('tdx.pck.chain', () => readPinnedRoot(roots));
  if (chain === undefined || pinned === undefined) return undefined;
  const subject = { quote, chain, pinned, now };
  if (!(await checks.run(CHAIN_ROWS, subject))) return undefined;
  const extension = chain.leaf.extensions.get(SGX_EXTENSION_OID)?.value;
  const sgx = await checks.read('tdx.pck.extensions', () => readSgxExtension(extension));
  if (sgx === undefined || !(await checks.run(SIGNATURE_ROWS, { ...subject, sgx }))) return undefined;
  return { ...subject, sgx };
}

/** Judges what runs and on what, by each reference value. Returns whether everything holds by one of them. */
async function whatRuns(
  checks: Checks,
  { entries, context }: TdxEvidence,
  signer: SignerSubject,
): Promise<boolean> {
  const { coordinatorHashes, collateral } = context;
  const { sgx, quote } = signer;
  const entry = await checks.tryEach(entries, async (tried, entry) => {
    const subject = { body: quote.tdQuoteBody, entry, sgx, coordinatorHashes };
    return (await tried.run(POLICY_ROWS, subject)) && judgeCollateral(tried, entry, signer, collateral);
  });
  return entry !== undefined;
}

/** Fetches all collateral of the platform. What came is judged, whatever else did not come. */
async function judgeCollateral(
  checks: Checks,
  entry: TdxReferenceValues,
  signer: SignerSubject,
  source: EvidenceContext['collateral'],
): Promise<boolean> {
  const { quote, sgx, chain, pinned, now } = signer;
  const fmspc = Buffer.from(sgx.fmspc).toString('hex');
  const evaluationDataNumber = entry.minTcbEvaluationDataNumber;
  // Without a number, Intel serves its default set.
  const ofNumber = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    checks.read('tdx.tcb_info.format', async () =>
      readTcbDocument(await source.intelTcbInfo({ fmspc, ...ofNumber })),
    ),
    checks.read('tdx.qe_identity.format', async () => readQeDocument(await source.intelQeIdentity(ofNumber))),
    checks.read('tdx.pck_crl.format', async () => readFetchedList(await source.intelPckCrl())),
  ]);
  // The root certificate names the address of its list, so nobody asks there before it is trusted.
  const isTrusted = qeIdentity && (await judgeSigner(qeIdentity, pinned, now)).outcome === 'pass';
  const rootCrl = isTrusted
    ? await checks.read('tdx.root_crl.format', async () => {
        const url = asCollateral('the root certificate', () => crlDistributionPoint(qeIdentity.root));
        return readFetchedList(await source.intelRootCrl({ url }));
      })
    : undefined;
  const { qeReport } = quote.signedData.certificationData.qeReportCertificationData;
  const given = { ...signer, entry, qeReport };
  const judgeList = (
    rows: readonly CheckRow<ListSubject>[],
    list: ReadList | undefined,
    issuer: Certificate,
    ...certificates: readonly Certificate[]
  ): Promise<boolean> | undefined => list && checks.run(rows, { list, issuer, certificates, now });
  const made = [
    tcbInfo && (await checks.run(TCB_INFO_ROWS, { ...given, document: tcbInfo })),
    qeIdentity && (await checks.run(QE_IDENTITY_ROWS, { ...given, document: qeIdentity })),
    await judgeList(ROOT_CRL_ROWS, rootCrl, pinned, chain.intermediate),
    await judgeList(PCK_CRL_ROWS, pckCrl, chain.intermediate, chain.leaf),
    tcbInfo &&
      qeIdentity &&
      (await judgeList(SIGNING_ROWS, rootCrl, pinned, tcbInfo.signer, qeIdentity.signer)),
  ];
  return made.every((holds) => holds === true);
}
