/**
 * A SEV-SNP platform with authorities of its own, each part of which can be changed before it is signed: what
 * the fixed vectors do not vary. Its keys of elliptic curves are made once per process.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { sha256 } from '#crypto';
import { reportData, transitionDigest } from '../../../lib/attestation/document.ts';
import { idKeyDigest } from '../../../lib/attestation/snp/launch-digest.ts';
import { type TcbParts, tcbValue } from '../../../lib/attestation/snp/packed-fields.ts';
import type { SnpReport } from '../../../lib/attestation/snp/report.ts';
import type { CollateralSource, TrustRoots, VerifyInput } from '../../../lib/attestation/verify-evidence.ts';
import { encodeSnpAttestation } from '../../../simulator/evidence/messages.ts';
import { signReport as signedBy } from '../../../simulator/evidence/snp.ts';
import {
  ASK_SERIAL,
  amdExtensions,
  amdName,
  arkIssuer,
  arkRequest,
  askIssuer,
  askRequest,
  vcekParts as partsOf,
  vcekRequest,
} from '../../../simulator/pki/amd.ts';
import {
  type CertificateRequest,
  type CrlRequest,
  issueCertificate,
  issueCrl,
  type Name,
  toPem,
} from '../../../simulator/pki/certificate.ts';
import { basicConstraints, keyUsage } from '../../../simulator/pki/extensions.ts';
import { OFFLINE } from './attestation-vectors.ts';
import { RSA_KEYS } from './hardware.ts';

export const NOW = new Date('2026-12-01T00:00:00Z');
const VALID = { notBefore: new Date('2026-01-01T00:00:00Z'), notAfter: new Date('2036-01-01T00:00:00Z') };
const CURRENT = {
  thisUpdate: new Date('2026-11-01T00:00:00Z'),
  nextUpdate: new Date('2027-05-01T00:00:00Z'),
};

const p384 = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
export const KEYS = { ...RSA_KEYS, vcek: p384(), mesh: p384() };

export const ISSUERS = { ark: arkIssuer(KEYS), ask: askIssuer(KEYS) } as const;

export const TCB: TcbParts = {
  ...{ bootloader: 12, tee: 0, snp: 28, microcode: 88 },
  ...{ spl4: 0, spl5: 0, spl6: 0, spl7: 0 },
};
export const CHIP_ID = new Uint8Array(64).fill(0x5a);
const MEASUREMENT = new Uint8Array(48).fill(0x11);
const GUEST_POLICY = 0x252013an;
const COORDINATOR = Buffer.from('policy of the coordinator');

export const vcekParts = (): [string, Uint8Array][] => partsOf(CHIP_ID, TCB).map((part) => [...part]);

export const issueVcek = (changes: Partial<CertificateRequest> = {}): Uint8Array =>
  issueCertificate({ ...vcekRequest(KEYS, CHIP_ID, TCB), ...VALID, ...changes });
export const issueArk = (changes: Partial<CertificateRequest> = {}): Uint8Array =>
  issueCertificate({ ...arkRequest(KEYS), ...VALID, ...changes });
export const issueAsk = (changes: Partial<CertificateRequest> = {}): Uint8Array =>
  issueCertificate({ ...askRequest(KEYS), ...VALID, ...changes });
export const issueArkCrl = (changes: Partial<CrlRequest> = {}): Uint8Array =>
  issueCrl({ issuer: ISSUERS.ark, number: 4, ...CURRENT, revoked: [], ...changes });

export const rootsOf = (ark: Uint8Array, ask: Uint8Array): TrustRoots => ({
  snp: { Genoa: { ark: toPem(ark), ask: toPem(ask) } },
  tdx: undefined,
});

export const signReport = (report: SnpReport, key: KeyObject = KEYS.vcek): SnpReport => signedBy(report, key);

const tagged = (first: number): Uint8Array => Uint8Array.of(first, ...new Uint8Array(15));

const GOOD_TCB = tcbValue(TCB);
const GOOD_REPORT: SnpReport = {
  version: 5,
  guestSvn: 2,
  policy: GUEST_POLICY,
  familyId: tagged(1),
  imageId: tagged(2),
  vmpl: 0,
  signatureAlgo: 1,
  platformInfo: 0x24n,
  signerInfo: 0,
  reportData: new Uint8Array(64),
  measurement: MEASUREMENT,
  hostData: sha256(COORDINATOR),
  idKeyDigest: idKeyDigest(MEASUREMENT, GUEST_POLICY),
  authorKeyDigest: new Uint8Array(48),
  reportId: new Uint8Array(32).fill(7),
  reportIdMa: new Uint8Array(32).fill(0xff),
  chipId: CHIP_ID,
  ...{ currentBuild: 1, currentMinor: 58, currentMajor: 1 },
  ...{ committedBuild: 1, committedMinor: 58, committedMajor: 1 },
  ...{ reportedTcb: GOOD_TCB, currentTcb: GOOD_TCB, committedTcb: GOOD_TCB, launchTcb: GOOD_TCB },
  signature: new Uint8Array(512),
  cpuid1EaxFms: 0xa10f11,
  ...{ launchMitVector: 15n, currentMitVector: 15n },
};

export const REFERENCE_VALUE = {
  ProductName: 'Genoa',
  TrustedMeasurement: Buffer.from(MEASUREMENT).toString('hex'),
  MinimumTCB: { BootloaderVersion: 12, TEEVersion: 0, SNPVersion: 28, MicrocodeVersion: 88 },
  GuestPolicy: { ABIMinor: 58, ABIMajor: 1, SingleSocket: true, MemAES256XTS: true, PageSwapDisable: true },
  PlatformInfo: { ECCEnabled: true, AliasCheckComplete: true },
  MinimumMitigationVector: 15,
  AllowedChipIDs: [Buffer.from(CHIP_ID).toString('hex')],
};

const MESH_NAME: Name = [['CN', 'system:coordinator:intermediate']];
export const issueMeshCa = (changes: Partial<CertificateRequest> = {}): Uint8Array =>
  issueCertificate({
    issuer: { name: MESH_NAME, key: KEYS.mesh },
    subject: MESH_NAME,
    key: KEYS.mesh,
    ...VALID,
    extensions: [keyUsage('digitalSignature', 'keyCertSign'), basicConstraints(true)],
    ...changes,
  });

const MESH_CA = issueMeshCa();
const ARK = issueArk();
const ASK = issueAsk();
const VCEK = issueVcek();
const CRL = issueArkCrl();

/** What a test changes; everything else is good and consistent. */
export interface Changes {
  readonly report?: Partial<SnpReport>;
  /** Signs the report. */
  readonly reportKey?: KeyObject;
  readonly machineStepping?: number | undefined;
  /** null = none in the document. */
  readonly vcek?: Uint8Array | null;
  readonly crl?: Uint8Array | null;
  readonly roots?: TrustRoots;
  readonly snp?: readonly Readonly<Record<string, unknown>>[];
  readonly tdx?: readonly Readonly<Record<string, unknown>>[];
  readonly meshCaPem?: string;
  /** A further coordinator entry, before the one whose hash the report carries. */
  readonly secondCoordinator?: boolean;
  readonly attestationType?: readonly number[];
  readonly collateral?: Partial<CollateralSource>;
  readonly nonce?: Uint8Array;
}

/** The verifier's input for a platform with these changes. */
export function attestedBy(changes: Changes): VerifyInput {
  const nonce = changes.nonce ?? new Uint8Array(32).fill(9);
  const policies = changes.secondCoordinator ? [Buffer.from('another'), COORDINATOR] : [COORDINATOR];
  const manifest = Buffer.from(
    JSON.stringify({
      Policies: Object.fromEntries(
        policies.map((policy) => [Buffer.from(sha256(policy)).toString('hex'), { Role: 'coordinator' }]),
      ),
      ReferenceValues: { snp: changes.snp ?? [REFERENCE_VALUE], tdx: changes.tdx ?? [] },
    }),
  );
  const rootCa = Buffer.from('root CA');
  const meshCa = Buffer.from(changes.meshCaPem ?? toPem(MESH_CA));
  const given = { transition: transitionDigest([manifest]), rootCa, meshCa };
  const bound = reportData({ ...given, nonce: nonce.length === 32 ? nonce : new Uint8Array(32) });
  const report = signReport({ ...GOOD_REPORT, reportData: bound, ...changes.report }, changes.reportKey);
  const message = encodeSnpAttestation({
    report,
    vcek: (changes.vcek === undefined ? VCEK : changes.vcek) ?? undefined,
    arkCrl: (changes.crl === undefined ? CRL : changes.crl) ?? undefined,
    machineStepping: changes.machineStepping,
  });
  const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
  const document = {
    version: 'v1.24.1',
    raw_attestation_doc: base64(message),
    ...(changes.attestationType === undefined ? {} : { attestation_type: changes.attestationType }),
    manifests: [base64(manifest)],
    policies: policies.map(base64),
    root_ca: base64(rootCa),
    mesh_ca: base64(meshCa),
  };
  return {
    document: Buffer.from(JSON.stringify(document)),
    nonce,
    manifest,
    roots: changes.roots ?? rootsOf(ARK, ASK),
    collateral: { ...OFFLINE, ...changes.collateral },
    now: NOW,
    secretFollows: false,
  };
}

export { ARK, ASK, ASK_SERIAL, amdExtensions, amdName, CRL, VCEK };
