/** The checks of evidence alone, as if the document around it held. */
import { type Check, Checks } from '../../../lib/attestation/check.ts';
import * as snp from '../../../lib/attestation/snp/verify-snp.ts';
import * as tdx from '../../../lib/attestation/tdx/verify-tdx.ts';

/** Every check of each kind of evidence, in order. */
export const SNP_ROWS = [...snp.SNP_ROWS.signer, ...snp.SNP_ROWS.policy, ...snp.SNP_ROWS.revocation];
export const TDX_ROWS = [...tdx.TDX_ROWS.signer, ...tdx.TDX_ROWS.policy, ...tdx.TDX_ROWS.revocation];

export async function judgeSnp(evidence: snp.SnpEvidence): Promise<readonly Check[]> {
  const checks = new Checks(SNP_ROWS);
  await snp.verifySnp(checks, evidence, async () => true);
  return checks.of(SNP_ROWS);
}

export async function judgeTdx(evidence: tdx.TdxEvidence): Promise<readonly Check[]> {
  const checks = new Checks(TDX_ROWS);
  await tdx.verifyTdx(checks, evidence, async () => true);
  return checks.of(TDX_ROWS);
}
