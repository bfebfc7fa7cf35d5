/**
 * Verifies Intel TDX evidence: the signer of the quote, the software that the quote describes, and Intel's
 * collateral for the platform (docs/protocol/attestation.md 9 to 11, 13, 19.10).
 */
import { type Checks, hex } from '../check.ts';
import { asCollateral, type EvidenceContext, readFetchedList } from '../collateral.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import { crlDistributionPoint } from '../x509.ts';
import * as chains from './chain.ts';
import { type EntrySubject, POLICY_ROWS } from './policy-checks.ts';
import { type QuoteV4, quoteParts } from './quote.ts';
import { FORM_ROWS, SIGNATURE_ROWS } from './quote-checks.ts';
import { PCK_CRL_ROWS, ROOT_CRL_ROWS, SIGNING_ROWS } from './revocation-checks.ts';
import { QE_ROWS, TCB_ROWS } from './tcb-checks.ts';
import { readQeDocument, readTcbDocument } from './tcb-info.ts';

/** `signer` has the checks of the quote's signer. `later` has the checks after those of the document. */
export const TDX_ROWS = {
  signer: [...FORM_ROWS, ...chains.CHAIN_ROWS, ...SIGNATURE_ROWS],
  later: [POLICY_ROWS, TCB_ROWS, QE_ROWS, ROOT_CRL_ROWS, PCK_CRL_ROWS, SIGNING_ROWS].flat(),
};

/**
 * Returns whether all checks hold. A single reference value must satisfy all checks of the software and the
 * platform. Calls `documentHolds` between the signer checks and the policy checks. No collateral is fetched
 * before the checks have shown that an enclave under the pinned root signed the quote.
 */
export async function verifyTdx(
  checks: Checks,
  message: QuoteV4,
  entries: readonly TdxReferenceValues[],
  context: EvidenceContext,
  documentHolds: (checks: Checks) => Promise<boolean>,
): Promise<boolean> {
  const quoted = { ...context, ...quoteParts(message) };
  if (!(await checks.run(FORM_ROWS, quoted))) return false;
  const { pckCertChain } = quoted.qe.pckCertificateChainData;
  const chain = await checks.read('tdx.pck.format', () => chains.readPckChain(pckCertChain));
  const pinned = await checks.read('tdx.pck.chain', () => chains.readPinnedRoot(context.roots));
  if (chain === undefined || pinned === undefined) return false;
  const chained = { ...quoted, chain, pinned };
  if (!(await checks.run(chains.CHAIN_ROWS, chained))) return false;
  const extension = chain[0].extensions.get(chains.SGX_EXTENSION_OID)?.value;
  const sgx = await checks.read('tdx.pck.extensions', () => chains.readSgxExtension(extension));
  const signer = sgx && { ...chained, sgx };
  if (signer === undefined || !(await checks.run(SIGNATURE_ROWS, signer))) return false;
  if (!(await documentHolds(checks))) return false;
  const accepting = await checks.tryEach(entries, async (tried, entry) => {
    const subject = { ...signer, entry };
    return (await tried.run(POLICY_ROWS, subject)) && judgeCollateral(tried, subject);
  });
  return accepting !== undefined;
}

/** Fetches all collateral of the platform. If a part cannot be fetched, the other parts are still judged. */
async function judgeCollateral(checks: Checks, subject: EntrySubject): Promise<boolean> {
  const { sgx, entry, chain, pinned, now, collateral } = subject;
  const [pck, platformCa] = chain;
  const { minTcbEvaluationDataNumber: evaluationDataNumber } = entry;
  // Without an evaluation data number, Intel serves its default set of collateral.
  const query = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    checks.read('tdx.tcb_info.format', () =>
      collateral.intelTcbInfo({ fmspc: hex(sgx.fmspc), ...query }).then(readTcbDocument),
    ),
    checks.read('tdx.qe_identity.format', () => collateral.intelQeIdentity(query).then(readQeDocument)),
    checks.read('tdx.pck_crl.format', () => collateral.intelPckCrl().then(readFetchedList)),
  ]);
  // The root certificate names the URL of its CRL, so the CRL is fetched only if the root is trusted.
  const isTrusted = qeIdentity && (await chains.judgeSigner(qeIdentity.chain, subject)).outcome === 'pass';
  const rootCrl =
    isTrusted &&
    (await checks.read('tdx.root_crl.format', async () => {
      const url = asCollateral('the root certificate', () => crlDistributionPoint(qeIdentity.chain[1]));
      return readFetchedList(await collateral.intelRootCrl({ url }));
    }));
  const ofRoot = rootCrl && { list: rootCrl, issuer: pinned, now };
  const signers = tcbInfo && qeIdentity && [tcbInfo.chain[0], qeIdentity.chain[0]];
  const held = [
    tcbInfo && (await checks.run(TCB_ROWS, { ...subject, document: tcbInfo })),
    qeIdentity && (await checks.run(QE_ROWS, { ...subject, document: qeIdentity })),
    ofRoot && (await checks.run(ROOT_CRL_ROWS, { ...ofRoot, issued: [platformCa] })),
    pckCrl && (await checks.run(PCK_CRL_ROWS, { list: pckCrl, issuer: platformCa, issued: [pck], now })),
    ofRoot && signers && (await checks.run(SIGNING_ROWS, { ...ofRoot, issued: signers })),
  ];
  return held.every((holds) => holds === true);
}
