/**
 * Verifies Intel TDX evidence: the signer of the quote, the software that the quote describes, and Intel's
 * collateral for the platform (docs/protocol/attestation.md 9 to 11, 13, 19.10).
 */
import type { Checks } from '../check.ts';
import type { EvidenceContext } from '../collateral.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import { CHAIN_ROWS, readPckChain, readPinnedRoot, readSgxExtension, SGX_EXTENSION_OID } from './chain.ts';
import { COLLATERAL_ROWS, judgeCollateral } from './collateral-checks.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import { type QuoteV4, quoteParts } from './quote.ts';
import { FORM_ROWS, SIGNATURE_ROWS } from './quote-checks.ts';

/** `signer` has the checks of the quote's signer. `later` has the checks after those of the document. */
export const TDX_ROWS = {
  signer: [...FORM_ROWS, ...CHAIN_ROWS, ...SIGNATURE_ROWS],
  later: [...POLICY_ROWS, ...COLLATERAL_ROWS],
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
  const chain = await checks.read('tdx.pck.format', () => readPckChain(pckCertChain));
  const pinned = await checks.read('tdx.pck.chain', () => readPinnedRoot(context.roots));
  if (chain === undefined || pinned === undefined) return false;
  const chained = { ...quoted, chain, pinned };
  if (!(await checks.run(CHAIN_ROWS, chained))) return false;
  const extension = chain[0].extensions.get(SGX_EXTENSION_OID)?.value;
  const sgx = await checks.read('tdx.pck.extensions', () => readSgxExtension(extension));
  const signer = sgx && { ...chained, sgx };
  if (signer === undefined || !(await checks.run(SIGNATURE_ROWS, signer))) return false;
  if (!(await documentHolds(checks))) return false;
  const accepting = await checks.tryEach(entries, async (tried, entry) => {
    const subject = { ...signer, entry };
    return (await tried.run(POLICY_ROWS, subject)) && judgeCollateral(tried, subject);
  });
  return accepting !== undefined;
}
