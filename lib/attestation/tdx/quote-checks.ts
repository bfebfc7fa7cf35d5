/**
 * Checks what needs no collateral: the form of the quote, the chain of its PCK certificate, and its
 * signatures (docs/protocol/attestation.md 10).
 */
import { sha256 } from '#crypto';
import { publicKeyFromPoint } from '../../crypto/signature.ts';
import { demand, finding, hex, need, oneOf, rowsFrom } from '../check.ts';
import { nameText } from '../x509.ts';
import {
  anchorDefects,
  INTEL_NAMES,
  linkDefects,
  noDefects,
  profileDefects,
  validityDefects,
  validityDetail,
} from './chain.ts';
import {
  ATTESTATION_KEY_TYPE,
  CERTIFICATE_DATA_TYPE,
  QUOTE_VERSION,
  qeReportBytes,
  signedQuoteBytes,
  statedSizes,
  TEE_TYPE_TDX,
} from './quote.ts';
import { SGX_EXTENSION_OID } from './sgx-extension.ts';
import { signatureFinding, type TdxSubject } from './subject.ts';

const PCK_EXTENSIONS = 6;
const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607';

/** These rows run first: the other rows mean nothing for a quote of another form. */
export const FORM_ROWS = rowsFrom<TdxSubject>('attestation.md 9.2', {
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
    judge: ({ quote, qe }) => {
      const { certificateDataType } = quote.signedData.certificationData;
      const chainType = qe.pckCertificateChainData.certificateDataType;
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

export const PCK_ROWS = rowsFrom<TdxSubject>('attestation.md 10', {
  'tdx.pck.format': {
    title: 'The PCK chain can be read',
    expected: 'three certificates in PEM, at most a NUL byte after them',
    judge: ({ chain }) => demand(chain) && finding(true, 'three certificates'),
  },
  'tdx.pck.profile': {
    title: 'The certificates are of the kind Intel issues',
    expected: 'X.509 v3, ECDSA on P-256 with SHA-256, subjects of a platform CA chain',
    judge: ({ chain }) => {
      const { leaf, intermediate, root } = need(chain);
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
    judge: async ({ chain, pinnedRoot }) => {
      const pinned = demand(pinnedRoot);
      const { leaf, intermediate, root } = need(chain);
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
    judge: ({ chain, pinnedRoot, context: { now } }) => {
      const { leaf, intermediate, root } = need(chain);
      const certificates = [leaf, intermediate, root, need(pinnedRoot)];
      const detail = validityDetail(certificates, now);
      return { ...noDefects(validityDefects(certificates, now), 'all valid'), detail };
    },
  },
  'tdx.pck.extensions': {
    title: 'The PCK certificate describes its platform',
    expected: `${PCK_EXTENSIONS} extensions, ${SGX_EXTENSION_OID} complete`,
    judge: ({ chain, sgx }) => {
      const { size } = need(chain).leaf.extensions;
      if (size !== PCK_EXTENSIONS) return finding(false, `${size} extensions`);
      return finding(true, `${size} extensions, platform model ${hex(demand(sgx).fmspc)}`);
    },
  },
});

/** These rows run after PCK_ROWS: one of the keys comes from the PCK chain. */
export const SIGNATURE_ROWS = rowsFrom<TdxSubject>('attestation.md 10', {
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
    judge: ({ chain, qe }) =>
      signatureFinding(need(chain).leaf.publicKey, qeReportBytes(qe.qeReport), qe.qeReportSignature),
  },
  'tdx.qe.key_binding': {
    source: 'attestation.md 10 (c)',
    title: 'The attestation key is the quoting enclave’s',
    expected: 'QE report data = SHA-256 of key and authentication data, then 32 zero bytes',
    judge: ({ quote, qe }) => {
      const expected = new Uint8Array(64);
      expected.set(sha256(quote.signedData.ecdsaAttestationKey, qe.qeAuthData.data));
      return oneOf(qe.qeReport.reportData, [expected]);
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
