/**
 * TDX evidence: a version 4 quote, signed by the quoting enclave; the PCK vouches for that enclave
 * (docs/protocol/attestation.md 9, 10).
 */
import { createPublicKey, type KeyObject, randomBytes, sign } from 'node:crypto';
import { sha256 } from '#crypto';
import {
  type EnclaveReport,
  QE_REPORT_BYTES,
  QUOTE_TYPES,
  type QuoteV4,
  qeReportBytes,
  signedQuoteBytes,
  type TdQuoteBody,
} from '../../lib/attestation/tdx/quote.ts';
import type { Faults } from '../faults.ts';
import { issueCertificate, toPem } from '../pki/certificate.ts';
import { pckRequest, platformCaRequest, sgxExtension } from '../pki/intel.ts';
import { hex, TD_QE, TDX_GUEST, TDX_PLATFORM } from '../reference-values.ts';
import { encodeQuoteV4 } from './messages.ts';
import type { EvidenceRequest } from './snp.ts';

/** SEPT_VE_DISABLE, and in byte 0 the DEBUG bit. */
const TD_ATTRIBUTES = [0, 0, 0, 0x10, 0, 0, 0, 0];
const DEBUG = 0x01;
const SIGNATURE_BYTES = 64;

const zeros = (length: number): Uint8Array => new Uint8Array(length);
const random = (length: number): Uint8Array => new Uint8Array(randomBytes(length));

/** The raw_attestation_doc: the quote as a message, with the PCK certificate chain. */
export function tdxEvidence({ hardware, reportData, coordinatorHash, faults }: EvidenceRequest): Uint8Array {
  const { keys, ids, roots } = hardware;
  const piid = faults.get('evidence-chip') ? random(16) : ids.piid;
  const pck = issueCertificate(pckRequest(keys, sgxExtension({ ppid: ids.ppid, piid })));
  const chain = [pck, issueCertificate(platformCaRequest(keys)), roots.intelRoot];

  const tdQuoteBody = launchedGuest(reportData, coordinatorHash, faults);
  const attestationKey = publicPoint(keys.quotingEnclave);
  const authData = random(32);
  const qeReport = quotingEnclaveReport(attestationKey, authData);
  const signers = { attestation: keys.quotingEnclave, pck: keys.pck };
  const pem = Buffer.from(chain.map((der) => toPem(der)).join(''));
  const quote = signedQuote({ header: HEADER, tdQuoteBody, qeReport, authData, chain: pem }, signers);
  const { signature } = quote.signedData;
  if (faults.get('evidence-signature')) signature[0] = (signature[0] as number) ^ 1;
  return encodeQuoteV4(quote);
}

const HEADER: QuoteV4['header'] = {
  version: QUOTE_TYPES.version,
  attestationKeyType: QUOTE_TYPES.attestationKey,
  teeType: QUOTE_TYPES.tee,
  ...{ qeSvn: zeros(2), pceSvn: zeros(2), qeVendorId: TD_QE.vendorId, userData: zeros(20) },
};

/** The parts of a quote before it is signed. `chain`: PEM of the PCK certificate and its issuers. */
export interface UnsignedQuote {
  readonly header: QuoteV4['header'];
  readonly tdQuoteBody: TdQuoteBody;
  readonly qeReport: EnclaveReport;
  readonly authData: Uint8Array;
  readonly chain: Buffer;
}

/** The public coordinates x || y of a private key, 32 bytes each. */
export function publicPoint(key: KeyObject): Uint8Array {
  const { x = '', y = '' } = createPublicKey(key).export({ format: 'jwk' });
  return new Uint8Array(Buffer.concat([x, y].map((half) => Buffer.from(half, 'base64url'))));
}

/** The quote with both signatures: over the guest's report, and over the quoting enclave's report. */
export function signedQuote(
  { header, tdQuoteBody, qeReport, authData, chain }: UnsignedQuote,
  signers: { readonly attestation: KeyObject; readonly pck: KeyObject },
): QuoteV4 {
  const size = QE_REPORT_BYTES + SIGNATURE_BYTES + 2 + authData.length + 6 + chain.length;
  const pck = { certificateDataType: QUOTE_TYPES.pck, size: chain.length, pckCertChain: chain };
  return {
    header,
    tdQuoteBody,
    signedDataSize: 2 * SIGNATURE_BYTES + 6 + size,
    signedData: {
      signature: signRaw(signedQuoteBytes({ header, tdQuoteBody }), signers.attestation),
      ecdsaAttestationKey: publicPoint(signers.attestation),
      certificationData: {
        certificateDataType: QUOTE_TYPES.certification,
        size,
        qeReportCertificationData: {
          qeReport,
          qeReportSignature: signRaw(qeReportBytes(qeReport), signers.pck),
          qeAuthData: { parsedDataSize: authData.length, data: authData },
          pckCertificateChainData: pck,
        },
      },
    },
    extraBytes: zeros(0),
  };
}

/** The report that the TDX module would give about our guest, launched by Contrast. */
function launchedGuest(reportData: Uint8Array, coordinatorHash: Uint8Array, faults: Faults): TdQuoteBody {
  const tdAttributes = Uint8Array.from(TD_ATTRIBUTES);
  if (faults.get('evidence-debug')) tdAttributes[0] = DEBUG;
  const { teeTcbSvn, outdatedTeeTcbSvn } = TDX_PLATFORM;
  const [mrSeam, xfam, mrTd] = [TDX_GUEST.mrSeam, TDX_GUEST.xfam, TDX_GUEST.mrTd].map(hex) as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
  ];
  return {
    teeTcbSvn: Uint8Array.from(faults.get('evidence-low-tcb') ? outdatedTeeTcbSvn : teeTcbSvn),
    ...{ mrSeam, mrSignerSeam: zeros(48), seamAttributes: zeros(8), tdAttributes, xfam, mrTd },
    // Padded with 16 zero bytes (docs/protocol/attestation.md 4.3).
    mrConfigId: new Uint8Array(Buffer.concat([coordinatorHash], 48)),
    ...{ mrOwner: zeros(48), mrOwnerConfig: zeros(48), rtmrs: TDX_GUEST.rtmrs.map(hex), reportData },
  };
}

/** The quoting enclave's report binds the attestation key (docs/protocol/attestation.md 10, rule c). */
function quotingEnclaveReport(attestationKey: Uint8Array, authData: Uint8Array): EnclaveReport {
  const { attributes, mrSigner, isvProdId, isvSvn } = TD_QE;
  return {
    ...{ cpuSvn: TDX_PLATFORM.cpuSvn, miscSelect: 0, reserved1: zeros(28), attributes },
    ...{ mrEnclave: random(32), reserved2: zeros(32), mrSigner, reserved3: zeros(96) },
    ...{ isvProdId, isvSvn, reserved4: zeros(60) },
    reportData: new Uint8Array(Buffer.concat([sha256(attestationKey, authData)], 64)),
  };
}

/** ECDSA P-256 over SHA-256, r || s. */
export const signRaw = (data: Uint8Array, key: KeyObject): Uint8Array =>
  new Uint8Array(sign('sha256', data, { key, dsaEncoding: 'ieee-p1363' }));
