/**
 * Checks the signer of the report: the report answers our nonce, a VCEK signed the report, and AMD issued the
 * VCEK for the chip and TCB under the pinned ARK and ASK (docs/protocol/attestation.md 3, 6.2, 7, 8).
 */
import { verifyEcdsa } from '../../crypto/signature.ts';
import { finding, notApplicable, oneOf, type Rows, row } from '../check.ts';
import { inForce, issuedBy, verified } from '../validity.ts';
import * as x509 from '../x509.ts';
import type { Roots, readVcekExtensions } from './endorsement.ts';
import { tcbAtMost, tcbParts, tcbText, tcbValue } from './packed-fields.ts';
import { SNP_SIGNED_BYTES, type SnpReport, serializeReport } from './report.ts';

/** SIGNING_KEY is bits 4:2 of SIGNER_INFO; bit 0 is AUTHOR_KEY_EN, bit 1 MASK_CHIP_KEY, others reserved. */
const SIGNING_KEYS: Readonly<Record<number, string>> = { 0: 'VCEK', 1: 'VLEK', 7: 'none' };

/** Checks the form of the report. All other checks assume that the report has this form. */
export const REPORT_ROWS: Rows<{ report: SnpReport; expectedData: Uint8Array }> = [
  row('snp.report_data', 'Report data', '3', {
    expected: 'the digest over nonce, own manifests and both CA certificates',
    judge: ({ report: { reportData }, expectedData }) => oneOf(reportData, [expectedData]),
  }),
  row('snp.report.version', 'Report version', '6.2', {
    expected: 'version 2, 3, 4 or 5',
    // Versions 2 to 5 have the same layout of the signed bytes.
    judge: ({ report: { version } }) => {
      const judged = finding(version >= 2 && version <= 5, `version ${version}`);
      return version > 5 ? { ...judged, detail: { newer: true } } : judged;
    },
  }),
  row('snp.report.signature_algo', 'Signature algorithm of the report', '6.2', {
    expected: '1 (ECDSA P-384 with SHA-384)',
    judge: ({ report: { signatureAlgo } }) => finding(signatureAlgo === 1, `${signatureAlgo}`),
  }),
  row('snp.report.signing_key', 'Kind of the signing key', '6.2, 7', {
    expected: 'VCEK, and no reserved bit of SIGNER_INFO set',
    judge: ({ report: { signerInfo } }) => {
      const key = (signerInfo >>> 2) & 7;
      const reserved = signerInfo >>> 5 !== 0;
      const found = `${SIGNING_KEYS[key] ?? 'reserved'}${reserved ? ', reserved bits set' : ''}`;
      return finding(key === 0 && !reserved, found);
    },
  }),
];

const AMD_NAME = ['C=US', 'L=Santa Clara', 'ST=CA', 'O=Advanced Micro Devices', 'OU=Engineering'];

/** Whether the name has exactly AMD's attributes, in any order, and the common name `name`. */
function isAmdName({ attributes }: x509.Certificate['subject'], name: string): boolean {
  const expected = [...AMD_NAME, `CN=${name}`];
  const found = attributes.map(({ type, value }) => `${type}=${value}`);
  return found.length === expected.length && expected.every((attribute) => found.includes(attribute));
}

/** Whether a pinned CA certificate has AMD's name, version, signature algorithm, key size and CA flag. */
function isAmdCa(certificate: x509.Certificate, name: string): boolean {
  const { version, signatureAlgorithm, publicKey, subject, extensions } = certificate;
  const { basicConstraints, keyUsage } = x509.EXTENSION_OID;
  return (
    isAmdName(subject, name) &&
    version === 3 &&
    signatureAlgorithm.name === 'rsassa-pss' &&
    publicKey.rsa?.modulusBits === 4096 &&
    publicKey.rsa.exponent === 65537n &&
    x509.maySignCertificates(certificate) &&
    x509.unhandledCritical(extensions, basicConstraints, keyUsage) === undefined
  );
}

export interface VcekSubject {
  readonly report: SnpReport;
  readonly roots: Roots;
  readonly vcek: x509.Certificate;
  /** The source of the VCEK, as text for a person. */
  readonly origin: string;
  readonly extensions: ReturnType<typeof readVcekExtensions>;
  readonly now: Date;
}

export const SIGNER_ROWS: Rows<VcekSubject> = [
  row('snp.vcek.available', 'Endorsement key certificate', '7', {
    expected: 'a VCEK certificate in the document, or one that can be fetched for this chip and TCB',
    judge: ({ origin }) => finding(true, origin),
  }),
  row('snp.vcek.form', 'Form of the VCEK certificate', '7 no. 1', {
    expected: 'X.509 version 3, RSASSA-PSS with SHA-384 and a salt of 48 bytes, a P-384 key',
    judge: ({ vcek: { version, signatureAlgorithm, publicKey } }) => {
      const holds = version === 3 && signatureAlgorithm.name === 'rsassa-pss' && publicKey.curve === 'P-384';
      const key = publicKey.curve ?? publicKey.algorithm;
      return finding(holds, `version ${version}, ${signatureAlgorithm.name}, ${key}`);
    },
  }),
  row('snp.vcek.names', 'Names in the VCEK certificate', '7 no. 2', {
    expected: "AMD's names: CN=SEV-VCEK, issued by CN=SEV-Milan or SEV-Genoa as the pinned roots say",
    judge: ({ vcek: { subject, issuer }, roots: { product } }) => {
      const holds = isAmdName(subject, 'SEV-VCEK') && isAmdName(issuer, `SEV-${product}`);
      return finding(holds, `${x509.nameText(subject)} issued by ${x509.nameText(issuer)}`);
    },
  }),
  row('snp.vcek.extensions', 'Extensions of the VCEK certificate', '7 no. 3', {
    expected: "all of AMD's extensions, once each, and no others",
    judge: ({ extensions }) => finding(true, `product ${extensions.productName}`),
  }),
  row('snp.roots', 'Trust roots of the product line', '7 no. 4', {
    expected: 'a pinned, self-signed ARK and an ASK that it signed: CAs, RSA 4096, RSASSA-PSS SHA-384',
    judge: async ({ roots: { product, ark, ask } }) => {
      const areCas = isAmdCa(ark, `ARK-${product}`) && isAmdCa(ask, `SEV-${product}`);
      const links = [await issuedBy(ark, ark), await issuedBy(ask, ark)];
      const holds = areCas && links.every(({ outcome }) => outcome === 'pass');
      const names = `${x509.commonName(ark.subject)}, ${x509.commonName(ask.subject)}`;
      return finding(holds, holds ? names : `${names}, of another form or chain`);
    },
  }),
  row('snp.chain.signature', 'Signature on the VCEK certificate', '7 no. 4', {
    expected: 'issued and signed by the pinned ASK',
    judge: ({ roots, vcek }) => issuedBy(vcek, roots.ask),
  }),
  row('snp.chain.validity', 'Validity of the certificates', '7 no. 4', {
    expected: 'ARK, ASK and VCEK are valid at this time',
    judge: ({ roots: { ark, ask }, vcek, now }) => inForce(now, vcek, ask, ark),
  }),
  row('snp.report.signature', 'Signature on the report', '7', {
    expected: 'ECDSA P-384 with SHA-384 by the VCEK over the rebuilt report',
    judge: async ({ report, vcek: { publicKey: key } }) => {
      const signature = rawSignature(report.signature);
      if (signature === undefined || key.curve !== 'P-384') return verified(false);
      const data = serializeReport(report).subarray(0, SNP_SIGNED_BYTES);
      return verified(await verifyEcdsa({ key, hash: 'sha384', encoding: 'raw', data, signature }));
    },
  }),
  row('snp.tcb.vcek', 'TCB of the VCEK', '8', {
    expected: 'equal to REPORTED_TCB in all eight parts',
    judge: ({ report: { reportedTcb }, extensions: { tcb } }) =>
      finding(tcbValue(tcb) === reportedTcb, tcbText(tcb), tcbText(tcbParts(reportedTcb))),
  }),
  row('snp.tcb.vcek_current', 'TCB of the VCEK and the current TCB', '8', {
    expected: 'every part at most its counterpart in CURRENT_TCB',
    judge: ({ report, extensions: { tcb } }) => {
      const current = tcbParts(report.currentTcb);
      return finding(tcbAtMost(tcb, current), tcbText(tcb), `at most ${tcbText(current)}`);
    },
  }),
  row('snp.chip_id.vcek', 'Chip of the VCEK', '8', {
    expected: 'the chip that the VCEK names; not comparable where the report masks it',
    conditional: true,
    judge: ({ report: { chipId }, extensions: { hwid } }) =>
      chipId.every((byte) => byte === 0) ? notApplicable('CHIP_ID is masked') : oneOf(chipId, [hwid]),
  }),
];

/**
 * Converts a signature from two 72-byte little-endian integers R and S to two 48-byte big-endian integers.
 * Returns undefined if a byte beyond the low 48 bytes of R and S is not zero.
 */
function rawSignature(field: Uint8Array): Uint8Array | undefined {
  const others = [...field.subarray(48, 72), ...field.subarray(120)];
  if (others.some((byte) => byte !== 0)) return undefined;
  // `reverse` changes its array. The message must stay unchanged, so `reverse` gets a copy.
  const bigEndian = (at: number): Uint8Array => Uint8Array.from(field.subarray(at, at + 48)).reverse();
  return Uint8Array.of(...bigEndian(0), ...bigEndian(72));
}
