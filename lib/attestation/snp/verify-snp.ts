/**
 * Verifies SEV-SNP evidence: the signer of the report, the software that the report describes, and the
 * revocation of certificates (docs/protocol/attestation.md 7, 8).
 */
import { PrivatemodeError } from '../../errors.ts';
import { Checks, firstFailure } from '../check.ts';
import { asCollateral, type EvidenceContext } from '../collateral.ts';
import { MANIFEST_ROWS } from '../document-checks.ts';
import type { SnpReferenceValues } from '../manifest.ts';
import type { TrustRoots } from '../roots/production.ts';
import { type Certificate, commonName } from '../x509.ts';
import { CRL_ROWS, obtainArkCrl, readRoots, readVcek, readVcekExtensions, vcekQuery } from './endorsement.ts';
import { productOf } from './packed-fields.ts';
import { POLICY_ROWS, type PolicySubject } from './policy-checks.ts';
import type { SnpAttestation, SnpReport } from './report.ts';
import { REPORT_ROWS, SIGNER_ROWS } from './signer-checks.ts';

/** `signer` has the checks of the report's signer. `later` has the checks after those of the document. */
export const SNP_ROWS = { signer: [...REPORT_ROWS, ...SIGNER_ROWS], later: [...POLICY_ROWS, ...CRL_ROWS] };

/** Returns whether all checks hold. Calls `documentHolds` between signer checks and policy checks. */
export async function verifySnp(
  checks: Checks,
  message: SnpAttestation,
  entries: readonly SnpReferenceValues[],
  context: EvidenceContext,
  documentHolds: (checks: Checks) => Promise<boolean>,
): Promise<boolean> {
  const { report, vcek: embedded, arkCrl: embeddedCrl, machineStepping } = message;
  const { expectedReportData: expectedData, coordinatorHashes, roots: pinned, collateral, now } = context;
  /** Finds the reference value for which all policy checks hold. */
  const findEntry = (made: Checks, signer: PolicySubject['signer']) =>
    made.tryEach(entries, (tried, entry) =>
      tried.run(POLICY_ROWS, { report, machineStepping, entry, coordinatorHashes, signer }),
    );
  if (!(await checks.run(REPORT_ROWS, { report, expectedData }))) return false;
  const vcek = await checks.read('snp.vcek.available', async () => {
    if (embedded.length > 0) return readVcek(embedded);
    // The signer of the report is not known yet, so all comparisons that need no certificate come first, and
    // use the product line of the manifest. If a comparison fails, no VCEK is requested from AMD.
    const compared = new Checks(POLICY_ROWS);
    const holds = await documentHolds(compared);
    const entry = await findEntry(compared, undefined);
    if (entry === undefined || !holds) {
      const failed = firstFailure(compared.of([...MANIFEST_ROWS, ...POLICY_ROWS]));
      const why = `absent, and not asked for, because ${failed?.id} fails`;
      throw new PrivatemodeError('attestation_failed', why);
    }
    readRoots(pinned, entry.product); // without pinned roots, a VCEK from AMD could not be verified
    const fetched = await collateral.amdVcek(vcekQuery(report, entry.product));
    return asCollateral('the VCEK', () => readVcek(fetched));
  });
  const roots =
    vcek && (await checks.read('snp.roots', () => readRoots(pinned, lineOf(vcek, report, pinned))));
  const extensions = roots && (await checks.read('snp.vcek.extensions', () => readVcekExtensions(vcek)));
  if (vcek === undefined || roots === undefined || extensions === undefined) return false;
  const origin = embedded.length > 0 ? 'from the document' : 'fetched';
  if (!(await checks.run(SIGNER_ROWS, { report, roots, vcek, origin, extensions, now }))) return false;
  if (!(await documentHolds(checks))) return false;
  const { product } = roots;
  if ((await findEntry(checks, { product, productName: extensions.productName })) === undefined) return false;
  const arkCrl = await checks.read('snp.crl.available', () =>
    obtainArkCrl(embeddedCrl, now, () => collateral.amdCrl({ product })),
  );
  return arkCrl !== undefined && checks.run(CRL_ROWS, { arkCrl, roots, now });
}

/**
 * Returns the product line to whose roots the certificate chain must lead. The line is taken from the issuer
 * name of the VCEK if its roots are pinned. Only signatures prove the issuer name, which the sender chose.
 */
function lineOf({ issuer }: Certificate, report: SnpReport, { snp }: TrustRoots): string {
  const named = commonName(issuer)?.replace(/^SEV-/, '') ?? 'a nameless issuer';
  if (Object.hasOwn(snp, named)) return named;
  // The result is shown to people, so it must not contain an issuer name that a stranger chose.
  return productOf(report.cpuid1EaxFms) ?? 'a product that AMD has not named here';
}
