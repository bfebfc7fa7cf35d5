/** Every TDX check against a platform on which exactly one thing is wrong. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted, type Check } from '../../lib/attestation/check.ts';
import type { QuoteV4 } from '../../lib/attestation/tdx/message.ts';
import { TDX } from '../../lib/attestation/tdx/verify.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { issueCertificate, toPem } from '../../lib/simulator/pki/certificate.ts';
import { boolean, enumerated } from '../../lib/simulator/pki/der.ts';
import { basicConstraints, type EncodedExtension, keyUsage } from '../../lib/simulator/pki/extensions.ts';
import {
  type Changes,
  COORDINATOR_HASH,
  ISSUERS,
  intelName,
  NOW,
  p256,
  platformLevelJson,
  ROOT_CRL_URL,
  signedBody,
  tdxPlatform,
} from '../support/tdx-platform.ts';

const judge = async (changes: Changes): Promise<readonly Check[]> => {
  const { quote, entry, context } = tdxPlatform(changes);
  return TDX.verify(quote, entry, context);
};
const failed = (checks: readonly Check[]): string[] =>
  checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);

const PAST = new Date('2026-11-30T23:59:59Z');
const FUTURE = new Date('2026-12-01T00:00:01Z');
const STRANGER = p256();
const filled = (length: number, byte: number): Uint8Array => new Uint8Array(length).fill(byte);

/** The same extensions with one of them replaced, by OID. */
const replaced = (list: readonly EncodedExtension[], other: EncodedExtension): EncodedExtension[] =>
  list.map((extension) => (extension.oid === other.oid ? other : extension));
const UNKNOWN_CRITICAL: EncodedExtension = { oid: '1.2.3.4', critical: true, value: Uint8Array.of(5, 0) };

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

const answer = (member: string, value: unknown) => ({ body: signedBody(member, value), issuerChain: '' });
const unreachable = async (): Promise<never> => {
  throw new PrivatemodeError('collateral_unavailable', 'the host did not answer');
};
const MODULE_LEVEL = (isvsvn: number, tcbStatus: string) => ({ tcb: { isvsvn }, tcbStatus });
const MODULE_IDENTITY = {
  id: 'TDX_01',
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
  tcbLevels: [MODULE_LEVEL(7, 'UpToDate')],
};
const otherRoot = { name: ISSUERS.root.name, key: STRANGER };
const ZEROS = Array.from({ length: 16 }, () => 0);

type Row = readonly [name: string, changes: Changes, failing: readonly string[]];

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
    { platformCa: (r) => ({ ...r, issuer: otherRoot }) },
    ['tdx.pck.chain'],
  ],
  [
    'another root of the same name',
    {
      root: (r) => ({ ...r, issuer: otherRoot, key: STRANGER }),
      platformCa: (r) => ({ ...r, issuer: otherRoot }),
    },
    ['tdx.pck.chain'],
  ],
  [
    'a foreign root above a chain of the trusted one',
    { root: (r) => ({ ...r, issuer: otherRoot, key: STRANGER }) },
    ['tdx.pck.chain'],
  ],
  ['a root that is not signed by itself', { root: (r) => ({ ...r, issuer: otherRoot }) }, ['tdx.pck.chain']],
  [
    'a leaf that names another issuer',
    { pck: (r) => ({ ...r, issuer: { ...r.issuer, name: ISSUERS.root.name } }) },
    ['tdx.pck.chain'],
  ],
  [
    'a platform CA that is none',
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
    {
      context: (c) => ({
        ...c,
        roots: {
          snp: {},
          tdx: {
            root: toPem(
              issueCertificate({
                issuer: ISSUERS.root,
                subject: ISSUERS.root.name,
                key: ISSUERS.root.key,
                notBefore: PAST,
                notAfter: FUTURE,
                extensions: [basicConstraints(true, 0)],
              }),
            ),
          },
        },
      }),
    },
    ['tdx.pck.chain'],
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

const DOCUMENTS: readonly Row[] = [
  ['TCB info out of reach', { answers: { intelTcbInfo: unreachable } }, ['tdx.tcb_info.format']],
  [
    'TCB info without an issuer chain',
    { answers: { intelTcbInfo: async () => answer('tcbInfo', { id: 'TDX' }) } },
    ['tdx.tcb_info.format'],
  ],
  ['TCB info without levels', { tcbInfo: (j) => ({ ...j, tcbLevels: [] }) }, ['tdx.tcb_info.format']],
  ['QE identity out of reach', { answers: { intelQeIdentity: unreachable } }, ['tdx.qe_identity.format']],
  [
    'QE identity without levels',
    { qeIdentity: (j) => ({ ...j, tcbLevels: [] }) },
    ['tdx.qe_identity.format'],
  ],
  [
    'a signer of another name',
    { tcbSigning: (r) => ({ ...r, subject: intelName('Intel SGX PCK Certificate') }) },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'a signer that the root did not sign',
    { tcbSigning: (r) => ({ ...r, issuer: otherRoot }) },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'a signer that names another issuer',
    { tcbSigning: (r) => ({ ...r, issuer: { ...r.issuer, name: ISSUERS.platformCa.name } }) },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'an expired signer',
    { tcbSigning: (r) => ({ ...r, notAfter: PAST }) },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'a signer that is not valid yet',
    { tcbSigning: (r) => ({ ...r, notBefore: FUTURE }) },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'a foreign root beside an honest signer',
    {
      signingChain: (pem) =>
        pem.slice(0, pem.lastIndexOf('-----BEGIN')) +
        toPem(
          issueCertificate({
            issuer: otherRoot,
            subject: otherRoot.name,
            key: STRANGER,
            notBefore: PAST,
            notAfter: FUTURE,
            extensions: [basicConstraints(true)],
          }),
        ),
    },
    ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  ],
  [
    'a signer with another key than signed',
    { tcbSigning: (r) => ({ ...r, key: STRANGER }) },
    ['tdx.tcb_info.signature', 'tdx.qe_identity.signature'],
  ],
  ['TCB info for enclaves', { tcbInfo: (j) => ({ ...j, id: 'SGX' }) }, ['tdx.tcb_info.identity']],
  ['TCB info of version 2', { tcbInfo: (j) => ({ ...j, version: 2 }) }, ['tdx.tcb_info.identity']],
  ['QE identity for enclaves', { qeIdentity: (j) => ({ ...j, id: 'QE' }) }, ['tdx.qe_identity.identity']],
  ['QE identity of version 1', { qeIdentity: (j) => ({ ...j, version: 1 }) }, ['tdx.qe_identity.identity']],
  ...(['tcbInfo', 'qeIdentity'] as const).flatMap((name): Row[] => {
    const id = name === 'tcbInfo' ? 'tdx.tcb_info' : 'tdx.qe_identity';
    return [
      [
        `${name} issued in the future`,
        { [name]: (j: object) => ({ ...j, issueDate: '2026-12-01T00:00:01Z' }) },
        [`${id}.dates`],
      ],
      [
        `${name} whose next update is due`,
        { [name]: (j: object) => ({ ...j, nextUpdate: '2026-11-30T23:59:59Z' }) },
        [`${id}.dates`],
      ],
      [
        `${name} below the evaluation number of the manifest`,
        { [name]: (j: object) => ({ ...j, tcbEvaluationDataNumber: 20 }) },
        [`${id}.evaluation_number`],
      ],
    ];
  }),
  [
    'TCB info of another platform model',
    { tcbInfo: (j) => ({ ...j, fmspc: 'A0B1C2D3E4F6' }) },
    ['tdx.tcb_info.platform'],
  ],
  ['TCB info of another PCE', { tcbInfo: (j) => ({ ...j, pceId: '0001' }) }, ['tdx.tcb_info.platform']],
  [
    'TCB info with components of another type',
    { tcbInfo: (j) => ({ ...j, tcbType: 1 }) },
    ['tdx.tcb_info.platform'],
  ],
];

const REVOCATION: readonly Row[] = [
  ['a root CRL out of reach', { answers: { intelRootCrl: unreachable } }, ['tdx.root_crl.format']],
  [
    'a root that does not say where its CRL is',
    { root: (r) => ({ ...r, extensions: r.extensions.filter(({ oid }) => oid !== '2.5.29.31') }) },
    ['tdx.root_crl.format'],
  ],
  [
    'a root CRL that is none',
    { answers: { intelRootCrl: async () => Uint8Array.of(0x30, 0) } },
    ['tdx.root_crl.format'],
  ],
  [
    'a root CRL that is too large',
    { answers: { intelRootCrl: async () => new Uint8Array(256 * 1024 + 1) } },
    ['tdx.root_crl.format'],
  ],
  ['a PCK CRL out of reach', { answers: { intelPckCrl: unreachable } }, ['tdx.pck_crl.format']],
  ...(['rootCrl', 'pckCrl'] as const).flatMap((name): Row[] => {
    const id = name === 'rootCrl' ? 'tdx.root_crl' : 'tdx.pck_crl';
    const signer = name === 'rootCrl' ? ISSUERS.root : ISSUERS.platformCa;
    return [
      [
        `${name} signed by a stranger`,
        { [name]: (r: object) => ({ ...r, issuer: { ...signer, key: STRANGER } }) },
        [`${id}.signature`],
      ],
      [
        `${name} that names another issuer`,
        { [name]: (r: object) => ({ ...r, issuer: { ...signer, name: intelName('Intel') } }) },
        [`${id}.signature`],
      ],
      [
        `${name} issued in the future`,
        { [name]: (r: object) => ({ ...r, thisUpdate: FUTURE }) },
        [`${id}.dates`],
      ],
      [
        `${name} whose next update is due`,
        { [name]: (r: object) => ({ ...r, nextUpdate: PAST }) },
        [`${id}.dates`],
      ],
    ];
  }),
  [
    'a platform CA that may not sign CRLs',
    { platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('keyCertSign')) }) },
    ['tdx.pck_crl.signature'],
  ],
  [
    'a revoked platform CA',
    { rootCrl: (r) => ({ ...r, revoked: [{ serial: 0x12n, date: PAST }] }) },
    ['tdx.revocation.platform_ca'],
  ],
  [
    'a revoked signer of collateral',
    { rootCrl: (r) => ({ ...r, revoked: [{ serial: 0x13n, date: PAST }] }) },
    ['tdx.revocation.tcb_signing'],
  ],
  [
    'a revoked PCK certificate',
    { pckCrl: (r) => ({ ...r, revoked: [{ serial: 0x4242n, date: PAST }] }) },
    ['tdx.revocation.pck'],
  ],
];

const moduleVersion0: Changes['body'] = (b) => ({
  ...b,
  teeTcbSvn: Uint8Array.of(4, 0, 3, ...new Uint8Array(13)),
});

const TCB: readonly Row[] = [
  [
    'a TDX module of another signer',
    { body: (b) => ({ ...b, mrSignerSeam: filled(48, 1) }) },
    ['tdx.tcb.module_signer', 'tdx.tcb.module_identity'],
  ],
  [
    'a TDX module under debug',
    { body: (b) => ({ ...b, seamAttributes: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0) }) },
    ['tdx.tcb.module_attributes', 'tdx.tcb.module_identity'],
  ],
  [
    'a module version whose identity names another signer',
    { tcbInfo: (j) => ({ ...j, tdxModuleIdentities: [{ ...MODULE_IDENTITY, mrsigner: '01'.repeat(48) }] }) },
    ['tdx.tcb.module_identity'],
  ],
  [
    'a module version that TCB info does not know',
    { tcbInfo: (j) => ({ ...j, tdxModuleIdentities: [{ ...MODULE_IDENTITY, id: 'TDX_03' }] }) },
    ['tdx.tcb.module_identity', 'tdx.tcb.module_status'],
  ],
  [
    'TCB info without module identities',
    { tcbInfo: ({ tdxModuleIdentities: _, ...j }) => j },
    ['tdx.tcb.module_identity', 'tdx.tcb.module_status'],
  ],
  ...['OutOfDate', 'SWHardeningNeeded', 'ConfigurationNeeded', 'Revoked', 'uptodate'].flatMap(
    (status): Row[] => [
      [
        `a platform level ${status}`,
        { tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson(status)] }) },
        ['tdx.tcb.platform_status'],
      ],
      [
        `a module level ${status}`,
        {
          tcbInfo: (j) => ({
            ...j,
            tdxModuleIdentities: [{ ...MODULE_IDENTITY, tcbLevels: [MODULE_LEVEL(7, status)] }],
          }),
        },
        ['tdx.tcb.module_status'],
      ],
      [
        `a quoting enclave ${status}`,
        { qeIdentity: (j) => ({ ...j, tcbLevels: [MODULE_LEVEL(4, status)] }) },
        ['tdx.qe.status'],
      ],
    ],
  ),
  [
    'a platform whose first level that matches is out of date, though a later one is not',
    {
      tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson('OutOfDate'), platformLevelJson('UpToDate')] }),
    },
    ['tdx.tcb.platform_status'],
  ],
  [
    'a module of version 0 below the TDX components of the level',
    { body: moduleVersion0 },
    ['tdx.tcb.platform_status'],
  ],
  [
    'a quoting enclave with extended features',
    { qeReport: (r) => ({ ...r, miscSelect: 1 }) },
    ['tdx.qe.misc_select'],
  ],
  [
    'a quoting enclave under debug',
    { qeReport: (r) => ({ ...r, attributes: Uint8Array.of(0x17, ...r.attributes.subarray(1)) }) },
    ['tdx.qe.attributes'],
  ],
  [
    'a quoting enclave of another signer',
    { qeReport: (r) => ({ ...r, mrSigner: filled(32, 1) }) },
    ['tdx.qe.signer'],
  ],
  ['another enclave of Intel', { qeReport: (r) => ({ ...r, isvProdId: 1 }) }, ['tdx.qe.product']],
  ['a quoting enclave below every level', { qeReport: (r) => ({ ...r, isvSvn: 1 }) }, ['tdx.qe.status']],
];

const configured = (suffix: string, value: Uint8Array | undefined): Changes => ({
  sgx: (s) => ({
    ...s,
    configuration: s.configuration.flatMap(([name, original]) =>
      name !== suffix ? [[name, original] as const] : value === undefined ? [] : [[name, value] as const],
    ),
  }),
});
const withXfam = (quote: string, manifest = 'e702060000000000'): Changes => ({
  body: (b) => ({ ...b, xfam: Buffer.from(quote, 'hex') }),
  entry: (e) => ({ ...e, xfam: Buffer.from(manifest, 'hex') }),
});

const POLICY: readonly Row[] = [
  [
    'an answer to another nonce',
    { body: (b) => ({ ...b, reportData: filled(64, 1) }) },
    ['tdx.policy.report_data'],
  ],
  [
    'report data with a tail that is not zero',
    { body: (b) => ({ ...b, reportData: Uint8Array.of(...b.reportData.subarray(0, 63), 1) }) },
    ['tdx.policy.report_data'],
  ],
  [
    'a workload that is not the coordinator',
    { context: (c) => ({ ...c, coordinatorHashes: [filled(32, 1)] }) },
    ['tdx.policy.mrconfigid'],
  ],
  ['no coordinator at all', { context: (c) => ({ ...c, coordinatorHashes: [] }) }, ['tdx.policy.mrconfigid']],
  [
    'a coordinator hash with a tail that is not zero',
    { body: (b) => ({ ...b, mrConfigId: Uint8Array.of(...b.mrConfigId.subarray(0, 47), 1) }) },
    ['tdx.policy.mrconfigid'],
  ],
  ['another TDX module', { body: (b) => ({ ...b, mrSeam: filled(48, 1) }) }, ['tdx.policy.mrseam']],
  ['another initial memory', { body: (b) => ({ ...b, mrTd: filled(48, 1) }) }, ['tdx.policy.mrtd']],
  ...[0, 1, 2, 3].map(
    (changed): Row => [
      `another RTMR${changed}`,
      { body: (b) => ({ ...b, rtmrs: b.rtmrs.map((rtmr, i) => (i === changed ? filled(48, 1) : rtmr)) }) },
      [`tdx.policy.rtmr${changed}`],
    ],
  ),
  [
    'an RTMR0 that is none of the alternatives',
    {
      body: (b) => ({ ...b, rtmrs: [filled(48, 1), ...b.rtmrs.slice(1)] }),
      entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 2), filled(48, 3)] }),
    },
    ['tdx.policy.rtmr0'],
  ],
  [
    'an RTMR1 that only an alternative of RTMR0 allows',
    {
      body: (b) => ({ ...b, rtmrs: b.rtmrs.map((rtmr, i) => (i === 1 ? filled(48, 1) : rtmr)) }),
      entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 1)] }),
    },
    ['tdx.policy.rtmr1'],
  ],
  ['an XFAM bit more', withXfam('e706060000000000'), ['tdx.policy.xfam', 'tdx.policy.xfam_fixed_bits']],
  ['an XFAM bit less', withXfam('e700060000000000'), ['tdx.policy.xfam']],
  [
    'an XFAM without SSE, as in the manifest',
    withXfam('e502060000000000', 'e502060000000000'),
    ['tdx.policy.xfam_fixed_bits'],
  ],
  [
    'an XFAM with a bit that does not exist, as in the manifest',
    withXfam('e702060000000080', 'e702060000000080'),
    ['tdx.policy.xfam_fixed_bits'],
  ],
  [
    'a domain under debug',
    { body: (b) => ({ ...b, tdAttributes: Uint8Array.of(1, 0, 0, 0x10, 0, 0, 0, 0) }) },
    ['tdx.policy.td_attributes'],
  ],
  [
    'a domain without SEPT_VE_DISABLE',
    { body: (b) => ({ ...b, tdAttributes: new Uint8Array(8) }) },
    ['tdx.policy.td_attributes'],
  ],
  [
    'memory without integrity',
    {
      sgx: (s) => ({ ...s, parts: s.parts.map(([n, v]) => [n, n === '5' ? enumerated(1) : v] as const) }),
    },
    ['tdx.policy.memory_integrity'],
  ],
  ['multithreading', configured('7.3', boolean(true)), ['tdx.policy.smt_disabled']],
  ['a platform silent on multithreading', configured('7.3', undefined), ['tdx.policy.smt_disabled']],
  ['a dynamic platform', configured('7.1', boolean(true)), ['tdx.policy.static_platform']],
  ['a platform silent on being dynamic', configured('7.1', undefined), ['tdx.policy.static_platform']],
  [
    'a platform that is not on the list',
    { entry: (e) => ({ ...e, allowedPiids: [filled(16, 2), filled(15, 0x11)] }) },
    ['tdx.policy.piid'],
  ],
];

const ROWS = [...FORM, ...PCK, ...SIGNATURES, ...DOCUMENTS, ...REVOCATION, ...TCB, ...POLICY];

describe('TDX checks', () => {
  it('accept the platform on which nothing is wrong', async () => {
    const checks = await judge({});
    assert.deepEqual(failed(checks), []);
    assert.ok(allAccepted(TDX.rows, checks));
  });

  for (const [name, changes, failing] of ROWS) {
    it(`refuse ${name}`, async () => {
      const checks = await judge(changes);
      assert.deepEqual(failed(checks), failing);
      assert.ok(!allAccepted(TDX.rows, checks));
    });
  }

  it('are each shown to refuse something', () => {
    const shown = new Set(ROWS.flatMap(([, , failing]) => failing));
    assert.deepEqual(
      TDX.rows.map(({ id }) => id).filter((id) => !shown.has(id)),
      [],
    );
  });

  const allowed: readonly (readonly [string, Changes])[] = [
    ['CET in the quote only', withXfam('e71a060000000000')],
    ['CET in the manifest only', withXfam('e702060000000000', 'e71a060000000000')],
    [
      'an alternative of RTMR0',
      {
        body: (b) => ({ ...b, rtmrs: [filled(48, 1), ...b.rtmrs.slice(1)] }),
        entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 2), filled(48, 1)] }),
      },
    ],
    [
      'the second of two coordinators',
      { context: (c) => ({ ...c, coordinatorHashes: [filled(32, 1), COORDINATOR_HASH] }) },
    ],
    [
      'any platform where the manifest asks nothing of it',
      {
        sgx: (s) => ({ ...s, configuration: [] }),
        entry: (e) => ({
          ...e,
          allowedPiids: [],
          memoryIntegrity: false,
          smtDisabled: false,
          staticPlatform: false,
          minTcbEvaluationDataNumber: 0,
        }),
        tcbInfo: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
        qeIdentity: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
      },
    ],
    [
      'a module of version 0 at the TDX components of the level',
      {
        body: moduleVersion0,
        tcbInfo: ({ tdxModuleIdentities: _, ...j }) => ({
          ...j,
          tcbLevels: [platformLevelJson('UpToDate', ZEROS, 13, [4, 0, 3, ...ZEROS.slice(3)])],
        }),
      },
    ],
    ['a lower-case FMSPC in TCB info', { tcbInfo: (j) => ({ ...j, fmspc: 'a0b1c2d3e4f5' }) }],
    [
      'dates that are reached to the second',
      { tcbInfo: (j) => ({ ...j, issueDate: isoSeconds, nextUpdate: isoSeconds }) },
    ],
  ];
  for (const [name, changes] of allowed) {
    it(`accept ${name}`, async () => {
      const checks = await judge(changes);
      assert.deepEqual(failed(checks), []);
      assert.ok(allAccepted(TDX.rows, checks));
    });
  }
});

const isoSeconds = `${NOW.toISOString().slice(0, 19)}Z`;

describe('collateral of TDX', () => {
  const asked = (changes: Changes): { readonly questions: unknown[]; readonly changes: Changes } => {
    const questions: unknown[] = [];
    const { collateral } = tdxPlatform(changes).context;
    const answers: Changes['answers'] = {
      intelTcbInfo: (query) => {
        questions.push(['tcb', query]);
        return collateral.intelTcbInfo(query);
      },
      intelQeIdentity: () => {
        questions.push(['qe']);
        return collateral.intelQeIdentity();
      },
      intelPckCrl: () => {
        questions.push(['pck crl']);
        return collateral.intelPckCrl();
      },
      intelRootCrl: (query) => {
        questions.push(['root crl', query]);
        return collateral.intelRootCrl(query);
      },
    };
    return { questions, changes: { ...changes, answers } };
  };

  it('is asked for by the platform model of the certificate and the number of the manifest', async () => {
    const { questions, changes } = asked({});
    assert.ok(allAccepted(TDX.rows, await judge(changes)));
    assert.deepEqual(questions, [
      ['tcb', { fmspc: 'a0b1c2d3e4f5', evaluationDataNumber: 21 }],
      ['qe'],
      ['pck crl'],
      ['root crl', { url: ROOT_CRL_URL }],
    ]);
  });

  it('is asked for without a number where the manifest has none', async () => {
    const { questions, changes } = asked({ entry: (e) => ({ ...e, minTcbEvaluationDataNumber: 0 }) });
    await judge(changes);
    assert.deepEqual(questions[0], ['tcb', { fmspc: 'a0b1c2d3e4f5' }]);
  });

  it('is not asked for on the word of evidence that has failed', async () => {
    for (const [, change] of [...FORM, ...PCK, ...SIGNATURES]) {
      const { questions, changes } = asked(change);
      await judge(changes);
      assert.deepEqual(questions, []);
    }
  });

  it('includes no root CRL from an address that an untrusted root names', async () => {
    const { questions, changes } = asked({ tcbSigning: (r) => ({ ...r, issuer: otherRoot }) });
    await judge(changes);
    assert.ok(!questions.some((question) => (question as unknown[])[0] === 'root crl'));
  });

  it('that cannot be had or read fails with collateral_unavailable, and leaves the rest to be told', async () => {
    for (const name of ['intelTcbInfo', 'intelQeIdentity', 'intelPckCrl', 'intelRootCrl'] as const) {
      const checks = await judge({ answers: { [name]: unreachable } });
      const [failure] = checks.filter(({ outcome }) => outcome === 'fail');
      assert.equal(failure?.code, 'collateral_unavailable');
      assert.equal(failure?.found, 'the host did not answer');
      assert.ok(checks.some(({ id, outcome }) => id === 'tdx.policy.mrtd' && outcome === 'pass'));
    }
  });

  it('is not excused when its source breaks: a defect of ours is no verdict', async () => {
    const broken = async (): Promise<never> => {
      throw new TypeError('defect');
    };
    await assert.rejects(judge({ answers: { intelPckCrl: broken } }), TypeError);
  });
});
