/**
 * A TDX platform under authorities of our own, each part of which can be changed before it is signed: what
 * the fixed vectors do not vary.
 */
import { sha256 } from '#crypto';
import type { EvidenceContext } from '../../../lib/attestation/collateral.ts';
import type { TdxReferenceValues } from '../../../lib/attestation/manifest.ts';
import type { EnclaveReport, QuoteV4, TdQuoteBody } from '../../../lib/attestation/tdx/quote.ts';
import type { CollateralSource } from '../../../lib/attestation/verify-evidence.ts';
import { signedJson } from '../../../simulator/collateral.ts';
import { publicPoint, signedQuote } from '../../../simulator/evidence/tdx.ts';
import { type CrlRequest, issueCrl, toPem } from '../../../simulator/pki/certificate.ts';
import {
  type CertificateChanges,
  type Change,
  COMPONENT_SVNS,
  certificates,
  ISSUERS,
  KEYS,
  same,
} from './tdx-authorities.ts';

export const NOW = new Date('2026-12-01T00:00:00Z');
const ISSUED = { thisUpdate: new Date('2026-11-20T00:00:00Z'), nextUpdate: new Date('2026-12-20T00:00:00Z') };

type Json = Readonly<Record<string, unknown>>;

/** What to change, each before it is signed; `quote`, `chain`, `entry` and the `answers` after everything. */
export interface Changes extends CertificateChanges {
  readonly header?: Change<QuoteV4['header']>;
  readonly body?: Change<TdQuoteBody>;
  readonly qeReport?: Change<EnclaveReport>;
  readonly tcbInfo?: Change<Json>;
  readonly qeIdentity?: Change<Json>;
  readonly rootCrl?: Change<CrlRequest>;
  readonly pckCrl?: Change<CrlRequest>;
  readonly chain?: Change<string>;
  readonly signingChain?: Change<string>;
  readonly quote?: Change<QuoteV4>;
  readonly entry?: Change<TdxReferenceValues>;
  readonly context?: Change<EvidenceContext>;
  readonly answers?: Partial<CollateralSource>;
}

const filled = (length: number, byte: number): Uint8Array => new Uint8Array(length).fill(byte);
export const COORDINATOR_HASH = filled(32, 0xc0);
const REPORT_DATA = Uint8Array.of(...filled(32, 0xda), ...new Uint8Array(32));
const XFAM = Buffer.from('e702060000000000', 'hex');

const ENTRY: TdxReferenceValues = {
  minTcbEvaluationDataNumber: 21,
  mrTd: filled(48, 0x3d),
  mrSeam: filled(48, 0x5e),
  rtmrs: [filled(48, 0x70), filled(48, 0x71), filled(48, 0x72), filled(48, 0x73)],
  rtmr0Alternatives: [],
  xfam: XFAM,
  allowedPiids: [filled(16, 0x11)],
  memoryIntegrity: true,
  smtDisabled: true,
  staticPlatform: true,
};

const HEADER: QuoteV4['header'] = {
  version: 4,
  attestationKeyType: 2,
  teeType: 0x81,
  qeSvn: Uint8Array.of(0, 0),
  pceSvn: Uint8Array.of(0, 0),
  qeVendorId: Buffer.from('939a7233f79c4ca9940a0db3957f0607', 'hex'),
  userData: new Uint8Array(20),
};

const BODY: TdQuoteBody = {
  teeTcbSvn: Uint8Array.of(7, 1, 3, ...new Uint8Array(13)),
  mrSeam: ENTRY.mrSeam,
  mrSignerSeam: new Uint8Array(48),
  seamAttributes: new Uint8Array(8),
  tdAttributes: Uint8Array.of(0, 0, 0, 0x10, 0, 0, 0, 0),
  xfam: XFAM,
  mrTd: ENTRY.mrTd,
  mrConfigId: Uint8Array.of(...COORDINATOR_HASH, ...new Uint8Array(16)),
  mrOwner: new Uint8Array(48),
  mrOwnerConfig: new Uint8Array(48),
  rtmrs: ENTRY.rtmrs,
  reportData: REPORT_DATA,
};

const QE_MRSIGNER = 'dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5';
const AUTH_DATA = filled(32, 0xaa);
const ATTESTATION_KEY = publicPoint(KEYS.attestation);

const QE_REPORT: EnclaveReport = {
  cpuSvn: new Uint8Array(16),
  miscSelect: 0,
  reserved1: new Uint8Array(28),
  attributes: Buffer.from('1500000000000000e700000000000000', 'hex'),
  mrEnclave: filled(32, 0x0e),
  reserved2: new Uint8Array(32),
  mrSigner: Buffer.from(QE_MRSIGNER, 'hex'),
  reserved3: new Uint8Array(96),
  isvProdId: 2,
  isvSvn: 4,
  reserved4: new Uint8Array(60),
  reportData: Uint8Array.of(...sha256(ATTESTATION_KEY, AUTH_DATA), ...new Uint8Array(32)),
};

const level = (tcb: unknown, tcbStatus: string): Json => ({
  tcb,
  tcbDate: '2026-03-13T00:00:00Z',
  tcbStatus,
});
const svns = (list: ArrayLike<number>): readonly Json[] => Array.from(list, (svn) => ({ svn }));
const MODULE = { mrsigner: '00'.repeat(48), attributes: '00'.repeat(8), attributesMask: 'FF'.repeat(8) };
const DATES = { issueDate: '2026-11-20T00:00:00Z', nextUpdate: '2026-12-20T00:00:00Z' };

/**
 * A platform level of TCB info. The TDX components of the first two places count only for module version 0.
 */
export function platformLevelJson(
  status: string,
  sgx: readonly number[] = COMPONENT_SVNS,
  pcesvn = 13,
  tdx: readonly number[] = [5, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
): Json {
  return level({ sgxtcbcomponents: svns(sgx), pcesvn, tdxtcbcomponents: svns(tdx) }, status);
}

const TCB_INFO: Json = {
  id: 'TDX',
  version: 3,
  ...DATES,
  fmspc: 'A0B1C2D3E4F5',
  pceId: '0000',
  tcbType: 0,
  tcbEvaluationDataNumber: 21,
  tdxModule: MODULE,
  tdxModuleIdentities: [
    {
      id: 'TDX_01',
      ...MODULE,
      tcbLevels: [level({ isvsvn: 7 }, 'UpToDate'), level({ isvsvn: 3 }, 'OutOfDate')],
    },
  ],
  tcbLevels: [platformLevelJson('UpToDate')],
};

const QE_IDENTITY: Json = {
  id: 'TD_QE',
  version: 2,
  ...DATES,
  tcbEvaluationDataNumber: 21,
  miscselect: '00000000',
  miscselectMask: 'FFFFFFFF',
  attributes: '11000000000000000000000000000000',
  attributesMask: 'FBFFFFFFFFFFFFFF0000000000000000',
  mrsigner: QE_MRSIGNER.toUpperCase(),
  isvprodid: 2,
  tcbLevels: [level({ isvsvn: 4 }, 'UpToDate'), level({ isvsvn: 2 }, 'OutOfDate')],
};

/** A signed JSON body, as Intel sends it. */
export function signedBody(member: 'tcbInfo' | 'enclaveIdentity', value: unknown): string {
  return signedJson(member, value, member === 'tcbInfo' ? KEYS.tcbSigning : KEYS.qeSigning);
}

function quoteOf(changes: Changes, pckChain: string): QuoteV4 {
  const header = (changes.header ?? same)(HEADER);
  const tdQuoteBody = (changes.body ?? same)(BODY);
  const qeReport = (changes.qeReport ?? same)(QE_REPORT);
  const chain = Buffer.from(pckChain, 'latin1');
  const quote = signedQuote({ header, tdQuoteBody, qeReport, authData: AUTH_DATA, chain }, KEYS);
  return (changes.quote ?? same)(quote);
}

/** Evidence, reference value and context that verify, but for the changes. */
export function tdxPlatform(changes: Changes = {}): {
  readonly quote: QuoteV4;
  readonly entry: TdxReferenceValues;
  readonly context: EvidenceContext;
} {
  const { root, platformCa, pck, tcbSigning, qeSigning } = certificates(changes);
  const pckChain = (changes.chain ?? same)([pck, platformCa, root].map((der) => toPem(der)).join(''));
  const vouching = (signer: Uint8Array): string =>
    (changes.signingChain ?? same)(toPem(signer) + toPem(root));
  const absent = async (): Promise<never> => {
    throw new Error('TDX evidence needs nothing of AMD');
  };
  const collateral: CollateralSource = {
    amdVcek: absent,
    amdCrl: absent,
    intelTcbInfo: async () => ({
      body: signedBody('tcbInfo', (changes.tcbInfo ?? same)(TCB_INFO)),
      issuerChain: vouching(tcbSigning),
    }),
    intelQeIdentity: async () => ({
      body: signedBody('enclaveIdentity', (changes.qeIdentity ?? same)(QE_IDENTITY)),
      issuerChain: vouching(qeSigning),
    }),
    intelPckCrl: async () => ({
      crl: issueCrl(
        (changes.pckCrl ?? same)({ issuer: ISSUERS.platformCa, number: 1, ...ISSUED, revoked: [] }),
      ),
      issuerChain: '',
    }),
    intelRootCrl: async () => ({
      crl: issueCrl((changes.rootCrl ?? same)({ issuer: ISSUERS.root, number: 1, ...ISSUED, revoked: [] })),
    }),
    ...changes.answers,
  };
  const context: EvidenceContext = {
    expectedReportData: REPORT_DATA,
    coordinatorHashes: [COORDINATOR_HASH],
    roots: { snp: {}, tdx: { root: toPem(certificates({}).root) } },
    collateral,
    now: NOW,
  };
  return {
    quote: quoteOf(changes, pckChain),
    entry: (changes.entry ?? same)(ENTRY),
    context: (changes.context ?? same)(context),
  };
}
