/** SEV-SNP evidence against one reference value (attestation.md 7, 8, 19). */
import { verifyEcdsa } from '../../crypto/signature.ts';
import { type Attempt, attempt, attemptAsync, valueIn } from '../attempt.ts';
import { type Check, type CheckRow, finding, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceContext, type EvidenceFormat } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import type { Certificate } from '../x509/certificate.ts';
import { CHAIN_ROWS, readRoots } from './chain.ts';
import { FIRMWARE_ROWS } from './firmware.ts';
import { matchMeasurement } from './measurement.ts';
import { decodeSnpAttestation, SNP_EXTRA_CRL, type SnpAttestation } from './message.ts';
import { POLICY_ROWS } from './policy.ts';
import { PRODUCT_ROWS } from './product.ts';
import { SNP_SIGNED_BYTES, type SnpReport, serializeReport } from './report.ts';
import { hex, isSignedByVcek, REPORT_ROWS } from './report-checks.ts';
import { obtainCrl, REVOCATION_ROWS } from './revocation.ts';
import { tcbParts } from './tcb.ts';
import { readVcek, readVcekExtensions, VCEK_ROWS } from './vcek.ts';

const SIGNATURE_ROWS: readonly CheckRow<{
  readonly report: SnpReport;
  readonly vcek: Attempt<Certificate>;
}>[] = [
  {
    id: 'snp.report.signature',
    title: 'Signature on the report',
    source: 'attestation.md 7',
    expected: 'ECDSA P-384 with SHA-384 by the VCEK over the rebuilt report',
    judge: ({ report, vcek }) => {
      const certificate = valueIn(vcek);
      if (certificate === undefined) return undefined;
      const signature = rawSignature(report.signature);
      const valid =
        signature !== undefined &&
        certificate.publicKey.curve === 'P-384' &&
        verifyEcdsa({
          key: certificate.publicKey.key,
          hash: 'sha384',
          encoding: 'raw',
          data: serializeReport(report).subarray(0, SNP_SIGNED_BYTES),
          signature,
        });
      return finding(valid, valid ? 'valid' : 'the signature does not verify');
    },
  },
];

/** R and S, 72 bytes little-endian each, as 48 + 48 bytes big-endian; undefined if they or the rest do not fit. */
function rawSignature(field: Uint8Array): Uint8Array | undefined {
  const [r, s, rest] = [field.subarray(0, 72), field.subarray(72, 144), field.subarray(144)];
  const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
  if (!isZero(r.subarray(48)) || !isZero(s.subarray(48)) || !isZero(rest)) return undefined;
  // Copied first: the slice() of a Buffer is a view, and reversing it would alter the message itself.
  const bigEndian = (number: Uint8Array): Uint8Array => Uint8Array.from(number.subarray(0, 48)).reverse();
  return Uint8Array.from([...bigEndian(r), ...bigEndian(s)]);
}

/** The VCEK that came with the evidence, else one fetched for the report's chip and TCB. */
async function obtainVcek(
  { report, certificates }: SnpAttestation,
  line: 'Milan' | 'Genoa',
  context: EvidenceContext,
  mayFetch: boolean,
): Promise<{ readonly vcek: Attempt<Certificate>; readonly vcekOrigin: string }> {
  const embedded = certificates.vcek;
  if (!isSignedByVcek(report)) return { vcek: undefined, vcekOrigin: '' };
  if (embedded !== undefined) {
    return { vcek: attempt(() => readVcek(embedded)), vcekOrigin: 'from the document' };
  }
  if (!mayFetch) return { vcek: undefined, vcekOrigin: '' };
  const { bootloader, tee, snp, microcode } = tcbParts(report.reportedTcb);
  const query = { product: line, chipId: hex(report.chipId), bootloader, tee, snp, microcode };
  const vcek = await attemptAsync(async () => readVcek(await context.collateral.amdVcek(query)));
  return { vcek, vcekOrigin: 'fetched' };
}

/**
 * Nothing is fetched once a check has failed: forged evidence must not make this program call anybody. Heavy steps
 * are separated by macrotasks.
 */
async function verifySnp(
  message: SnpAttestation,
  entry: SnpReferenceValues,
  context: EvidenceContext,
): Promise<readonly Check[]> {
  const { report, product, certificates } = message;
  const { collateral, now } = context;
  const line = entry.product;
  const checks = runChecks(REPORT_ROWS, { report, entry, context });
  const mayFetch = (): boolean => firstFailure(checks) === undefined;

  const { vcek, vcekOrigin } = await obtainVcek(message, line, context, mayFetch());
  const certificate = valueIn(vcek);
  const vcekExtensions =
    certificate === undefined ? undefined : attempt(() => readVcekExtensions(certificate));
  const roots = attempt(() => readRoots(context.roots, line));
  checks.push(...runChecks(VCEK_ROWS, { line, vcekOrigin, vcek, vcekExtensions }));
  checks.push(...runChecks(PRODUCT_ROWS, { report, product, entry, vcekExtensions }));
  await breathe();
  checks.push(...runChecks(CHAIN_ROWS, { line, now, roots, vcek }));

  const fetchCrl = mayFetch() ? () => collateral.amdCrl({ product: line }) : undefined;
  const arkCrl = await obtainCrl(certificates.extras.get(SNP_EXTRA_CRL), now, fetchCrl);
  checks.push(...runChecks(REVOCATION_ROWS, { now, roots, arkCrl }));
  await breathe();
  checks.push(...runChecks(SIGNATURE_ROWS, { report, vcek }));
  await breathe();
  const vcpus = matchMeasurement(entry, report.measurement);
  await breathe();
  checks.push(...runChecks(POLICY_ROWS, { report, entry, vcpus }));
  checks.push(...runChecks(FIRMWARE_ROWS, { report, entry, vcekExtensions }));
  return checks;
}

export const SNP: EvidenceFormat<SnpAttestation, SnpReferenceValues> = {
  decode: decodeSnpAttestation,
  rows: [
    ...REPORT_ROWS,
    ...VCEK_ROWS,
    ...PRODUCT_ROWS,
    ...CHAIN_ROWS,
    ...REVOCATION_ROWS,
    ...SIGNATURE_ROWS,
    ...POLICY_ROWS,
    ...FIRMWARE_ROWS,
  ],
  verify: verifySnp,
};
