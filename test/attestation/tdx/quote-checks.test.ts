import { describe } from 'node:test';
import type { QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { filled, itRefuses } from '../../support/evidence/tdx-cases.ts';

type Certification = QuoteV4['signedData']['certificationData'];
type QeData = Certification['qeReportCertificationData'];
const signed = (change: (data: QuoteV4['signedData']) => object) => ({
  quote: (quote: QuoteV4): QuoteV4 => ({
    ...quote,
    signedData: { ...quote.signedData, ...change(quote.signedData) },
  }),
});
const certification = (change: (data: Certification) => object) =>
  signed(({ certificationData: data }) => ({ certificationData: { ...data, ...change(data) } }));
const qeData = (change: (data: QeData) => object) =>
  certification(({ qeReportCertificationData: data }) => ({
    qeReportCertificationData: { ...data, ...change(data) },
  }));
const chainData = (change: (data: QeData['pckCertificateChainData']) => object) =>
  qeData(({ pckCertificateChainData: data }) => ({ pckCertificateChainData: { ...data, ...change(data) } }));
const bitFlipped = (bytes: Uint8Array): Uint8Array => Uint8Array.from(bytes, (b, i) => (i === 0 ? b ^ 1 : b));

describe('verification of the form and the signatures of a TDX quote', () =>
  itRefuses('quote', {
    'tdx.quote.version': {
      'version 5': { header: (h) => ({ ...h, version: 5 }) },
      'version 3': { header: (h) => ({ ...h, version: 3 }) },
    },
    'tdx.quote.key_type': { 'another key type': { header: (h) => ({ ...h, attestationKeyType: 3 }) } },
    'tdx.quote.tee_type': { 'a quote of an enclave': { header: (h) => ({ ...h, teeType: 0 }) } },
    'tdx.quote.structure': {
      'certification data of type 5': certification(() => ({ certificateDataType: 5 })),
      'a PCK chain of type 6': chainData(() => ({ certificateDataType: 6 })),
      'a wrong size of the PCK chain': chainData(({ size }) => ({ size: size + 1 })),
      'a wrong size of the authentication data': qeData(({ qeAuthData }) => ({
        qeAuthData: { ...qeAuthData, parsedDataSize: 31 },
      })),
      'a wrong size of the certification data': certification(({ size }) => ({ size: size - 1 })),
      'a wrong size of the signed data': { quote: (q) => ({ ...q, signedDataSize: q.signedDataSize + 1 }) },
    },
    'tdx.quote.signature': {
      'a quote signature that was altered': signed(({ signature }) => ({ signature: bitFlipped(signature) })),
      'a body that was altered after signing': {
        quote: (q) => ({ ...q, tdQuoteBody: { ...q.tdQuoteBody, mrOwner: filled(48, 1) } }),
      },
    },
    'tdx.quote.signature, tdx.qe.key_binding': {
      'an attestation key off the curve': signed(() => ({ ecdsaAttestationKey: filled(64, 1) })),
    },
    'tdx.qe.report_signature': {
      'a QE report signature that was altered': qeData(({ qeReportSignature }) => ({
        qeReportSignature: bitFlipped(qeReportSignature),
      })),
      'a QE report that was altered after signing': qeData(({ qeReport }) => ({
        qeReport: { ...qeReport, mrEnclave: filled(32, 1) },
      })),
    },
    'tdx.qe.key_binding': {
      'other authentication data than the enclave bound': qeData(({ qeAuthData }) => ({
        qeAuthData: { ...qeAuthData, data: filled(32, 1) },
      })),
      'a key binding with a tail that is not zero': {
        qeReport: (r) => ({ ...r, reportData: Uint8Array.of(...r.reportData.subarray(0, 63), 1) }),
      },
    },
    'tdx.qe.vendor': {
      'another vendor of the quoting enclave': { header: (h) => ({ ...h, qeVendorId: filled(16, 0x93) }) },
    },
  }));
