import { describe } from 'node:test';
import type { QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { filled, itRefuses, type Row } from '../../support/evidence/tdx-cases.ts';

type Certification = QuoteV4['signedData']['certificationData'];
const certification =
  (change: (data: Certification) => Certification) =>
  (quote: QuoteV4): QuoteV4 => ({
    ...quote,
    signedData: { ...quote.signedData, certificationData: change(quote.signedData.certificationData) },
  });
const qeData = (change: (data: Certification['qeReportCertificationData']) => object) =>
  certification((data) => ({
    ...data,
    qeReportCertificationData: {
      ...data.qeReportCertificationData,
      ...change(data.qeReportCertificationData),
    },
  }));
const bitFlipped = (bytes: Uint8Array): Uint8Array => Uint8Array.from(bytes, (b, i) => (i === 0 ? b ^ 1 : b));

const FORM: readonly Row[] = [
  ['version 5', { header: (h) => ({ ...h, version: 5 }) }, ['tdx.quote.version']],
  ['version 3', { header: (h) => ({ ...h, version: 3 }) }, ['tdx.quote.version']],
  ['another key type', { header: (h) => ({ ...h, attestationKeyType: 3 }) }, ['tdx.quote.key_type']],
  ['a quote of an enclave', { header: (h) => ({ ...h, teeType: 0 }) }, ['tdx.quote.tee_type']],
  [
    'certification data of type 5',
    { quote: certification((data) => ({ ...data, certificateDataType: 5 })) },
    ['tdx.quote.structure'],
  ],
  [
    'a PCK chain of type 6',
    {
      quote: qeData(({ pckCertificateChainData: chain }) => ({
        pckCertificateChainData: { ...chain, certificateDataType: 6 },
      })),
    },
    ['tdx.quote.structure'],
  ],
  [
    'a wrong size of the PCK chain',
    {
      quote: qeData(({ pckCertificateChainData: chain }) => ({
        pckCertificateChainData: { ...chain, size: chain.size + 1 },
      })),
    },
    ['tdx.quote.structure'],
  ],
  [
    'a wrong size of the authentication data',
    { quote: qeData(({ qeAuthData }) => ({ qeAuthData: { ...qeAuthData, parsedDataSize: 31 } })) },
    ['tdx.quote.structure'],
  ],
  [
    'a wrong size of the certification data',
    { quote: certification((data) => ({ ...data, size: data.size - 1 })) },
    ['tdx.quote.structure'],
  ],
  [
    'a wrong size of the signed data',
    { quote: (quote) => ({ ...quote, signedDataSize: quote.signedDataSize + 1 }) },
    ['tdx.quote.structure'],
  ],
];

const SIGNATURES: readonly Row[] = [
  [
    'a quote signature that was altered',
    {
      quote: (q) => ({
        ...q,
        signedData: { ...q.signedData, signature: bitFlipped(q.signedData.signature) },
      }),
    },
    ['tdx.quote.signature'],
  ],
  [
    'a body that was altered after signing',
    { quote: (q) => ({ ...q, tdQuoteBody: { ...q.tdQuoteBody, mrOwner: filled(48, 1) } }) },
    ['tdx.quote.signature'],
  ],
  [
    'an attestation key off the curve',
    { quote: (q) => ({ ...q, signedData: { ...q.signedData, ecdsaAttestationKey: filled(64, 1) } }) },
    ['tdx.quote.signature', 'tdx.qe.key_binding'],
  ],
  [
    'a QE report signature that was altered',
    { quote: qeData(({ qeReportSignature }) => ({ qeReportSignature: bitFlipped(qeReportSignature) })) },
    ['tdx.qe.report_signature'],
  ],
  [
    'a QE report that was altered after signing',
    { quote: qeData(({ qeReport }) => ({ qeReport: { ...qeReport, mrEnclave: filled(32, 1) } })) },
    ['tdx.qe.report_signature'],
  ],
  [
    'other authentication data than the enclave bound',
    { quote: qeData(({ qeAuthData }) => ({ qeAuthData: { ...qeAuthData, data: filled(32, 1) } })) },
    ['tdx.qe.key_binding'],
  ],
  [
    'a key binding with a tail that is not zero',
    {
      qeReport: (r) => ({
        ...r,
        reportData: Uint8Array.of(...r.reportData.subarray(0, 63), 1),
      }),
    },
    ['tdx.qe.key_binding'],
  ],
  [
    'another vendor of the quoting enclave',
    { header: (h) => ({ ...h, qeVendorId: filled(16, 0x93) }) },
    ['tdx.qe.vendor'],
  ],
];

describe('verification of the form and the signatures of a TDX quote', () =>
  itRefuses('quote', [...FORM, ...SIGNATURES]));
