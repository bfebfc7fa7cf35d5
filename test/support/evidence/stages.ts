/** The checks of evidence alone, as if the document around it held. */
import { type Check, Checks } from '../../../lib/attestation/check.ts';
import * as snp from '../../../lib/attestation/snp/verify-snp.ts';
import * as tdx from '../../../lib/attestation/tdx/verify-tdx.ts';

/** Every check of each kind of evidence, in order. */
export const SNP_ROWS = [...snp.SNP_ROWS.signer, ...snp.SNP_ROWS.later];
export const TDX_ROWS = [...tdx.TDX_ROWS.signer, ...tdx.TDX_ROWS.later];

/** What is judged, and by what. */
interface Evidence<Verify extends typeof snp.verifySnp | typeof tdx.verifyTdx> {
  readonly message: Parameters<Verify>[1];
  readonly entries: Parameters<Verify>[2];
  readonly context: Parameters<Verify>[3];
}

export async function judgeSnp(of: Evidence<typeof snp.verifySnp>): Promise<readonly Check[]> {
  const checks = new Checks(SNP_ROWS);
  await snp.verifySnp(checks, of.message, of.entries, of.context, async () => true);
  return checks.of(SNP_ROWS);
}

export async function judgeTdx(of: Evidence<typeof tdx.verifyTdx>): Promise<readonly Check[]> {
  const checks = new Checks(TDX_ROWS);
  await tdx.verifyTdx(checks, of.message, of.entries, of.context, async () => true);
  return checks.of(TDX_ROWS);
}
