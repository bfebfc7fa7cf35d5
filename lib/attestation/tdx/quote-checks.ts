/**
 * Checks who signed the quote: that it answers our nonce, its form, the chain of its PCK certificate, and its
 * signatures (docs/protocol/attestation.md 3, 10).
 */
import { sha256 } from '#crypto';
import { type PublicKey, publicKeyFromPoint, verifyEcdsa } from '../../crypto/signature.ts';
import { type Finding, finding, hex, oneOf, rowsFrom } from '../check.ts';
import { inForce } from '../validity.ts';
import { type Certificate, nameText } from '../x509.ts';
import {
  anchorDefects,
  INTEL_NAMES,
  linkDefects,
  noDefects,
  profileDefects,
  type readPckChain,
} from './chain.ts';
import {
  ATTESTATION_KEY_TYPE,
  CERTIFICATE_DATA_TYPE,
  QUOTE_VERSION,
  type QuoteV4,
  qeReportBytes,
  signedQuoteBytes,
  statedSizes,
  TEE_TYPE_TDX,
} from './quote.ts';
import { SGX_EXTENSION_OID, type SgxExtension } from './sgx-extension.ts';

const PCK_EXTENSIONS = 6;
const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607';

export interface QuoteSubject {
  readonly quote: QuoteV4;
  readonly expectedReportData: Uint8Array;
}

/** The part of a quote in which the quoting enclave and its certificates vouch for the attestation key. */
const qeOf = ({ signedData }: QuoteV4) => signedData.certificationData.qeReportCertificationData;

/** Judges an ECDSA P-256 signature, r || s of 64 bytes, over the SHA-256 of `data`. */
export async function signatureFinding(
  key: PublicKey,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<Finding> {
  const holds = await verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature });
  return finding(holds, holds ? 'valid' : 'not valid');
}

/** The other rows mean nothing for a quote of another form. */
export const FORM_ROWS = rowsFrom<QuoteSubject>('attestation.md 9.2', {
  'tdx.policy.report_data': {
    source: 'attestation.md 3',
    title: 'The evidence answers our nonce and binds the CA certificates',
    comparesNonce: true,
    expected: 'the digest over nonce, own manifests and both CA certificates, then 32 zero bytes',
    judge: ({ quote, expectedReportData }) => oneOf(quote.tdQuoteBody.reportData, [expectedReportData]),
  },
  'tdx.quote.version': {
    source: 'attestation.md 9.1, 19.10',
    title: 'The quote has a version this verifier knows',
    expected: `version ${QUOTE_VERSION}`,
    judge: ({ quote: { header } }) => finding(header.version === QUOTE_VERSION, `version ${header.version}`),
  },
  'tdx.quote.key_type': {
    title: 'The attestation key is an ECDSA key',
    expected: `type ${ATTESTATION_KEY_TYPE} (ECDSA P-256)`,
    judge: ({ quote: { header } }) =>
      finding(header.attestationKeyType === ATTESTATION_KEY_TYPE, `type ${header.attestationKeyType}`),
  },
  'tdx.quote.tee_type': {
    title: 'The quote is of a trust domain',
    expected: `TEE type 0x${TEE_TYPE_TDX.toString(16)}`,
    judge: ({ quote: { header } }) =>
      finding(header.teeType === TEE_TYPE_TDX, `TEE type 0x${header.teeType.toString(16)}`),
  },
  'tdx.quote.structure': {
    source: 'attestation.md 10',
    title: 'The quote agrees with itself about its parts',
    expected: 'certification data of type 6 holding a PCK chain of type 5, and sizes that are true',
    judge: ({ quote }) => {
      const { certificateDataType } = quote.signedData.certificationData;
      const chainType = qeOf(quote).pckCertificateChainData.certificateDataType;
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
});

export interface ChainSubject {
  readonly quote: QuoteV4;
  readonly chain: ReturnType<typeof readPckChain>;
  /** The one trust anchor. */
  readonly pinned: Certificate;
  readonly now: Date;
}

export const CHAIN_ROWS = rowsFrom<ChainSubject>('attestation.md 10', {
  'tdx.pck.format': {
    title: 'The PCK chain can be read',
    expected: 'three certificates in PEM, at most a NUL byte after them',
    judge: () => finding(true, 'three certificates'),
  },
  'tdx.pck.profile': {
    title: 'The certificates are of the kind Intel issues',
    expected: 'X.509 v3, ECDSA on P-256 with SHA-256, subjects of a platform CA chain',
    judge: ({ chain: { leaf, intermediate, root } }) => {
      const defects = [
        ...profileDefects(leaf, INTEL_NAMES.pck),
        ...profileDefects(intermediate, INTEL_NAMES.platformCa),
        ...profileDefects(root, INTEL_NAMES.root),
      ];
      return noDefects(defects, 'all three as expected');
    },
  },
  'tdx.pck.chain': {
    title: 'The PCK chain leads to the trusted root',
    expected: 'leaf, platform CA and the trusted root, each issued by the next',
    judge: async ({ chain: { leaf, intermediate, root }, pinned }) => {
      const defects = [
        ...anchorDefects(root, pinned, 1),
        ...(await linkDefects(root, pinned, 1)),
        ...(await linkDefects(intermediate, pinned, 1)),
        ...(await linkDefects(leaf, intermediate, 0)),
      ];
      return noDefects(defects, `chain to ${nameText(pinned.subject)}`);
    },
  },
  'tdx.pck.validity': {
    title: 'The PCK chain is in its validity',
    expected: 'every certificate valid now',
    judge: ({ chain: { leaf, intermediate, root }, pinned, now }) =>
      inForce(now, leaf, intermediate, root, pinned),
  },
});

export interface SignerSubject extends ChainSubject {
  /** Intel's extension of the PCK certificate. */
  readonly sgx: SgxExtension;
}

/** These rows run after CHAIN_ROWS: what they read of the PCK certificate is Intel's. */
export const SIGNATURE_ROWS = rowsFrom<SignerSubject>('attestation.md 10', {
  'tdx.pck.extensions': {
    title: 'The PCK certificate describes its platform',
    expected: `${PCK_EXTENSIONS} extensions, ${SGX_EXTENSION_OID} complete`,
    judge: ({ chain, sgx }) => {
      const { size } = chain.leaf.extensions;
      return finding(size === PCK_EXTENSIONS, `${size} extensions, platform model ${hex(sgx.fmspc)}`);
    },
  },
  'tdx.quote.signature': {
    source: 'attestation.md 10 (a)',
    title: 'The quote is signed by its attestation key',
    expected: 'ECDSA P-256 over header and body',
    judge: ({ quote }) => {
      const { signature, ecdsaAttestationKey } = quote.signedData;
      const key = publicKeyFromPoint('P-256', Uint8Array.of(4, ...ecdsaAttestationKey));
      return signatureFinding(key, signedQuoteBytes(quote), signature);
    },
  },
  'tdx.qe.report_signature': {
    source: 'attestation.md 10 (b)',
    title: 'The quoting enclave is vouched for by the PCK',
    expected: 'ECDSA P-256 by the PCK over the QE report',
    judge: ({ chain, quote }) => {
      const { qeReport, qeReportSignature } = qeOf(quote);
      return signatureFinding(chain.leaf.publicKey, qeReportBytes(qeReport), qeReportSignature);
    },
  },
  'tdx.qe.key_binding': {
    source: 'attestation.md 10 (c)',
    title: 'The attestation key is the quoting enclave’s',
    expected: 'QE report data = SHA-256 of key and authentication data, then 32 zero bytes',
    judge: ({ quote }) => {
      const { qeReport, qeAuthData } = qeOf(quote);
      const expected = new Uint8Array(64);
      expected.set(sha256(quote.signedData.ecdsaAttestationKey, qeAuthData.data));
      return oneOf(qeReport.reportData, [expected]);
    },
  },
  'tdx.qe.vendor': {
    source: 'attestation.md 11',
    title: 'The quoting enclave is Intel’s',
    expected: `vendor ${INTEL_QE_VENDOR}`,
    judge: ({ quote: { header } }) =>
      finding(hex(header.qeVendorId) === INTEL_QE_VENDOR, `vendor ${hex(header.qeVendorId)}`),
  },
});
