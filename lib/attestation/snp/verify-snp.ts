/**
 * Verifies SEV-SNP evidence: who signed it, what it says about what runs, and what is revoked
 * (docs/protocol/attestation.md 7, 8).
 */
import { Checks, type Stages } from '../check.ts';
import { asCollateral, type EvidenceContext } from '../collateral.ts';
import type { SnpReferenceValues } from '../manifest.ts';
import { type Certificate, commonName } from '../x509.ts';
import {
  CRL_ROWS,
  obtainArkCrl,
  type Roots,
  readRoots,
  readVcek,
  readVcekExtensions,
  vcekQuery,
} from './endorsement.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import { productOf } from './product.ts';
import { familyModelStepping, SNP_EXTRA_CRL, type SnpAttestation, type SnpReport } from './report.ts';
import { REPORT_ROWS, SIGNER_ROWS } from './signer-checks.ts';

export const SNP_ROWS: Stages = {
  signer: [...REPORT_ROWS, ...SIGNER_ROWS],
  policy: POLICY_ROWS,
  revocation: CRL_ROWS,
};

/** What is judged, and by which reference values. */
export interface SnpEvidence {
  readonly message: SnpAttestation;
  readonly entries: readonly SnpReferenceValues[];
  readonly context: EvidenceContext;
}

/** The pinned roots under which the signature holds, and what the VCEK calls its product. */
interface SnpSigner {
  readonly roots: Roots;
  readonly productName: string;
}

/** Makes the checks of the document in between, and returns whether they hold. */
type DocumentHolds = (checks: Checks) => Promise<boolean>;

/** Returns whether all checks hold. */
export async function verifySnp(
  checks: Checks,
  evidence: SnpEvidence,
  documentHolds: DocumentHolds,
): Promise<boolean> {
  const signer = await whoSigned(checks, evidence, documentHolds);
  if (signer === undefined || !(await documentHolds(checks))) return false;
  return whatRuns(checks, evidence, signer);
}

/** Judges who signed the report; undefined unless a VCEK under a pinned root did. */
async function whoSigned(
  checks: Checks,
  evidence: SnpEvidence,
  documentHolds: DocumentHolds,
): Promise<SnpSigner | undefined> {
  const { message, context } = evidence;
  const { report, certificates } = message;
  const { expectedReportData, now } = context;
  if (!(await checks.run(REPORT_ROWS, { report, expectedReportData }))) return undefined;
  const found = certificates.vcek
    ? await readEndorsement(checks, evidence, certificates.vcek)
    : await fetchEndorsement(checks, evidence, documentHolds);
  if (found === undefined) return undefined;
  const { roots, vcek } = found;
  const extensions = await checks.read('snp.vcek.extensions', () => readVcekExtensions(vcek));
  if (extensions === undefined) return undefined;
  const holds = await checks.run(SIGNER_ROWS, { ...found, report, extensions, now });
  return holds ? { roots, productName: extensions.productName } : undefined;
}

interface Endorsement {
  readonly vcek: Certificate;
  readonly origin: string;
  readonly roots: Roots;
}

async function readEndorsement(
  checks: Checks,
  { message: { report }, context: { roots: pinned } }: SnpEvidence,
  embedded: Uint8Array,
): Promise<Endorsement | undefined> {
  const vcek = await checks.read('snp.vcek.available', () => readVcek(embedded));
  const roots =
    vcek && (await checks.read('snp.roots', () => readRoots(pinned, lineOf(vcek, report, pinned))));
  return vcek && roots && { vcek, roots, origin: 'from the document' };
}

/**
 * The product line to whose roots the chain must lead: the one that the issuer of the VCEK names, if it is
 * pinned. Whoever made the evidence chose that name; only the signatures show whether it is true.
 */
function lineOf({ issuer }: Certificate, report: SnpReport, { snp }: EvidenceContext['roots']): string {
  const named = commonName(issuer)?.replace(/^SEV-/, '') ?? 'a nameless issuer';
  if (Object.hasOwn(snp, named)) return named;
  const { family, model } = familyModelStepping(report.cpuid1EaxFms);
  // People read it: the name of an issuer that nobody signed would be a stranger's text.
  return productOf(family, model) ?? 'a product that AMD has not named here';
}

/**
 * Fetches the VCEK for the chip that the report names. Nobody knows yet who signed that, so each comparison
 * that needs no certificate is made first, by the product line that the manifest names. If one fails, AMD is
 * asked nothing.
 */
async function fetchEndorsement(
  checks: Checks,
  evidence: SnpEvidence,
  documentHolds: DocumentHolds,
): Promise<Endorsement | undefined> {
  const { collateral, roots: pinned } = evidence.context;
  const compared = new Checks(POLICY_ROWS);
  const holds = await documentHolds(compared);
  const entry = await judgePolicy(compared, evidence, undefined);
  if (entry === undefined || !holds) {
    const why = `absent, and not asked for, because ${compared.failure()?.id} fails`;
    checks.refuse('snp.vcek.available', why);
    return undefined;
  }
  const { product } = entry;
  const roots = await checks.read('snp.roots', () => readRoots(pinned, product));
  if (roots === undefined) return undefined;
  const vcek = await checks.read('snp.vcek.available', async () => {
    const fetched = await collateral.amdVcek(vcekQuery(evidence.message.report, product));
    return asCollateral('the VCEK', () => readVcek(fetched));
  });
  return vcek && { vcek, roots, origin: 'fetched' };
}

/** The reference value by which all policy checks hold, if there is one. */
function judgePolicy(
  checks: Checks,
  { message, entries, context }: SnpEvidence,
  signer: SnpSigner | undefined,
) {
  const { report, product: stated } = message;
  const { coordinatorHashes } = context;
  return checks.tryEach(entries, (tried, entry) =>
    tried.run(POLICY_ROWS, { report, stated, entry, coordinatorHashes, signer }),
  );
}

/** Judges what runs, by each reference value, then what is revoked. Returns whether everything holds. */
async function whatRuns(checks: Checks, evidence: SnpEvidence, signer: SnpSigner): Promise<boolean> {
  if ((await judgePolicy(checks, evidence, signer)) === undefined) return false;
  const { now, collateral } = evidence.context;
  const { roots } = signer;
  const embedded = evidence.message.certificates.extras.get(SNP_EXTRA_CRL);
  const arkCrl = await checks.read('snp.crl.available', () =>
    obtainArkCrl(embedded, now, () => collateral.amdCrl({ product: roots.product })),
  );
  return arkCrl !== undefined && checks.run(CRL_ROWS, { arkCrl, roots, now });
}
