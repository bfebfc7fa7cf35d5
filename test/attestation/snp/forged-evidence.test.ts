/**
 * One defect at a time in evidence that is otherwise good: every check of SEV-SNP goes red for its own
 * reason. test/attestation/snp/verify.test.ts has the defects that the vectors hold.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { readVcekExtensions } from '../../../lib/attestation/snp/endorsement.ts';
import { idKeyDigest } from '../../../lib/attestation/snp/launch-digest.ts';
import { tcbValue } from '../../../lib/attestation/snp/packed-fields.ts';
import type { SnpReport } from '../../../lib/attestation/snp/report.ts';
import {
  type CollateralSource,
  type EvidenceVerdict,
  verify,
} from '../../../lib/attestation/verify-evidence.ts';
import { parseCertificate } from '../../../lib/attestation/x509.ts';
import { type CertificateRequest, toPem } from '../../../simulator/pki/certificate.ts';
import { ia5String, integer, octetString, sequence, utf8String } from '../../../simulator/pki/der.ts';
import {
  basicConstraints,
  type EncodedExtension,
  extendedKeyUsage,
  keyUsage,
  vendorExtension,
} from '../../../simulator/pki/extensions.ts';
import { evidenceOf, withMembers } from '../../support/evidence/attestation-vectors.ts';
import { casesOf, failed } from '../../support/evidence/cases.ts';
import {
  ARK,
  ASK,
  ASK_SERIAL,
  amdExtensions,
  amdName,
  attestedBy,
  CHIP_ID,
  type Changes,
  CRL,
  ISSUERS,
  issueArk,
  issueArkCrl,
  issueAsk,
  issueMeshCa,
  issueVcek,
  KEYS,
  NOW,
  REFERENCE_VALUE,
  rootsOf,
  TCB,
  VCEK,
  vcekParts,
} from '../../support/evidence/snp-platform.ts';
import { SNP_ROWS } from '../../support/evidence/stages.ts';

const judge = (changes: Changes): Promise<EvidenceVerdict> => verify(attestedBy(changes));
const failures = ({ checks }: EvidenceVerdict): string[] => failed(checks);
const foundBy = ({ checks }: EvidenceVerdict, id: string) => checks.find((check) => check.id === id);
const { accepts: areAccepted, refuses: areRefused } = casesOf<Changes>(async (changes) => {
  const { checks, outcome, failure } = await judge(changes);
  assert.equal(failure?.id, failed(checks)[0]);
  return { checks, isAccepted: outcome === 'accepted' };
});

const report = (changes: Partial<SnpReport>): Changes => ({ report: changes });
const vcek = (request: Partial<CertificateRequest>): Changes => ({ vcek: issueVcek(request) });
const parts = (change: (all: [string, Uint8Array][]) => [string, Uint8Array][]): Changes =>
  vcek({ extensions: amdExtensions(change(vcekParts())) });
const replaced = (suffix: string, value: Uint8Array): Changes =>
  parts((all) => all.map(([key, old]) => [key, key === suffix ? value : old]));
/** A reference value with other members. */
const entry = (members: object) => ({ ...REFERENCE_VALUE, ...members });
const { GuestPolicy, PlatformInfo } = REFERENCE_VALUE;
const OF_MILAN = { snp: [entry({ ProductName: 'Milan' })] };
const otherKey = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
const ENDED = new Date('2026-11-30T00:00:00Z');

/** A report of version 2, whose product line only the VCEK names. */
const named = (productName: string, machineStepping?: number): Changes => ({
  ...replaced('2', ia5String(productName)),
  ...report({ version: 2, cpuid1EaxFms: 0 }),
  machineStepping,
});

type Version = readonly [major: number, minor: number];

/** A guest with one ABI version, where the manifest asks for another one. */
function abi([major, minor]: Version, [ABIMajor, ABIMinor]: Version): Changes {
  const policyOf = (...version: Version) => 0x2520000n | BigInt(version[0] * 256 + version[1]);
  return {
    snp: [entry({ GuestPolicy: { ...GuestPolicy, ABIMajor, ABIMinor } })],
    report: {
      policy: policyOf(major, minor),
      idKeyDigest: idKeyDigest(new Uint8Array(48).fill(0x11), policyOf(ABIMajor, ABIMinor)),
    },
  };
}

describe('a report of SEV-SNP', () => {
  const [ours, others] = [Buffer.from(CHIP_ID).toString('hex'), '5b'.repeat(64)];
  const fromAnyOf = (...AllowedChipIDs: string[]): Changes => ({ snp: [entry({ AllowedChipIDs })] });
  areAccepted('is accepted', {
    'without a defect': {},
    'from any of several coordinators': { secondCoordinator: true },
    'from the last chip that the manifest lists': fromAnyOf(others, ours),
    'with flags that are stricter than the manifest': report({ policy: 0x3d2013an, platformInfo: 0x3cn }),
    'with ABI 2.0 where 1.157 is required': abi([2, 0], [1, 157]),
  });

  const almostOnes = new Uint8Array(32).fill(0xff).fill(0xfe, 31);
  const almostZeros = new Uint8Array(64).fill(1, 31, 32);
  areRefused('is refused with', {
    'snp.report.version': {
      'version 1': report({ version: 1, cpuid1EaxFms: 0 }),
      'version 6': report({ version: 6 }),
    },
    'snp.report.signature_algo': { 'another signature algorithm': report({ signatureAlgo: 2 }) },
    'snp.report.signing_key': {
      'a reserved bit of SIGNER_INFO': report({ signerInfo: 1 << 5 }),
      'SIGNING_KEY none': report({ signerInfo: 7 << 2 }),
    },
    'snp.report.author_key': { 'an author key': report({ signerInfo: 1 }) },
    'snp.id_block': {
      'another family id': report({ familyId: new Uint8Array(16) }),
      'another image id': report({ imageId: new Uint8Array(16).fill(2) }),
      'another guest SVN': report({ guestSvn: 3 }),
    },
    'snp.id_key': {
      'flags that the manifest allows, and the ID key of others': {
        ...report({ policy: 0x253013an, platformInfo: 0xa7n }),
        snp: [
          entry({
            GuestPolicy: { ...GuestPolicy, SMT: true },
            PlatformInfo: { ...PlatformInfo, SMTEnabled: true, TSMEEnabled: true, TIOEnabled: true },
          }),
        ],
      },
    },
    'snp.migration_agent': {
      'a migration agent': report({ reportIdMa: new Uint8Array(32) }),
      'a migration agent whose id is ones but for its last byte': report({ reportIdMa: almostOnes }),
    },
    'snp.chip_id.vcek': {
      'another chip whose id begins and ends with zeros': report({ chipId: almostZeros }),
    },
    'snp.policy.abi': {
      'ABI 1.157 where 2.0 is required': abi([1, 157], [2, 0]),
    },
    'snp.policy.form': {
      'policy bit 63': report({ policy: 0x252013an | (1n << 63n) }),
    },
    'snp.platform.form': {
      'platform bit 6': report({ platformInfo: 0x64n }),
      'platform bit 63': report({ platformInfo: (1n << 63n) | 0x24n }),
    },
    'snp.platform.tsme_en': { TSME: report({ platformInfo: 0x26n }) },
    'snp.platform.tio_en': { TIO: report({ platformInfo: 0xa4n }) },
    'snp.tcb.committed': {
      'a committed TCB below the minimum': report({ committedTcb: tcbValue({ ...TCB, snp: 27 }) }),
    },
    'snp.product': {
      Bergamo: report({ cpuid1EaxFms: 0xaa0f00 }),
    },
  });

  it('is refused if the manifest requires RAPL disabled and ciphertext hiding, and it has neither', async () => {
    const more = entry({
      GuestPolicy: { ...GuestPolicy, RAPLDis: true, CipherTextHidingDRAM: true },
      PlatformInfo: { ...PlatformInfo, RAPLDisabled: true, CiphertextHidingDRAMEnabled: true },
    });
    assert.deepEqual(failures(await judge({ snp: [more] })), [
      'snp.id_key',
      'snp.policy.rapl_dis',
      'snp.policy.ciphertext_hiding_dram',
      'snp.platform.rapl_dis',
      'snp.platform.ciphertext_hiding_dram_en',
    ]);
  });

  it('has firmware versions that are compared as a whole, and builds that are compared too', async () => {
    const versions = (committed: string, current: string): Changes => {
      const [committedMajor, committedMinor, committedBuild] = committed.split('.').map(Number);
      const [currentMajor, currentMinor, currentBuild] = current.split('.').map(Number);
      return report({
        ...{ committedMajor, committedMinor, committedBuild },
        ...{ currentMajor, currentMinor, currentBuild },
      } as Partial<SnpReport>);
    };
    for (const [older, newer] of [
      ['1.58.0', '1.58.1'],
      ['1.57.1', '1.58.1'],
      ['1.255.1', '2.0.1'],
      ['1.0.1', '2.255.1'],
    ] as const) {
      assert.deepEqual(failures(await judge(versions(older, newer))), []);
      assert.deepEqual(failures(await judge(versions(newer, older))), ['snp.firmware.version']);
    }
  });

  it('is accepted with a masked chip id if the manifest allows any chip', async () => {
    const any = { ...report({ chipId: new Uint8Array(64) }), snp: [entry({ AllowedChipIDs: [] })] };
    const masked = await judge(any);
    assert.equal(masked.outcome, 'accepted');
    for (const id of ['snp.chip_id.vcek', 'snp.chip_id.allowed'])
      assert.equal(foundBy(masked, id)?.outcome, 'not-applicable');
  });

  it('is refused with a byte that is not zero in its signature field outside R and S', async () => {
    const input = attestedBy({});
    const signature = evidenceOf(input).indexOf(Buffer.from('e2018004', 'hex')) + 4;
    for (const offset of [48, 71, 120, 143, 144, 511]) {
      const raw = evidenceOf(input);
      raw[signature + offset] = 1;
      const changed = withMembers(input, { raw_attestation_doc: raw.toString('base64') });
      assert.deepEqual(failures(await verify(changed)), ['snp.report.signature'], `${offset}`);
    }
  });
});

/** The certificate with the version number of X.509 version 2. */
function ofVersion2(der: Uint8Array): Uint8Array {
  const changed = Buffer.from(der);
  const version = changed.indexOf(Buffer.from('a003020102', 'hex'));
  assert.ok(version > 0);
  changed[version + 4] = 1;
  return changed;
}

describe('the VCEK certificate', () => {
  const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const ORGANIZATION = ['O', 'Advanced Micro Devices'] as const;
  const name = amdName('SEV-VCEK');
  const keyId = vendorExtension('2.5.29.35', octetString(new Uint8Array(1)));
  const withMore = (extension: EncodedExtension): Changes =>
    vcek({ extensions: [...amdExtensions(vcekParts()), extension] });
  const without = (suffix: string) => parts((all) => all.filter(([key]) => key !== suffix));

  areAccepted('is accepted', {
    'with the chip as OCTET STRING': replaced('4', octetString(CHIP_ID)),
    'with an authority key id': withMore(keyId),
    'as PEM': { vcek: Buffer.from(toPem(VCEK)) },
    'with a product name and a stepping that agree': named('Genoa-B1', 1),
    ...Object.fromEntries([0, 1, 2].map((digit) => [`of Genoa-B${digit}`, named(`Genoa-B${digit}`)])),
  });

  areRefused('is refused with', {
    'snp.vcek.available': { 'bytes that are no certificate': { vcek: new Uint8Array([0x30, 0]) } },
    'snp.vcek.form, snp.chain.signature': {
      'an older version': { vcek: ofVersion2(VCEK) },
      'an ECDSA signature': vcek({ issuer: { name: ISSUERS.ask.name, key: p256 } }),
    },
    'snp.vcek.form, snp.report.signature': { 'a key on another curve': vcek({ key: p256 }) },
    'snp.vcek.names': {
      'a VLEK name': vcek({ subject: amdName('SEV-VLEK') }),
      'a further attribute': vcek({ subject: [...name, ORGANIZATION] }),
      'an attribute twice in the place of another': vcek({
        subject: name.map((pair) => (pair[0] === 'C' ? ORGANIZATION : pair)),
      }),
      'a missing attribute': vcek({ subject: name.slice(1) }),
    },
    'snp.vcek.names, snp.chain.signature': {
      'the issuer of another line': vcek({ issuer: { name: amdName('SEV-Milan'), key: KEYS.ask } }),
      'a signature by the ARK': vcek({ issuer: ISSUERS.ark }),
    },
    'snp.vcek.extensions': {
      'an extension of Turin': parts((all) => [...all, ['3.9', integer(1)]]),
      'a csp_id': parts((all) => [...all, ['5', ia5String('cloud')]]),
      'a standard extension': withMore(basicConstraints(false)),
      'another structure version': replaced('1', integer(1)),
      'a product name of another type': replaced('2', utf8String('Genoa')),
      'an SPL that is no INTEGER': replaced('3.1', octetString(new Uint8Array(1))),
      'bytes after an SPL': replaced('3.1', Buffer.concat([integer(12), new Uint8Array(1)])),
      'a chip id of 8 bytes': replaced('4', octetString(new Uint8Array(8))),
      'a chip id of 65 bytes': replaced('4', new Uint8Array(65)),
      ...Object.fromEntries(vcekParts().map(([suffix]) => [`no extension .${suffix}`, without(suffix)])),
    },
    'snp.tcb.vcek, snp.tcb.vcek_current': { 'another spl_4': replaced('3.4', integer(1)) },
    'snp.product': {
      'a product name without a stepping': named('Genoa'),
      'a stepping that does not exist': named('Genoa-B3'),
      'a stepping of two digits': named('Genoa-B11'),
      'the name of another line': named('Milan-B0'),
      'the name of the line that only the manifest names': { ...named('Milan-B0'), ...OF_MILAN },
      'another stepping than the message states': named('Genoa-B1', 2),
      'another line than the reference value': { ...named('Genoa-B1'), ...OF_MILAN },
      'another line than report and reference value': { ...report({ cpuid1EaxFms: 0xa00f11 }), ...OF_MILAN },
    },
  });

  it('names a level of up to 255 for each part of the TCB', () => {
    const levels = (suffix: string, level: number) => {
      const { vcek: der } = replaced(suffix, integer(level));
      return readVcekExtensions(parseCertificate(der as Uint8Array)).tcb;
    };
    const names = ['bootloader', 'tee', 'snp', 'spl4', 'spl5', 'spl6', 'spl7', 'microcode'] as const;
    for (const [index, part] of names.entries()) {
      assert.deepEqual(levels(`3.${index + 1}`, 255), { ...TCB, [part]: 255 });
      assert.throws(() => levels(`3.${index + 1}`, 256), { code: 'evidence_malformed' });
    }
  });
});

describe('the roots of AMD', () => {
  const ark = (request: Partial<CertificateRequest>): Changes => ({ roots: rootsOf(issueArk(request), ASK) });
  const ask = (request: Partial<CertificateRequest>): Changes => ({ roots: rootsOf(ARK, issueAsk(request)) });
  const unknown = { ...keyUsage('keyCertSign'), oid: '1.2.3' };
  const caFor = (use: 'cRLSign' | 'keyCertSign') => ({ extensions: [keyUsage(use), basicConstraints(true)] });
  const misnamed = { name: amdName('ARK-Milan'), key: KEYS.ark };
  const commented = { ark: `# ARK\n${toPem(ARK)}`, ask: toPem(ASK) };
  areRefused('are refused with', {
    'snp.roots': {
      'an ARK that is no CA': ark({ extensions: [] }),
      'an ARK that may not sign certificates': ark(caFor('cRLSign')),
      'an ASK that is no CA': ask({ extensions: [] }),
      'another name': ark({ subject: amdName('ARK-Milan') }),
      'an ASK signed by itself': ask({ issuer: { name: ISSUERS.ark.name, key: KEYS.ask } }),
      'an ASK that names another issuer, although the ARK signed it': ask({ issuer: misnamed }),
      'an ARK that names another issuer, although it signed itself': ark({ issuer: misnamed }),
      'a critical extension': ask({ extensions: [basicConstraints(true), unknown] }),
      'text around the PEM': { roots: { snp: { Genoa: commented }, tdx: undefined } },
    },
    'snp.roots, snp.chain.signature': {
      'a small ASK': ask({ key: KEYS.small }),
      'an ASK with a small exponent': ask({ key: KEYS.exponent3 }),
    },
    'snp.chain.validity': {
      'an expired ASK': ask({ notAfter: ENDED }),
      'an expired ARK': ark({ notAfter: ENDED }),
    },
    'snp.crl.signature': {
      'an ARK that may not sign CRLs': ark(caFor('keyCertSign')),
    },
  });
});

describe('the revocation list of AMD', () => {
  const date = new Date('2026-11-01T00:00:00Z');
  const revoked = [{ serial: ASK_SERIAL, date }];
  const old = issueArkCrl({ thisUpdate: new Date('2026-01-01T00:00:00Z'), nextUpdate: ENDED });
  const future = issueArkCrl({ thisUpdate: new Date('2026-12-02T00:00:00Z') });
  const forged = issueArkCrl({ issuer: { name: ISSUERS.ark.name, key: KEYS.ask } });
  const misnamed = issueArkCrl({ issuer: { name: amdName('ARK-Milan'), key: KEYS.ark } });
  const serve = (crl: Uint8Array): Partial<CollateralSource> => ({ amdCrl: async () => ({ crl }) });
  const listing = (count: number): Uint8Array =>
    issueArkCrl({
      revoked: Array.from({ length: count }, (_, i) => ({ serial: (1n << 150n) + BigInt(i), date })),
    });
  const [large, small] = [listing(1900), listing(1500)];

  areAccepted('is accepted with', {
    'other serial numbers only': {
      crl: issueArkCrl({ revoked: [0n, 0x20003n].map((serial) => ({ serial, date })) }),
    },
    'less than 64 KiB in the evidence': { crl: small },
  });

  areRefused('leads to a refusal with', {
    'snp.crl.signature': {
      'a wrong signature, although a good one could be fetched': { crl: forged, collateral: serve(CRL) },
      'another issuer': { crl: misnamed, collateral: serve(CRL) },
      'a forged fetched list': { crl: null, collateral: serve(forged) },
    },
    'snp.crl.ask': {
      'the ASK on it': { crl: issueArkCrl({ revoked }) },
      'the ASK on a fetched one': { crl: null, collateral: serve(issueArkCrl({ revoked })) },
    },
    'snp.crl.current': { 'an expired fetched list': { crl: null, collateral: serve(old) } },
  });

  it('is fetched if the document has none, or one that is unreadable, too large or not in force', async () => {
    assert.ok(large.length > 65_536 && small.length < 65_536, `${large.length}, ${small.length}`);
    const due = issueArkCrl({ nextUpdate: NOW }); // another one is due at this moment
    const why = 'as the document has none that is in force';
    for (const crl of [null, new Uint8Array(10), large, old, future, due]) {
      const verdict = await judge({ crl, collateral: serve(CRL) });
      assert.deepEqual(failures(verdict), []);
      const found = `fetched, ${why}; number 04, issued 2026-11-01T00:00:00.000Z`;
      assert.equal(foundBy(verdict, 'snp.crl.available')?.found, found);
      const { failure } = await judge({ crl });
      assert.deepEqual([failure?.id, failure?.code], ['snp.crl.available', 'collateral_unavailable']);
      assert.equal(failure?.found, `offline (needed, ${why})`);
      assert.deepEqual(failure?.detail, crl === future ? { clock: 'early' } : undefined);
    }
  });

  it('leads to a rejection with the code collateral_unavailable if it cannot be fetched', async () => {
    for (const sent of [new Uint8Array(5), new Uint8Array(256 * 1024 + 1)]) {
      const { outcome, failure } = await judge({ crl: null, collateral: serve(sent) });
      assert.deepEqual([outcome, failure?.id], ['rejected', 'snp.crl.available']);
      assert.equal(failure?.code, 'collateral_unavailable', 'its host sent it, not the service');
    }
  });
});

describe('the collateral of AMD', () => {
  it('includes the VCEK, which is requested with the chip id and REPORTED_TCB if the document has none', async () => {
    const queries: unknown[] = [];
    const amdVcek: CollateralSource['amdVcek'] = (query) => {
      queries.push(query);
      return Promise.resolve(VCEK);
    };
    const verdict = await judge({ vcek: null, collateral: { amdVcek } });
    assert.deepEqual(failures(verdict), []);
    const chipId = Buffer.from(CHIP_ID).toString('hex');
    assert.deepEqual(queries, [{ product: 'Genoa', chipId, bootloader: 12, tee: 0, snp: 28, microcode: 88 }]);
  });

  const served = (der: Uint8Array): Changes => ({ vcek: null, collateral: { amdVcek: async () => der } });
  areRefused('includes a fetched VCEK, which is judged like one in the document:', {
    'snp.vcek.available': { 'an unreadable one': served(new Uint8Array(3)) },
    'snp.report.signature': { 'one of another key': served(issueVcek({ key: otherKey })) },
  });

  /** The verdict, and what AMD is asked for; it serves what is there. */
  async function askedFor(changes: Changes): Promise<readonly [asked: string, EvidenceVerdict]> {
    const asked: string[] = [];
    const serve = <T>(what: string, served: T) => {
      asked.push(what);
      return Promise.resolve(served);
    };
    const collateral = { amdVcek: () => serve('VCEK', VCEK), amdCrl: () => serve('CRL', { crl: CRL }) };
    const verdict = await judge({ ...changes, collateral });
    return [asked.join(' and '), verdict];
  }
  const debugged = report({ policy: 0x252013an | (1n << 19n) });
  const unmeasured = report({ measurement: new Uint8Array(48) });
  const vcekOfOtherChip = replaced('4', new Uint8Array(64).fill(1));
  const bare: Changes = { vcek: null, crl: null };
  const unlisted: Changes = { crl: null };

  // Nobody can complete this evidence: it is refused for what it says, not for what is missing.
  for (const [what, changes, decisive] of [
    ['another report version', { ...bare, ...report({ version: 6 }) }, 'snp.report.version'],
    ['another stated type', { ...bare, attestationType: [1, 3, 9901, 2, 2] }, 'snp.vcek.available'],
    ['a nonce of another length', { ...bare, nonce: new Uint8Array(31) }, 'nonce.length'],
    ['another measurement', { ...bare, ...unmeasured }, 'snp.vcek.available'],
    ['a guest under debug', { ...bare, ...debugged }, 'snp.vcek.available'],
    ['no pinned root', { ...bare, roots: { snp: {}, tdx: undefined } }, 'snp.vcek.available'],
    ['a signature by another key', { ...unlisted, reportKey: otherKey }, 'snp.report.signature'],
    ['a guest under debug with a VCEK', { ...unlisted, ...debugged }, 'snp.policy.debug'],
    ['a VCEK of another chip', { ...unlisted, ...vcekOfOtherChip }, 'snp.chip_id.vcek'],
    ['a VCEK of another name', { ...unlisted, ...vcek({ subject: amdName('other') }) }, 'snp.vcek.names'],
  ] as const satisfies readonly (readonly [string, Changes, string])[]) {
    it(`is not requested for evidence with ${what}, which ${decisive} refuses`, async () => {
      const [asked, { checks, failure }] = await askedFor(changes);
      assert.deepEqual([asked, failure?.id, failure?.code], ['', decisive, 'attestation_failed']);
      const ofList = checks.filter(({ id }) => id.startsWith('snp.crl.'));
      for (const check of ofList) assert.equal(check.outcome, 'not-evaluated', check.id);
    });
  }

  const demanding = entry({ MinimumMitigationVector: 255 });
  const missing: readonly (readonly [requests: string, what: string, changes: Changes])[] = [
    ['VCEK and CRL', 'both', bare],
    ['CRL', 'one of them', unlisted],
    ['VCEK', 'the other', { vcek: null }],
    ['CRL', 'it under several reference values', { crl: null, snp: [demanding, demanding, REFERENCE_VALUE] }],
  ];
  for (const [requests, what, changes] of missing) {
    it(`is requested once for evidence that lacks ${what}: ${requests}`, async () => {
      const [asked, { checks, outcome }] = await askedFor(changes);
      assert.deepEqual([asked, outcome], [requests, 'accepted']);
      const ids = checks.map(({ id }) => id).filter((id) => id.startsWith('snp.'));
      assert.deepEqual(
        ids,
        SNP_ROWS.map(({ id }) => id),
      );
    });
  }

  it('is all that is known to be wrong if it is lacking, and the evidence says what it should', async () => {
    for (const changes of [{ vcek: null }, { vcek: null, reportKey: otherKey }])
      assert.equal((await judge(changes)).failure?.code, 'collateral_unavailable');
    const [asked, { failure }] = await askedFor({ ...bare, reportKey: otherKey });
    assert.deepEqual([asked, failure?.id], ['VCEK', 'snp.report.signature']);
  });
});

describe('several reference values', () => {
  const milan = entry({ ProductName: 'Milan', MinimumMitigationVector: 16 });
  const demanding = entry({ MinimumMitigationVector: 16 });
  const [quarter, half] = ['00'.repeat(8), '00'.repeat(48)];
  const tdx = [{ MrTd: half, MrSeam: half, Rtmrs: [half, half, half, half], Xfam: quarter }];
  areAccepted('accept evidence if', {
    'the last one does': { snp: [demanding, milan, REFERENCE_VALUE] },
    'the first one does': { snp: [REFERENCE_VALUE, milan] },
    'others are for the other kind of evidence': { tdx },
  });
  areRefused('refuse evidence if', {
    'evidence.reference_values': { 'all of them are for the other kind of evidence': { snp: [], tdx } },
    'snp.mitigation.launch, snp.mitigation.current': {
      'this one is the closest': { snp: [milan, demanding] },
    },
  });
});

describe('the document around the evidence', () => {
  areRefused('is refused with', {
    'evidence.type': {
      'the type of TDX': { attestationType: [1, 3, 9901, 2, 2] },
      'a type that nobody knows': { attestationType: [1, 3, 9901, 2, 99] },
    },
  });

  it('has its policies in any order, and each of them once', async () => {
    const input = attestedBy({ secondCoordinator: true });
    const { policies } = JSON.parse(Buffer.from(input.document).toString()) as { policies: string[] };
    const reversed = await verify(withMembers(input, { policies: policies.toReversed() }));
    assert.deepEqual(failures(reversed), []);
    const repeated = await verify(withMembers(input, { policies: [...policies, policies[0]] }));
    assert.deepEqual(failures(repeated), ['document.policies']);
  });
});

describe('the mesh CA', () => {
  const mesh = (request: Partial<CertificateRequest>): Changes => ({
    meshCaPem: toPem(issueMeshCa(request)),
  });
  const otherCa = { name: [['CN', 'root']], key: KEYS.vcek } as const;
  const limitedBy = (limit: EncodedExtension): Changes =>
    mesh({ extensions: [keyUsage('digitalSignature', 'keyCertSign'), basicConstraints(true), limit] });
  const unknown = { ...keyUsage('cRLSign'), oid: '1.2.3' };
  areAccepted('is accepted if', {
    'another CA issued it, since the hardware vouches for it': mesh({ issuer: otherCa }),
  });
  areRefused('is refused with', {
    'document.mesh_ca': {
      'two certificates': { meshCaPem: toPem(issueMeshCa()).repeat(2) },
      'text before the certificate': { meshCaPem: `mesh\n${toPem(issueMeshCa())}` },
      'a certificate that is no CA': mesh({ extensions: [] }),
      'version 2, by another CA whose signature nobody checks': {
        meshCaPem: toPem(ofVersion2(issueMeshCa({ issuer: otherCa }))),
      },
      'an RSA key': mesh({ key: KEYS.small }),
      'another purpose than servers': limitedBy(extendedKeyUsage('clientAuth')),
      'a limit of names': limitedBy(vendorExtension('2.5.29.30', sequence())),
      'a self-signature by another key': mesh({ key: KEYS.vcek }),
      'an end in the past': mesh({ notAfter: ENDED }),
      'an unknown critical extension': mesh({ extensions: [basicConstraints(true), unknown] }),
    },
  });
});
