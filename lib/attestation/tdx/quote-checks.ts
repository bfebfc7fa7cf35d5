/** The checks of the quote: its form, its signatures, and the link from attestation key to quoting enclave (docs/protocol/attestation.md 10). */
import { constantTimeEqual, sha256 } from '../../crypto/digest.ts';
import { publicKeyFromPoint } from '../../crypto/signature.ts';
import { finding, valueIn } from '../check.ts';
import {
  ATTESTATION_KEY_TYPE,
  CERTIFICATE_DATA_TYPE,
  QUOTE_VERSION,
  qeReportBytes,
  signedQuoteBytes,
  statedSizes,
  TEE_TYPE_TDX,
} from './quote.ts';
import { hex, noDefects, signatureFinding, type TdxRow } from './subject.ts';

const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607';

/** Run first: a quote of another form means nothing here. */
export const FORM_ROWS: readonly TdxRow[] = [
  {
    id: 'tdx.quote.version',
    source: 'attestation.md 9.1, 19.10',
    title: 'The quote has a version this verifier knows',
    expected: `version ${QUOTE_VERSION}`,
    judge: ({ quote: { header } }) => finding(header.version === QUOTE_VERSION, `version ${header.version}`),
  },
  {
    id: 'tdx.quote.key_type',
    source: 'attestation.md 9.2',
    title: 'The attestation key is an ECDSA key',
    expected: `type ${ATTESTATION_KEY_TYPE} (ECDSA P-256)`,
    judge: ({ quote: { header } }) =>
      finding(header.attestationKeyType === ATTESTATION_KEY_TYPE, `type ${header.attestationKeyType}`),
  },
  {
    id: 'tdx.quote.tee_type',
    source: 'attestation.md 9.2',
    title: 'The quote is of a trust domain',
    expected: `TEE type 0x${TEE_TYPE_TDX.toString(16)}`,
    judge: ({ quote: { header } }) =>
      finding(header.teeType === TEE_TYPE_TDX, `TEE type 0x${header.teeType.toString(16)}`),
  },
  {
    id: 'tdx.quote.structure',
    source: 'attestation.md 10',
    title: 'The quote agrees with itself about its parts',
    expected: 'certification data of type 6 holding a PCK chain of type 5, and sizes that are true',
    judge: ({ quote }) => {
      const { certificateDataType, qeReportCertificationData } = quote.signedData.certificationData;
      const chainType = qeReportCertificationData.pckCertificateChainData.certificateDataType;
      const defects = statedSizes(quote)
        .filter(({ stated, actual }) => stated !== actual)
        .map(({ name, stated, actual }) => `${name}: ${stated} bytes stated, ${actual} there`);
      if (certificateDataType !== CERTIFICATE_DATA_TYPE.qeReport) {
        defects.push(`certification data of type ${certificateDataType}`);
      }
      if (chainType !== CERTIFICATE_DATA_TYPE.pckChain) defects.push(`PCK data of type ${chainType}`);
      return noDefects(defects, 'as expected');
    },
  },
];

/** Run after the checks of the PCK chain, which one of the keys comes from. */
export const SIGNATURE_ROWS: readonly TdxRow[] = [
  {
    id: 'tdx.quote.signature',
    source: 'attestation.md 10 (a)',
    title: 'The quote is signed by its attestation key',
    expected: 'ECDSA P-256 over header and body',
    judge: ({ quote }) => {
      const { signature, ecdsaAttestationKey } = quote.signedData;
      const key = publicKeyFromPoint('P-256', ecdsaAttestationKey);
      return signatureFinding(key, signedQuoteBytes(quote), signature);
    },
  },
  {
    id: 'tdx.qe.report_signature',
    source: 'attestation.md 10 (b)',
    title: 'The quoting enclave is vouched for by the PCK',
    expected: 'ECDSA P-256 by the PCK over the QE report',
    judge: ({ quote, chain }) => {
      const leaf = valueIn(chain)?.leaf;
      if (leaf === undefined) return undefined;
      const { qeReport, qeReportSignature } = quote.signedData.certificationData.qeReportCertificationData;
      return signatureFinding(leaf.publicKey.key, qeReportBytes(qeReport), qeReportSignature);
    },
  },
  {
    id: 'tdx.qe.key_binding',
    source: 'attestation.md 10 (c)',
    title: 'The attestation key is the quoting enclave’s',
    expected: 'QE report data = SHA-256 of key and authentication data, then 32 zero bytes',
    judge: ({ quote: { signedData } }) => {
      const { qeReport, qeAuthData } = signedData.certificationData.qeReportCertificationData;
      const expected = new Uint8Array(64);
      expected.set(sha256(signedData.ecdsaAttestationKey, qeAuthData.data));
      return finding(
        constantTimeEqual(qeReport.reportData, expected),
        hex(qeReport.reportData),
        hex(expected),
      );
    },
  },
  {
    id: 'tdx.qe.vendor',
    source: 'attestation.md 11',
    title: 'The quoting enclave is Intel’s',
    expected: `vendor ${INTEL_QE_VENDOR}`,
    judge: ({ quote: { header } }) =>
      finding(hex(header.qeVendorId) === INTEL_QE_VENDOR, `vendor ${hex(header.qeVendorId)}`),
  },
];
