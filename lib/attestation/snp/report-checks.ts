/** The report: what it says before any certificate is looked at, and who signed it (docs/protocol/attestation.md 3, 6.2, 7, 13.5). */
import { constantTimeEqual } from '../../crypto/digest.ts';
import { verifyEcdsa } from '../../crypto/signature.ts';
import { finding, need, row } from '../check.ts';
import { verified } from '../findings.ts';
import { SNP_SIGNED_BYTES, serializeReport, signingKey } from './report.ts';
import { equalBytes, hex, type SnpRow } from './subject.ts';

const SUPPORTED_VERSIONS: readonly number[] = [2, 3, 4, 5];
const ECDSA_P384_SHA384 = 1;
const SIGNING_KEYS: Readonly<Record<number, string>> = { 0: 'VCEK', 1: 'VLEK', 7: 'none' };

export const REPORT_ROWS: readonly SnpRow[] = [
  row(
    'snp.report_data',
    'Report data',
    'attestation.md 3',
    'the digest over nonce, manifest and both CA certificates',
    ({ report, context }) => equalBytes(report.reportData, context.expectedReportData),
  ),
  row(
    'snp.host_data',
    'Host data',
    'attestation.md 4.3, 19.12 rule 11',
    'the policy hash of a coordinator entry of the manifest',
    ({ report: { hostData }, context: { coordinatorHashes } }) =>
      finding(
        coordinatorHashes.some((hash) => constantTimeEqual(hash, hostData)),
        hex(hostData),
        coordinatorHashes.map(hex).join(' or '),
      ),
  ),
  row(
    'snp.report.version',
    'Report version',
    'attestation.md 6.2',
    'version 2, 3, 4 or 5',
    ({ report: { version } }) => finding(SUPPORTED_VERSIONS.includes(version), `version ${version}`),
  ),
  row(
    'snp.report.signature_algo',
    'Signature algorithm of the report',
    'attestation.md 6.2',
    '1 (ECDSA P-384 with SHA-384)',
    ({ report: { signatureAlgo } }) => finding(signatureAlgo === ECDSA_P384_SHA384, String(signatureAlgo)),
  ),
  row(
    'snp.report.signing_key',
    'Kind of the signing key',
    'attestation.md 6.2, 7',
    'VCEK, and no reserved bit of SIGNER_INFO set',
    ({ report }) => {
      const key = signingKey(report);
      const reserved = report.signerInfo >>> 5 !== 0;
      const found = `${SIGNING_KEYS[key] ?? 'reserved'}${reserved ? ', reserved bits set' : ''}`;
      return finding(key === 0 && !reserved, found);
    },
  ),
  row(
    'snp.report.author_key',
    'No author key',
    'attestation.md 13.5',
    'AUTHOR_KEY_EN is 0',
    ({ report: { signerInfo } }) => finding((signerInfo & 1) === 0, `${signerInfo & 1}`),
  ),
];

export const SIGNATURE_ROWS: readonly SnpRow[] = [
  row(
    'snp.report.signature',
    'Signature on the report',
    'attestation.md 7',
    'ECDSA P-384 with SHA-384 by the VCEK over the rebuilt report',
    async ({ report, vcek }) => {
      const { key, curve } = need(vcek).certificate.publicKey;
      const signature = rawSignature(report.signature);
      if (signature === undefined || curve !== 'P-384') return verified(false);
      const data = serializeReport(report).subarray(0, SNP_SIGNED_BYTES);
      return verified(await verifyEcdsa({ key, hash: 'sha384', encoding: 'raw', data, signature }));
    },
  ),
];

/** R and S, 72 bytes little-endian each, as 48 + 48 bytes big-endian; undefined if they or the rest do not fit. */
function rawSignature(field: Uint8Array): Uint8Array | undefined {
  const [r, s, rest] = [field.subarray(0, 72), field.subarray(72, 144), field.subarray(144)];
  const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
  if (!isZero(r.subarray(48)) || !isZero(s.subarray(48)) || !isZero(rest)) return undefined;
  // Copies first: the slice() of a Buffer is a view, and reversing it would alter the message itself.
  const bigEndian = (number: Uint8Array): Uint8Array => Uint8Array.from(number.subarray(0, 48)).reverse();
  return Uint8Array.from([...bigEndian(r), ...bigEndian(s)]);
}
