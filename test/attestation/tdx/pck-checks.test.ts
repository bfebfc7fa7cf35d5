import { describe } from 'node:test';
import { basicConstraints, keyUsage } from '../../../simulator/pki/extensions.ts';
import { ISSUERS, intelName } from '../../support/evidence/tdx-authorities.ts';
import {
  FUTURE,
  itAccepts,
  itRefuses,
  PAST,
  pinning,
  type Row,
  replaced,
  rootLike,
  STRANGE_ROOT,
  STRANGER,
  UNKNOWN_CRITICAL,
  vouchedBy,
} from '../../support/evidence/tdx-cases.ts';

const PCK: readonly Row[] = [
  ['text after the chain', { chain: (pem) => `${pem}more` }, ['tdx.pck.format']],
  ['two NUL bytes after the chain', { chain: (pem) => `${pem}\0\0` }, ['tdx.pck.format']],
  ['white space after the chain', { chain: (pem) => `${pem}\n\n` }, ['tdx.pck.format']],
  ['text before the chain', { chain: (pem) => `Subject: PCK\n${pem}` }, ['tdx.pck.format']],
  [
    'four certificates',
    { chain: (pem) => pem + pem.slice(pem.lastIndexOf('-----BEGIN')) },
    ['tdx.pck.format'],
  ],
  ['two certificates', { chain: (pem) => pem.slice(pem.indexOf('-----BEGIN', 10)) }, ['tdx.pck.format']],
  [
    'blocks of another label',
    { chain: (pem) => pem.replaceAll('CERTIFICATE', 'X509 CRL') },
    ['tdx.pck.format'],
  ],
  [
    'a first block of another label',
    {
      chain: (pem) =>
        pem.replace('BEGIN CERTIFICATE', 'BEGIN X509 CRL').replace('END CERTIFICATE', 'END X509 CRL'),
    },
    ['tdx.pck.format'],
  ],
  ['a chain that is too large', { chain: (pem) => `${'\n'.repeat(32 * 1024)}${pem}` }, ['tdx.pck.format']],
  [
    'a chain of the processor CA',
    {
      platformCa: (r) => ({ ...r, subject: intelName('Intel SGX PCK Processor CA') }),
      pck: (r) => ({ ...r, issuer: { ...r.issuer, name: intelName('Intel SGX PCK Processor CA') } }),
    },
    ['tdx.pck.profile'],
  ],
  [
    'a leaf of another name',
    { pck: (r) => ({ ...r, subject: intelName('Intel SGX TCB Signing') }) },
    ['tdx.pck.profile'],
  ],
  [
    'a critical extension that nobody understands',
    { pck: (r) => ({ ...r, extensions: [UNKNOWN_CRITICAL, ...r.extensions.slice(1)] }) },
    ['tdx.pck.profile'],
  ],
  [
    'a leaf signed by a stranger',
    { pck: (r) => ({ ...r, issuer: { ...r.issuer, key: STRANGER } }) },
    ['tdx.pck.chain'],
  ],
  [
    'a platform CA signed by a stranger',
    { platformCa: (r) => ({ ...r, issuer: STRANGE_ROOT }) },
    ['tdx.pck.chain'],
  ],
  [
    'another root of the same name',
    {
      root: (r) => ({ ...r, issuer: STRANGE_ROOT, key: STRANGER }),
      platformCa: (r) => ({ ...r, issuer: STRANGE_ROOT }),
    },
    ['tdx.pck.chain'],
  ],
  [
    'a foreign root above a chain of the trusted one',
    { root: (r) => ({ ...r, issuer: STRANGE_ROOT, key: STRANGER }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root of another key that the trusted one signed',
    { root: (r) => ({ ...r, key: STRANGER }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root that is not signed by itself',
    { root: (r) => ({ ...r, issuer: STRANGE_ROOT }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root of the trusted key that is no CA',
    { root: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(false)) }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root of the trusted key that may only sign lists',
    { root: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('cRLSign')) }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root of the trusted key with no room for a CA below it',
    { root: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(true, 0)) }) },
    ['tdx.pck.chain'],
  ],
  [
    'a leaf that names another issuer',
    { pck: (r) => ({ ...r, issuer: { ...r.issuer, name: ISSUERS.root.name } }) },
    ['tdx.pck.chain'],
  ],
  [
    'a platform CA that is no CA',
    { platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, basicConstraints(false)) }) },
    ['tdx.pck.chain'],
  ],
  [
    'a platform CA that may not sign certificates',
    { platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('cRLSign')) }) },
    ['tdx.pck.chain'],
  ],
  [
    'a root with no room for a CA below it',
    pinning(rootLike({ extensions: [basicConstraints(true, 0)] })),
    ['tdx.pck.chain'],
  ],
  ['a trusted root that has expired', pinning(rootLike({ notAfter: PAST })), ['tdx.pck.validity']],
  [
    'a root with a critical extension that nobody understands',
    { root: (r) => ({ ...r, extensions: [...r.extensions, UNKNOWN_CRITICAL] }) },
    ['tdx.pck.profile'],
  ],
  [
    'no root for TDX trusted',
    { context: (c) => ({ ...c, roots: { snp: {}, tdx: undefined } }) },
    ['tdx.pck.chain'],
  ],
  ...(['root', 'platformCa', 'pck'] as const).flatMap((name): Row[] => [
    [`an expired ${name}`, { [name]: (r: object) => ({ ...r, notAfter: PAST }) }, ['tdx.pck.validity']],
    [
      `a ${name} that is not valid yet`,
      { [name]: (r: object) => ({ ...r, notBefore: FUTURE }) },
      ['tdx.pck.validity'],
    ],
  ]),
  ['five extensions', { pck: (r) => ({ ...r, extensions: r.extensions.slice(1) }) }, ['tdx.pck.extensions']],
  [
    'seven extensions',
    { pck: (r) => ({ ...r, extensions: [...r.extensions, { ...UNKNOWN_CRITICAL, critical: false }] }) },
    ['tdx.pck.extensions'],
  ],
  [
    'no Intel extension',
    {
      pck: (r) => ({
        ...r,
        extensions: [...r.extensions.slice(0, 5), { ...UNKNOWN_CRITICAL, critical: false }],
      }),
    },
    ['tdx.pck.extensions'],
  ],
  [
    'an Intel extension without PIID',
    { sgx: (s) => ({ ...s, parts: s.parts.filter(([suffix]) => suffix !== '6') }) },
    ['tdx.pck.extensions'],
  ],
];

describe('verification of the PCK certificate chain', () => {
  itRefuses('pck', PCK);
  itAccepts([
    [
      'another certificate of the trusted root, of the same name and key',
      { ...pinning(rootLike({})), ...vouchedBy(rootLike({ serial: 0x77n })) },
    ],
    ['a NUL byte after the chain', { chain: (pem) => `${pem}\0` }],
  ]);
});
