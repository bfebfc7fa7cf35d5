/** SEV-SNP evidence against one reference value (docs/protocol/attestation.md 7, 8, 19). */
import { allPass, judgeOf } from '../authentic.ts';
import { type Authentic, attempt, type Check, type CheckRow, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceContext, type EvidenceFormat } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { CHAIN_ROWS, REVOCATION_ROWS, VCEK_ROWS } from './chain-checks.ts';
import { matchMeasurement } from './launch.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import type { Product } from './product.ts';
import { decodeSnpAttestation, type SnpAttestation, signingKey } from './report.ts';
import { FIRMWARE_ROWS, REPORT_ROWS, SIGNATURE_ROWS } from './report-checks.ts';
import { obtainArkCrl, obtainVcek, readRoots, readVcekExtensions, type SnpSubject } from './vcek.ts';

export const SNP: EvidenceFormat<SnpAttestation, SnpReferenceValues> = {
  decode: decodeSnpAttestation,
  rows: [
    REPORT_ROWS,
    VCEK_ROWS,
    CHAIN_ROWS,
    REVOCATION_ROWS,
    SIGNATURE_ROWS,
    POLICY_ROWS,
    FIRMWARE_ROWS,
  ].flat(),
  /** Fetches nothing once a check has failed: forged evidence must not make this program contact anybody. */
  async verify(message, entry, context) {
    const checks: Check[] = [];
    /** Returns whether no check has failed so far. */
    const judge = async (rows: readonly CheckRow<SnpSubject>[], subject: SnpSubject): Promise<boolean> => {
      checks.push(...(await runChecks(rows, subject)));
      return firstFailure(checks) === undefined;
    };
    const roots = attempt(() => readRoots(context.roots, entry.product));
    const given: SnpSubject = { ...message, entry, context, roots };
    const vcek = await obtainVcek(given, await judge(REPORT_ROWS, given));
    const certificate = vcek?.value?.certificate;
    const vcekExtensions = certificate && attempt(() => readVcekExtensions(certificate));
    const endorsed: SnpSubject = { ...given, vcek, vcekExtensions };
    await judge(VCEK_ROWS, endorsed);
    await breathe();
    const arkCrl = await obtainArkCrl(endorsed, await judge(CHAIN_ROWS, endorsed));
    await judge(REVOCATION_ROWS, { ...endorsed, arkCrl });
    await breathe();
    await judge(SIGNATURE_ROWS, endorsed);
    await breathe();
    const vcpus = matchMeasurement(entry, message.report.measurement);
    await breathe();
    await judge(POLICY_ROWS, { ...endorsed, vcpus });
    await judge(FIRMWARE_ROWS, endorsed);
    return checks;
  },
  async authentic(message, context) {
    const products = Object.keys(context.roots.snp) as Product[];
    // Other kinds of keys have no roots here.
    if (products.length === 0 || signingKey(message.report) !== 0) return 'unknown';
    for (const product of products) {
      const found = await authenticAs(product, message, context);
      if (found !== 'no') return found;
    }
    return 'no';
  },
};

const judgeReport = judgeOf(REPORT_ROWS, [
  'snp.report_data',
  'snp.report.signature_algo',
  'snp.report.signing_key',
]);
const judgeSigner = judgeOf(
  [...VCEK_ROWS, ...CHAIN_ROWS, ...SIGNATURE_ROWS],
  ['snp.vcek.form', 'snp.vcek.names', 'snp.roots', 'snp.chain.signature', 'snp.report.signature'],
);

/** Under the roots of one product line. */
async function authenticAs(
  product: Product,
  message: SnpAttestation,
  context: EvidenceContext,
): Promise<Authentic> {
  // Of the reference values, these rows read the product alone.
  const entry = { product } as SnpReferenceValues;
  const given: SnpSubject = {
    ...message,
    entry,
    context,
    roots: attempt(() => readRoots(context.roots, product)),
  };
  if (!allPass(await judgeReport(given))) return 'no';
  const vcek = await obtainVcek(given, false);
  if (vcek === undefined) return 'unknown';
  await breathe();
  return allPass(await judgeSigner({ ...given, vcek })) ? 'yes' : 'no';
}
