import { describe } from 'node:test';
import { basicConstraints, keyUsage } from '../../../simulator/pki/extensions.ts';
import { ISSUERS, intelName } from '../../support/evidence/tdx-authorities.ts';
import {
  FUTURE,
  itAccepts,
  itRefuses,
  PAST,
  pinning,
  type Refusals,
  replaced,
  rootLike,
  STRANGE_ROOT,
  STRANGER,
  UNKNOWN_CRITICAL,
  vouchedBy,
} from '../../support/evidence/tdx-cases.ts';

const PROCESSOR_CA = intelName('Intel SGX PCK Processor CA');
/** The common name of the root, without the rest of its name. */
const NAMED_ALIKE = ISSUERS.root.name.slice(0, 1);
const UNKNOWN = { ...UNKNOWN_CRITICAL, critical: false };

const PCK: Refusals = {
  'tdx.pck.format': {
    'text after the chain': { chain: (pem) => `${pem}more` },
    'two NUL bytes after the chain': { chain: (pem) => `${pem}\0\0` },
    'four certificates': { chain: (pem) => pem + pem.slice(pem.lastIndexOf('-----BEGIN')) },
    'a first block of another label': {
      chain: (pem) =>
        pem.replace('BEGIN CERTIFICATE', 'BEGIN X509 CRL').replace('END CERTIFICATE', 'END X509 CRL'),
    },
    'a chain that is too large': { chain: (pem) => `${'\n'.repeat(32 * 1024)}${pem}` },
  },
  'tdx.pck.profile': {
    'a chain of the processor CA': {
      platformCa: (r) => ({ ...r, subject: PROCESSOR_CA }),
      pck: (r) => ({ ...r, issuer: { ...r.issuer, name: PROCESSOR_CA } }),
    },
    'a leaf of another name': { pck: (r) => ({ ...r, subject: intelName('Intel SGX TCB Signing') }) },
    'a critical extension that nobody understands': {
      pck: (r) => ({ ...r, extensions: [UNKNOWN_CRITICAL, ...r.extensions.slice(1)] }),
    },
    'a root with a critical extension that nobody understands': {
      root: (r) => ({ ...r, extensions: [...r.extensions, UNKNOWN_CRITICAL] }),
    },
  },
  'tdx.pck.chain': {
    'a leaf signed by a stranger': { pck: (r) => ({ ...r, issuer: { ...r.issuer, key: STRANGER } }) },
    'a platform CA signed by a stranger': { platformCa: (r) => ({ ...r, issuer: STRANGE_ROOT }) },
    'another root of the same name': {
      root: (r) => ({ ...r, issuer: STRANGE_ROOT, key: STRANGER }),
      platformCa: (r) => ({ ...r, issuer: STRANGE_ROOT }),
    },
    'a foreign root above a chain of the trusted one': {
      root: (r) => ({ ...r, issuer: STRANGE_ROOT, key: STRANGER }),
    },
    'a root of another key that the trusted one signed': { root: (r) => ({ ...r, key: STRANGER }) },
    'a root of another key that the trusted one signed, above its own platform CA': {
      root: (r) => ({ ...r, key: STRANGER }),
      platformCa: (r) => ({ ...r, issuer: STRANGE_ROOT }),
    },
    'a root of the trusted key that has another name': {
      root: (r) => ({ ...r, subject: NAMED_ALIKE }),
      platformCa: (r) => ({ ...r, issuer: { ...ISSUERS.root, name: NAMED_ALIKE } }),
    },
    'a root that is not signed by itself': { root: (r) => ({ ...r, issuer: STRANGE_ROOT }) },
    'a root of the trusted key that is no CA': {
      root: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(false)) }),
    },
    'a root of the trusted key that may only sign lists': {
      root: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('cRLSign')) }),
    },
    'a root of the trusted key with no room for a CA below it': {
      root: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(true, 0)) }),
    },
    'a leaf that names another issuer': {
      pck: (r) => ({ ...r, issuer: { ...r.issuer, name: ISSUERS.root.name } }),
    },
    'a platform CA that is no CA': {
      platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(false)) }),
    },
    'a platform CA that may not sign certificates': {
      platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('cRLSign')) }),
    },
    'a root with no room for a CA below it': pinning(rootLike({ extensions: [basicConstraints(true, 0)] })),
    'no root for TDX trusted': { context: (c) => ({ ...c, roots: { snp: {}, tdx: undefined } }) },
  },
  'tdx.pck.validity': {
    'a trusted root that has expired': pinning(rootLike({ notAfter: PAST })),
    'an expired root': { root: (r) => ({ ...r, notAfter: PAST }) },
    'an expired platform CA': { platformCa: (r) => ({ ...r, notAfter: PAST }) },
    'an expired leaf': { pck: (r) => ({ ...r, notAfter: PAST }) },
    'a root that is not valid yet': { root: (r) => ({ ...r, notBefore: FUTURE }) },
    'a platform CA that is not valid yet': { platformCa: (r) => ({ ...r, notBefore: FUTURE }) },
    'a leaf that is not valid yet': { pck: (r) => ({ ...r, notBefore: FUTURE }) },
  },
  'tdx.pck.extensions': {
    'five extensions': { pck: (r) => ({ ...r, extensions: r.extensions.slice(1) }) },
    'seven extensions': { pck: (r) => ({ ...r, extensions: [...r.extensions, UNKNOWN] }) },
    'no Intel extension': { pck: (r) => ({ ...r, extensions: [...r.extensions.slice(0, 5), UNKNOWN] }) },
    'an Intel extension without PIID': {
      sgx: (s) => ({ ...s, parts: s.parts.filter(([suffix]) => suffix !== '6') }),
    },
  },
};

describe('verification of the PCK certificate chain', () => {
  itRefuses('pck', PCK);
  itAccepts({
    'another certificate of the trusted root, of the same name and key': {
      ...pinning(rootLike({})),
      ...vouchedBy(rootLike({ serial: 0x77n })),
    },
    'a root that states no limit on the CAs below it': {
      root: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(true)) }),
    },
    'a NUL byte after the chain': { chain: (pem) => `${pem}\0` },
  });
});
