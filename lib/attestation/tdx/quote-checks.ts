/**
 * Checks the TDX quote: its answer to our nonce, its form, the certificate chain of its PCK certificate, and
 * its signatures (docs/protocol/attestation.md 3, 10).
 */
import { sha256 } from '#crypto';
import { type PublicKey, publicKeyFromPoint, verifyEcdsa } from '../../crypto/signature.ts';
import { finding, hex, oneOf, type Rows, row } from '../check.ts';
import type { EvidenceContext } from '../collateral.ts';
import { verified } from '../validity.ts';
import { type ChainSubject, noDefects, SGX_EXTENSION_OID, type SgxExtension } from './chain.ts';
import { QE_REPORT_BYTES, QUOTE_TYPES, qeReportBytes, type quoteParts, signedQuoteBytes } from './quote.ts';

const PCK_EXTENSIONS = 6;
const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607';

/** The data that the first checks judge. Later checks also judge data that earlier checks have read. */
export interface QuoteSubject extends EvidenceContext, ReturnType<typeof quoteParts> {}

/** Returns a defect if a type or a length that the quote states differs from the actual one. */
const untrue = (what: string, stated: number, actual: number) =>
  stated !== actual && `${what}: ${stated} stated instead of ${actual}`;

/** Checks the form of the quote. All later checks assume that the quote has this form. */
export const FORM_ROWS: Rows<QuoteSubject> = [
  row('tdx.policy.report_data', 'The evidence answers our nonce and binds the CA certificates', '3', {
    expected: 'the digest over nonce, own manifests and both CA certificates, then 32 zero bytes',
    judge: ({ body, expectedReportData }) => oneOf(body.reportData, [expectedReportData]),
  }),
  row('tdx.quote.version', 'The quote has a version this verifier knows', '9.1, 19.10', {
    expected: `version ${QUOTE_TYPES.version}`,
    judge: ({ header: { version } }) => finding(version === QUOTE_TYPES.version, `version ${version}`),
  }),
  row('tdx.quote.key_type', 'The attestation key is an ECDSA key', '9.2', {
    expected: `type ${QUOTE_TYPES.attestationKey} (ECDSA P-256)`,
    judge: ({ header: { attestationKeyType: type } }) =>
      finding(type === QUOTE_TYPES.attestationKey, `type ${type}`),
  }),
  row('tdx.quote.tee_type', 'The quote is of a trust domain', '9.2', {
    expected: `TEE type 0x${QUOTE_TYPES.tee.toString(16)}`,
    judge: ({ header: { teeType: type } }) =>
      finding(type === QUOTE_TYPES.tee, `TEE type 0x${type.toString(16)}`),
  }),
  row('tdx.quote.structure', 'The quote agrees with itself about its parts', '10', {
    expected: 'certification data of type 6 holding a PCK chain of type 5, and sizes that are true',
    judge: ({ quote: { signedData, signedDataSize }, qe: { qeAuthData, pckCertificateChainData: pck } }) => {
      const { certificateDataType, size } = signedData.certificationData;
      const [authBytes, chainBytes] = [qeAuthData.data.length, pck.pckCertChain.length];
      const certificationBytes = QE_REPORT_BYTES + 64 + 2 + authBytes + 6 + chainBytes;
      const defects = [
        untrue('type of the certification data', certificateDataType, QUOTE_TYPES.certification),
        untrue('type of the PCK data', pck.certificateDataType, QUOTE_TYPES.pck),
        untrue('bytes of the PCK chain', pck.size, chainBytes),
        untrue('bytes of the QE authentication data', qeAuthData.parsedDataSize, authBytes),
        untrue('bytes of the certification data', size, certificationBytes),
        untrue('bytes of the signed data', signedDataSize, 128 + 6 + certificationBytes),
      ];
      return noDefects(defects, 'as expected');
    },
  }),
];

export interface SignerSubject extends QuoteSubject, ChainSubject {
  /** What Intel's extension of the PCK certificate says. */
  readonly sgx: SgxExtension;
}

/** Judges an ECDSA P-256 signature, r || s in 64 bytes, over the SHA-256 of `data`. */
export const signatureFinding = async (key: PublicKey, data: Uint8Array, signature: Uint8Array) =>
  verified(await verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature }));

/** Checks that run after CHAIN_ROWS, so that Intel is known to have issued the PCK certificate. */
export const SIGNATURE_ROWS: Rows<SignerSubject> = [
  row('tdx.pck.extensions', 'The PCK certificate describes its platform', '10', {
    expected: `${PCK_EXTENSIONS} extensions, ${SGX_EXTENSION_OID} complete`,
    judge: ({ chain: [leaf], sgx: { fmspc } }) => {
      const { size } = leaf.extensions;
      return finding(size === PCK_EXTENSIONS, `${size} extensions, platform model ${hex(fmspc)}`);
    },
  }),
  row('tdx.quote.signature', 'The quote is signed by its attestation key', '10 (a)', {
    expected: 'ECDSA P-256 over header and body',
    judge: ({ quote }) => {
      const { signature, ecdsaAttestationKey } = quote.signedData;
      const key = publicKeyFromPoint('P-256', Uint8Array.of(4, ...ecdsaAttestationKey));
      return signatureFinding(key, signedQuoteBytes(quote), signature);
    },
  }),
  row('tdx.qe.report_signature', 'The quoting enclave is vouched for by the PCK', '10 (b)', {
    expected: 'ECDSA P-256 by the PCK over the QE report',
    judge: ({ chain: [leaf], qe: { qeReport, qeReportSignature } }) =>
      signatureFinding(leaf.publicKey, qeReportBytes(qeReport), qeReportSignature),
  }),
  row('tdx.qe.key_binding', 'The attestation key is the quoting enclave’s', '10 (c)', {
    expected: 'QE report data = SHA-256 of key and authentication data, then 32 zero bytes',
    judge: ({ quote, qe: { qeReport, qeAuthData } }) => {
      const expected = new Uint8Array(64);
      expected.set(sha256(quote.signedData.ecdsaAttestationKey, qeAuthData.data));
      return oneOf(qeReport.reportData, [expected]);
    },
  }),
  row('tdx.qe.vendor', 'The quoting enclave is Intel’s', '11', {
    expected: `vendor ${INTEL_QE_VENDOR}`,
    judge: ({ header: { qeVendorId: id } }) => finding(hex(id) === INTEL_QE_VENDOR, `vendor ${hex(id)}`),
  }),
];
