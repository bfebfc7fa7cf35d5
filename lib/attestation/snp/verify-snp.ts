/** Verifies SEV-SNP evidence against one reference value (docs/protocol/attestation.md 7, 8, 19). */
import { allPass, judgeOf } from '../authentic.ts';
import { attempt, type Check, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceFormat } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { type Certificate, commonName } from '../x509.ts';
import { CHAIN_ROWS, REVOCATION_ROWS, VCEK_ROWS } from './chain-checks.ts';
import { matchMeasurement } from './launch-digest.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import { type Product, productOf } from './product.ts';
import { decodeSnpAttestation, familyModelStepping, type SnpAttestation, signingKey } from './report.ts';
import { FIRMWARE_ROWS, REPORT_ROWS, SIGNATURE_ROWS, SUPPORTED_VERSIONS } from './report-checks.ts';
import { obtainArkCrl, obtainVcek, readRoots, readVcekExtensions, type SnpSubject } from './vcek.ts';

/** In the order in which they are reported. */
const GROUPS = [
  REPORT_ROWS,
  VCEK_ROWS,
  CHAIN_ROWS,
  REVOCATION_ROWS,
  SIGNATURE_ROWS,
  POLICY_ROWS,
  FIRMWARE_ROWS,
];

export const SNP: EvidenceFormat<SnpAttestation, SnpReferenceValues> = {
  decode: decodeSnpAttestation,
  rows: GROUPS.flat(),
  /**
   * Fetches nothing while a check fails, so that evidence which can be told to be wrong makes this program
   * contact nobody. Checks that need what is missing are not evaluated until it was fetched. The VCEK comes
   * first: without it nobody can tell who signed the report.
   */
  async verify(message, entry, context) {
    const given = {
      ...message,
      entry,
      context,
      roots: attempt(() => readRoots(context.roots, entry.product)),
    };
    await breathe();
    const vcpus = matchMeasurement(entry, message.report.measurement);
    const arkCrl = await obtainArkCrl(given, false);
    let subject: SnpSubject = { ...given, vcpus, arkCrl, ...(await endorsement(given, false)) };
    let checks = await judge(subject);
    if (subject.vcek === undefined && firstFailure(checks) === undefined) {
      subject = { ...subject, ...(await endorsement(given, true)) };
      checks = await judge(subject);
    }
    if (subject.arkCrl === undefined && firstFailure(checks) === undefined) {
      checks = await judge({ ...subject, arkCrl: await obtainArkCrl(given, true) });
    }
    return checks;
  },
  async authentic(message, context) {
    const products = Object.keys(context.roots.snp) as Product[];
    // The rows that are judged here read nothing of a reference value but the product.
    const [first, ...others] = products.map(
      (product): SnpSubject => ({
        ...message,
        context,
        entry: { product } as SnpReferenceValues,
        roots: attempt(() => readRoots(context.roots, product)),
      }),
    );
    // The bytes that were signed cannot be rebuilt by the layout of another version.
    if (!SUPPORTED_VERSIONS.includes(message.report.version)) return 'unknown';
    // Only VCEKs have roots here; a VCEK is signing key 0.
    if (first === undefined || signingKey(message.report) !== 0) return 'unknown';
    if (!allPass(await judgeReport(first))) return 'no';
    const vcek = await obtainVcek(first, false);
    if (vcek === undefined) return 'unknown';
    for (const subject of [first, ...others]) {
      await breathe();
      if (allPass(await judgeSigner({ ...subject, vcek }))) return 'yes';
    }
    const line = productLine(message, vcek.value?.certificate);
    return line === undefined || Object.hasOwn(context.roots.snp, line) ? 'no' : 'unknown';
  },
};

/**
 * The product line that the report names, else the one that the issuer of its VCEK has in its name. Whoever
 * made the evidence chose both.
 */
function productLine({ report }: SnpAttestation, vcek: Certificate | undefined): string | undefined {
  const { family, model } = familyModelStepping(report.cpuid1EaxFms);
  return productOf(family, model) ?? (vcek && commonName(vcek.issuer)?.replace(/^SEV-/, ''));
}

/** The VCEK and its extensions. */
async function endorsement(
  subject: SnpSubject,
  mayFetch: boolean,
): Promise<Pick<SnpSubject, 'vcek' | 'vcekExtensions'>> {
  const vcek = await obtainVcek(subject, mayFetch);
  const certificate = vcek?.value?.certificate;
  return { vcek, vcekExtensions: certificate && attempt(() => readVcekExtensions(certificate)) };
}

/** Runs all rows, group by group, so that other work can run in between. */
async function judge(subject: SnpSubject): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const rows of GROUPS) {
    await breathe();
    checks.push(...(await runChecks(rows, subject)));
  }
  return checks;
}

const judgeReport = judgeOf(REPORT_ROWS, [
  'snp.report_data',
  'snp.report.signature_algo',
  'snp.report.signing_key',
]);
const judgeSigner = judgeOf(
  [...VCEK_ROWS, ...CHAIN_ROWS, ...SIGNATURE_ROWS],
  ['snp.vcek.form', 'snp.vcek.names', 'snp.roots', 'snp.chain.signature', 'snp.report.signature'],
);
