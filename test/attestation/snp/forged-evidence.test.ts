/**
 * One defect at a time in evidence that is otherwise good: every check of SEV-SNP goes red for its own
 * reason.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Check } from '../../../lib/attestation/check.ts';
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
import { RSA_KEYS } from '../../support/evidence/hardware.ts';
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
const failures = ({ checks }: EvidenceVerdict): string[] =>
  checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);

/** Every row: what is changed, and the checks that must fail, the deciding one first. */
type Case = readonly [what: string, changes: Changes, failing: readonly string[]];

async function assertCase([what, changes, failing]: Case): Promise<void> {
  const verdict = await judge(changes);
  assert.deepEqual(failures(verdict), failing, what);
  assert.notEqual(verdict.outcome, 'accepted', what);
  assert.equal(verdict.failure?.id, failing[0], what);
}

const report = (changes: Partial<SnpReport>): Changes => ({ report: changes });
const vcek = (request: Partial<CertificateRequest>): Changes => ({ vcek: issueVcek(request) });
const parts = (change: (all: [string, Uint8Array][]) => [string, Uint8Array][]): Changes =>
  vcek({ extensions: amdExtensions(change(vcekParts())) });
const replaced = (suffix: string, value: Uint8Array): Changes =>
  parts((all) => all.map(([key, old]) => [key, key === suffix ? value : old]));

it('SEV-SNP evidence without a defect is accepted', async () => {
  const verdict = await judge({});
  assert.deepEqual(failures(verdict), []);
  assert.equal(verdict.outcome, 'accepted');
});

describe('a report of SEV-SNP', () => {
  const cases: readonly Case[] = [
    ['version 1', report({ version: 1, cpuid1EaxFms: 0 }), ['snp.report.version']],
    ['version 6', report({ version: 6 }), ['snp.report.version']],
    ['another signature algorithm', report({ signatureAlgo: 2 }), ['snp.report.signature_algo']],
    ['a reserved bit of SIGNER_INFO', report({ signerInfo: 1 << 5 }), ['snp.report.signing_key']],
    ['the top bit of SIGNER_INFO', report({ signerInfo: 0x80000000 }), ['snp.report.signing_key']],
    ['SIGNING_KEY none', report({ signerInfo: 7 << 2 }), ['snp.report.signing_key']],
    ['SIGNING_KEY reserved', report({ signerInfo: 2 << 2 }), ['snp.report.signing_key']],
    ['an author key', report({ signerInfo: 1 }), ['snp.report.author_key']],
    ['another family id', report({ familyId: new Uint8Array(16) }), ['snp.id_block']],
    ['another image id', report({ imageId: new Uint8Array(16).fill(2) }), ['snp.id_block']],
    ['another guest SVN', report({ guestSvn: 3 }), ['snp.id_block']],
    ['VMPL 3', report({ vmpl: 3 }), ['snp.vmpl']],
    ['a migration agent', report({ reportIdMa: new Uint8Array(32) }), ['snp.migration_agent']],
    [
      'a migration agent whose id is ones but for its last byte',
      report({ reportIdMa: Uint8Array.of(...new Uint8Array(31).fill(0xff), 0xfe) }),
      ['snp.migration_agent'],
    ],
    [
      'another chip whose id begins and ends with zeros',
      report({ chipId: Uint8Array.of(...new Uint8Array(63), 0).fill(1, 31, 32) }),
      ['snp.chip_id.vcek'],
    ],
    ['policy bit 26', report({ policy: 0x252013an | (1n << 26n) }), ['snp.policy.form']],
    ['policy bit 63', report({ policy: 0x252013an | (1n << 63n) }), ['snp.policy.form']],
    ['platform bit 6', report({ platformInfo: 0x64n }), ['snp.platform.form']],
    ['platform bit 8', report({ platformInfo: 0x124n }), ['snp.platform.form']],
    ['platform bit 63', report({ platformInfo: (1n << 63n) | 0x24n }), ['snp.platform.form']],
    ['TSME', report({ platformInfo: 0x26n }), ['snp.platform.tsme_en']],
    ['TIO', report({ platformInfo: 0xa4n }), ['snp.platform.tio_en']],
    [
      'a committed TCB below the minimum',
      report({ committedTcb: tcbValue({ ...TCB, snp: 27 }) }),
      ['snp.tcb.committed'],
    ],
    ['a committed version above the current one', report({ committedMinor: 59 }), ['snp.firmware.version']],
    [
      'a committed major above the current one',
      report({ committedMajor: 2, committedMinor: 0 }),
      ['snp.firmware.version'],
    ],
    ['Bergamo', report({ cpuid1EaxFms: 0xaa0f00 }), ['snp.product']],
    ['Turin', report({ cpuid1EaxFms: 0xb00f21 }), ['snp.product']],
    ['a masked chip where chips are listed', report({ chipId: new Uint8Array(64) }), ['snp.chip_id.allowed']],
    [
      'another key',
      { reportKey: generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey },
      ['snp.report.signature'],
    ],
  ];
  for (const each of cases) it(`is refused with ${each[0]}`, () => assertCase(each));

  it('is accepted from any of several coordinators, and from no other workload', async () => {
    assert.deepEqual(failures(await judge({ secondCoordinator: true })), []);
    const none = { ...report({ hostData: new Uint8Array(32) }), secondCoordinator: true };
    assert.deepEqual(failures(await judge(none)), ['snp.host_data']);
  });

  it('has an ABI version that is compared as a whole, not part by part', async () => {
    const { GuestPolicy } = REFERENCE_VALUE;
    const judgeAbi = (reported: bigint, major: number, minor: number): Promise<EvidenceVerdict> => {
      const flags = 0x2520000n;
      const demanded = flags | BigInt(major * 256 + minor);
      return judge({
        snp: [{ ...REFERENCE_VALUE, GuestPolicy: { ...GuestPolicy, ABIMajor: major, ABIMinor: minor } }],
        report: {
          policy: flags | reported,
          idKeyDigest: idKeyDigest(new Uint8Array(48).fill(0x11), demanded),
        },
      });
    };
    assert.deepEqual(failures(await judgeAbi(0x200n, 1, 157)), []);
    assert.deepEqual(failures(await judgeAbi(0x19dn, 2, 0)), ['snp.policy.abi']);
    assert.deepEqual(failures(await judgeAbi(0x1ffn, 2, 0)), ['snp.policy.abi']);
    assert.deepEqual(failures(await judgeAbi(0x200n, 1, 255)), []);
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

  it('has the kind of its signing key named in words by the verdict', async () => {
    const words = ['VCEK', 'VLEK', 'reserved', 'reserved', 'reserved', 'reserved', 'reserved', 'none'];
    for (const [key, word] of words.entries()) {
      for (const [reserved, suffix] of [
        [0, ''],
        [1 << 5, ', reserved bits set'],
      ] as const) {
        const verdict = await judge(report({ signerInfo: (key << 2) | reserved }));
        const check = verdict.checks.find(({ id }) => id === 'snp.report.signing_key');
        assert.equal(check?.found, word + suffix);
      }
    }
  });

  it('is accepted with a masked chip id if the manifest allows any chip', async () => {
    const any = { ...REFERENCE_VALUE, AllowedChipIDs: [] };
    const masked = await judge({ ...report({ chipId: new Uint8Array(64) }), snp: [any] });
    assert.equal(masked.outcome, 'accepted');
    const outcome = (id: string) => masked.checks.find((check) => check.id === id)?.outcome;
    assert.equal(outcome('snp.chip_id.vcek'), 'not-applicable');
    assert.equal(outcome('snp.chip_id.allowed'), 'not-applicable');
  });

  it('is accepted from any chip that the manifest lists, and from no other', async () => {
    const [ours = ''] = REFERENCE_VALUE.AllowedChipIDs;
    const other = '5b'.repeat(64);
    for (const [listed, failing] of [
      [[other, ours], []],
      [[ours, other], []],
      [[other, other], ['snp.chip_id.allowed']],
    ] as const) {
      const snp = [{ ...REFERENCE_VALUE, AllowedChipIDs: listed }];
      assert.deepEqual(failures(await judge({ snp })), failing);
    }
  });

  it('is accepted if its flags are stricter than the manifest requires', async () => {
    const stricter = { policy: 0x252013an | (1n << 23n) | (1n << 24n), platformInfo: 0x3cn };
    assert.deepEqual(failures(await judge({ report: stricter })), []);
  });

  it('passes the policy checks with SMT if the manifest allows SMT', async () => {
    const { GuestPolicy, PlatformInfo } = REFERENCE_VALUE;
    const smt = {
      ...REFERENCE_VALUE,
      GuestPolicy: { ...GuestPolicy, SMT: true },
      PlatformInfo: { ...PlatformInfo, SMTEnabled: true, TSMEEnabled: true, TIOEnabled: true },
    };
    const verdict = await judge({ report: { policy: 0x253013an, platformInfo: 0xa7n }, snp: [smt] });
    assert.deepEqual(failures(verdict), ['snp.id_key']);
  });

  it('is refused if the manifest requires RAPL disabled and ciphertext hiding, and the report has neither', async () => {
    const { GuestPolicy, PlatformInfo } = REFERENCE_VALUE;
    const more = {
      ...REFERENCE_VALUE,
      GuestPolicy: { ...GuestPolicy, RAPLDis: true, CipherTextHidingDRAM: true },
      PlatformInfo: { ...PlatformInfo, RAPLDisabled: true, CiphertextHidingDRAMEnabled: true },
    };
    assert.deepEqual(failures(await judge({ snp: [more] })), [
      'snp.id_key',
      'snp.policy.rapl_dis',
      'snp.policy.ciphertext_hiding_dram',
      'snp.platform.rapl_dis',
      'snp.platform.ciphertext_hiding_dram_en',
    ]);
  });

  it('is refused with a byte that is not zero in its signature field outside R and S', async () => {
    const input = attestedBy({});
    const text = Buffer.from(input.document).toString();
    const { raw_attestation_doc: raw } = JSON.parse(text) as { raw_attestation_doc: string };
    const message = Buffer.from(raw, 'base64');
    const signature = message.indexOf(Buffer.from('e201800400', 'hex').subarray(0, 4)) + 4;
    for (const offset of [48, 71, 120, 143, 144, 511]) {
      const changed = Buffer.from(message);
      changed[signature + offset] = 1;
      const document = Buffer.from(text.replace(raw, changed.toString('base64')));
      assert.deepEqual(failures(await verify({ ...input, document })), ['snp.report.signature'], `${offset}`);
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
  const cases: readonly Case[] = [
    ['an older version', { vcek: ofVersion2(VCEK) }, ['snp.vcek.form', 'snp.chain.signature']],
    ['bytes that are no certificate', { vcek: new Uint8Array([0x30, 0]) }, ['snp.vcek.available']],
    ['a key on another curve', vcek({ key: p256 }), ['snp.vcek.form', 'snp.report.signature']],
    [
      'an ECDSA signature',
      vcek({ issuer: { name: ISSUERS.ask.name, key: p256 } }),
      ['snp.vcek.form', 'snp.chain.signature'],
    ],
    ['a VLEK name', vcek({ subject: amdName('SEV-VLEK') }), ['snp.vcek.names']],
    [
      'a further attribute',
      vcek({ subject: [...amdName('SEV-VCEK'), ['O', 'Advanced Micro Devices']] }),
      ['snp.vcek.names'],
    ],
    [
      'an attribute twice in the place of another',
      vcek({
        subject: amdName('SEV-VCEK').map((pair) =>
          pair[0] === 'C' ? ['O', 'Advanced Micro Devices'] : pair,
        ),
      }),
      ['snp.vcek.names'],
    ],
    ['a missing attribute', vcek({ subject: amdName('SEV-VCEK').slice(1) }), ['snp.vcek.names']],
    [
      'the issuer of another line',
      vcek({ issuer: { name: amdName('SEV-Milan'), key: KEYS.ask } }),
      ['snp.vcek.names', 'snp.chain.signature'],
    ],
    ['a signature by the ARK', vcek({ issuer: ISSUERS.ark }), ['snp.vcek.names', 'snp.chain.signature']],
    ['an extension of Turin', parts((all) => [...all, ['3.9', integer(1)]]), ['snp.vcek.extensions']],
    ['a csp_id', parts((all) => [...all, ['5', ia5String('cloud')]]), ['snp.vcek.extensions']],
    [
      'a standard extension',
      vcek({ extensions: [...amdExtensions(vcekParts()), basicConstraints(false)] }),
      ['snp.vcek.extensions'],
    ],
    ['another structure version', replaced('1', integer(1)), ['snp.vcek.extensions']],
    ['a product name of another type', replaced('2', utf8String('Genoa')), ['snp.vcek.extensions']],
    ['an SPL above 255', replaced('3.8', integer(256)), ['snp.vcek.extensions']],
    ['an SPL that is no INTEGER', replaced('3.1', octetString(new Uint8Array(1))), ['snp.vcek.extensions']],
    [
      'bytes after an SPL',
      replaced('3.1', Buffer.concat([integer(12), new Uint8Array(1)])),
      ['snp.vcek.extensions'],
    ],
    ['a chip id of 8 bytes', replaced('4', octetString(new Uint8Array(8))), ['snp.vcek.extensions']],
    ['a chip id of 65 bytes', replaced('4', new Uint8Array(65)), ['snp.vcek.extensions']],
    ['the id of another chip', replaced('4', new Uint8Array(64).fill(1)), ['snp.chip_id.vcek']],
    ['another spl_4', replaced('3.4', integer(1)), ['snp.tcb.vcek', 'snp.tcb.vcek_current']],
    [
      'a validity that has not begun',
      vcek({ notBefore: new Date('2026-12-02T00:00:00Z') }),
      ['snp.chain.validity'],
    ],
  ];
  for (const each of cases) it(`is refused with ${each[0]}`, () => assertCase(each));

  for (const suffix of vcekParts().map(([key]) => key)) {
    it(`is refused without the extension .${suffix}`, () =>
      assertCase([suffix, parts((all) => all.filter(([key]) => key !== suffix)), ['snp.vcek.extensions']]));
  }

  it('is accepted with the chip as OCTET STRING, with an authority key id, and as PEM', async () => {
    const keyId = vendorExtension('2.5.29.35', octetString(new Uint8Array(1)));
    for (const changes of [
      replaced('4', octetString(CHIP_ID)),
      vcek({ extensions: [...amdExtensions(vcekParts()), keyId] }),
      { vcek: Buffer.from(toPem(VCEK)) },
    ]) {
      assert.deepEqual(failures(await judge(changes)), []);
    }
  });

  it('is of the line that report and reference value name, whatever they say', async () => {
    const milan = [{ ...REFERENCE_VALUE, ProductName: 'Milan' }];
    const v2 = { ...replaced('2', ia5String('Genoa-B1')), report: { version: 2, cpuid1EaxFms: 0 } };
    assert.deepEqual(failures(await judge(v2)), []);
    for (const changes of [v2, report({ cpuid1EaxFms: 0xa00f11 })])
      assert.deepEqual(failures(await judge({ ...changes, snp: milan })), ['snp.product']);
  });

  it('determines the product of a version 2 report, including the stepping', async () => {
    const v2 = { version: 2, cpuid1EaxFms: 0 };
    const named = (name: string, machineStepping?: number): Changes => ({
      ...replaced('2', ia5String(name)),
      report: v2,
      machineStepping,
    });
    assert.deepEqual(failures(await judge(named('Genoa-B1'))), []);
    assert.deepEqual(failures(await judge(named('Genoa-B1', 1))), []);
    for (const bad of [
      named('Genoa'),
      named('Genoa-B3'),
      named('Milan-B0'),
      named('Genoa-B1', 2),
      named('Genoa-B11'),
    ]) {
      assert.deepEqual(failures(await judge(bad)), ['snp.product']);
    }
    for (const [stepping, exists] of [true, true, true, false].entries()) {
      const failing = failures(await judge(named(`Genoa-B${stepping}`)));
      assert.deepEqual(failing, exists ? [] : ['snp.product']);
    }
    const milan = [{ ...REFERENCE_VALUE, ProductName: 'Milan' }];
    assert.deepEqual(failures(await judge({ ...named('Milan-B0'), snp: milan })), ['snp.product']);
  });

  it('names a level of up to 255 for each part of the TCB', () => {
    const levels = (suffix: string, level: number) => {
      const extensions = vcekParts().map(
        ([key, old]) => [key, key === suffix ? integer(level) : old] as [string, Uint8Array],
      );
      return readVcekExtensions(parseCertificate(issueVcek({ extensions: amdExtensions(extensions) }))).tcb;
    };
    for (const [index, part] of (
      ['bootloader', 'tee', 'snp', 'spl4', 'spl5', 'spl6', 'spl7', 'microcode'] as const
    ).entries()) {
      assert.deepEqual(levels(`3.${index + 1}`, 255), { ...TCB, [part]: 255 });
      assert.throws(() => levels(`3.${index + 1}`, 256), { code: 'evidence_malformed' });
    }
  });
});

describe('the roots of AMD', () => {
  const ark = (request: Partial<CertificateRequest>): Changes => ({ roots: rootsOf(issueArk(request), ASK) });
  const ask = (request: Partial<CertificateRequest>): Changes => ({ roots: rootsOf(ARK, issueAsk(request)) });
  const unknown = { ...keyUsage('keyCertSign'), oid: '1.2.3' };
  const cases: readonly Case[] = [
    ['an ARK that is no CA', ark({ extensions: [] }), ['snp.roots']],
    [
      'an ARK that may not sign certificates',
      ark({ extensions: [keyUsage('cRLSign'), basicConstraints(true)] }),
      ['snp.roots'],
    ],
    ['an ASK that is no CA', ask({ extensions: [] }), ['snp.roots']],
    ['a small ASK', ask({ key: KEYS.small }), ['snp.roots', 'snp.chain.signature']],
    ['an ASK with a small exponent', ask({ key: RSA_KEYS.exponent3 }), ['snp.roots', 'snp.chain.signature']],
    ['another name', ark({ subject: amdName('ARK-Milan') }), ['snp.roots']],
    ['an ASK signed by itself', ask({ issuer: { name: ISSUERS.ark.name, key: KEYS.ask } }), ['snp.roots']],
    [
      'an ASK that names another issuer, although the ARK signed it',
      ask({ issuer: { name: amdName('ARK-Milan'), key: KEYS.ark } }),
      ['snp.roots'],
    ],
    [
      'an ARK that names another issuer, although it signed itself',
      ark({ issuer: { name: amdName('ARK-Milan'), key: KEYS.ark } }),
      ['snp.roots'],
    ],
    ['a critical extension', ask({ extensions: [basicConstraints(true), unknown] }), ['snp.roots']],
    ['an expired ASK', ask({ notAfter: new Date('2026-11-30T00:00:00Z') }), ['snp.chain.validity']],
    ['an expired ARK', ark({ notAfter: new Date('2026-11-30T00:00:00Z') }), ['snp.chain.validity']],
    [
      'an ARK that may not sign CRLs',
      ark({ extensions: [keyUsage('keyCertSign'), basicConstraints(true)] }),
      ['snp.crl.signature'],
    ],
    [
      'text around the PEM',
      { roots: { snp: { Genoa: { ark: `# ARK\n${toPem(ARK)}`, ask: toPem(ASK) } }, tdx: undefined } },
      ['snp.roots'],
    ],
  ];
  for (const each of cases) it(`are refused with ${each[0]}`, () => assertCase(each));
});

describe('the revocation list of AMD', () => {
  const date = new Date('2026-11-01T00:00:00Z');
  const revoked = [{ serial: ASK_SERIAL, date }];
  const old = issueArkCrl({
    thisUpdate: new Date('2026-01-01T00:00:00Z'),
    nextUpdate: new Date('2026-11-30T00:00:00Z'),
  });
  const future = issueArkCrl({ thisUpdate: new Date('2026-12-02T00:00:00Z') });
  const forged = issueArkCrl({ issuer: { name: ISSUERS.ark.name, key: KEYS.ask } });
  const serve = (crl: Uint8Array): Partial<CollateralSource> => ({ amdCrl: async () => ({ crl }) });

  const cases: readonly Case[] = [
    [
      'a wrong signature, although a good one could be fetched',
      { crl: forged, collateral: serve(CRL) },
      ['snp.crl.signature'],
    ],
    [
      'another issuer',
      { crl: issueArkCrl({ issuer: { name: amdName('ARK-Milan'), key: KEYS.ark } }), collateral: serve(CRL) },
      ['snp.crl.signature'],
    ],
    ['the ASK on it', { crl: issueArkCrl({ revoked }) }, ['snp.crl.ask']],
    ['the ASK on a fetched one', { crl: null, collateral: serve(issueArkCrl({ revoked })) }, ['snp.crl.ask']],
    ['no list and no network', { crl: null }, ['snp.crl.available']],
    ['an expired list and no network', { crl: old }, ['snp.crl.available']],
    ['a list of the future and no network', { crl: future }, ['snp.crl.available']],
    ['an unreadable list and no network', { crl: new Uint8Array(10) }, ['snp.crl.available']],
    ['an expired fetched list', { crl: null, collateral: serve(old) }, ['snp.crl.current']],
    ['a fetched list of the future', { crl: null, collateral: serve(future) }, ['snp.crl.current']],
    ['a forged fetched list', { crl: null, collateral: serve(forged) }, ['snp.crl.signature']],
    [
      'an unreadable fetched list',
      { crl: null, collateral: serve(new Uint8Array(5)) },
      ['snp.crl.available'],
    ],
  ];
  for (const each of cases) it(`leads to a refusal with ${each[0]}`, () => assertCase(each));

  const listOf = ({ checks }: EvidenceVerdict): Check | undefined =>
    checks.find(({ id }) => id === 'snp.crl.available');

  it('is fetched if the document has none, or one that is unreadable or not current', async () => {
    const due = issueArkCrl({ nextUpdate: NOW }); // another one is due at this moment
    for (const crl of [null, new Uint8Array(10), old, future, due]) {
      const verdict = await judge({ crl, collateral: serve(CRL) });
      assert.deepEqual(failures(verdict), []);
      assert.equal(
        listOf(verdict)?.found,
        'fetched, as the document has none that is in force; number 04, issued 2026-11-01T00:00:00.000Z',
      );
      const offline = await judge({ crl });
      assert.match(offline.failure?.found ?? '', /\(needed, as the document has none that is in force\)$/);
    }
  });

  it('has a check that shows its age, and whether the sender of the evidence chose it', async () => {
    const older = issueArkCrl({ thisUpdate: new Date('2026-10-20T00:00:00Z') });
    const amdCrl = async () => ({ crl: older, stored: { fetchedAt: NOW.getTime(), because: 'no network' } });
    const age = ({ checks }: EvidenceVerdict) => {
      const { outcome, found } = checks.find(({ id }) => id === 'snp.crl.age') ?? {};
      return [outcome, found];
    };
    for (const [verdict, words] of [
      [judge({}), 'issued 2026-11-01T00:00:00.000Z; chosen by whoever sent the evidence'],
      [judge({ crl: older }), 'issued 2026-10-20T00:00:00.000Z; chosen by whoever sent the evidence'],
      [
        judge({ crl: null, collateral: serve(CRL) }),
        'issued 2026-11-01T00:00:00.000Z; not from the evidence',
      ],
      [
        judge({ crl: null, collateral: { amdCrl } }),
        'issued 2026-10-20T00:00:00.000Z; not from the evidence',
      ],
    ] as const)
      assert.deepEqual(age(await verdict), ['pass', words]);
    assert.deepEqual(age(await judge({ crl: null })), ['not-evaluated', 'an earlier check failed']);
  });

  it('has its age in the verdict, which says when a list was stored and why a stored list is used', async () => {
    const day = 86_400;
    const { age, found } = listOf(await judge({})) ?? {};
    assert.deepEqual(
      [age, found],
      [30 * day, 'from the document; number 04, issued 2026-11-01T00:00:00.000Z'],
    );
    const stored = { fetchedAt: NOW.getTime() - 3 * 3600_000, because: 'kdsintf.amd.com does not resolve' };
    const amdCrl = async () => ({ crl: CRL, stored });
    const instead = listOf(await judge({ crl: null, collateral: { amdCrl } }));
    assert.equal(instead?.age, 30 * day);
    assert.equal(
      instead?.found,
      'stored at 2026-11-30T21:00:00.000Z, because it could not be fetched now (kdsintf.amd.com does not resolve); number 04, issued 2026-11-01T00:00:00.000Z',
    );
  });

  it('is taken from the evidence if it has less than 64 KiB there, and is fetched if it has more', async () => {
    const listing = (count: number): Uint8Array =>
      issueArkCrl({
        revoked: Array.from({ length: count }, (_, i) => ({ serial: (1n << 150n) + BigInt(i), date })),
      });
    const [large, small] = [listing(1900), listing(1500)];
    assert.ok(large.length > 65_536 && small.length < 65_536, `${large.length}, ${small.length}`);
    const verdict = await judge({ crl: large, collateral: serve(CRL) });
    assert.match(listOf(verdict)?.found ?? '', /^fetched, /);
    assert.match(listOf(await judge({ crl: small }))?.found ?? '', /^from the document/);
  });

  it('is accepted if it lists only other serial numbers', async () => {
    const crl = issueArkCrl({
      revoked: [
        { serial: 0n, date },
        { serial: 0x20003n, date },
      ],
    });
    assert.deepEqual(failures(await judge({ crl })), []);
  });

  it('leads to a rejection with the code collateral_unavailable if it cannot be fetched', async () => {
    const verdict = await judge({ crl: null });
    assert.equal(verdict.failure?.code, 'collateral_unavailable');
    for (const sent of [new Uint8Array(5), new Uint8Array(256 * 1024 + 1)]) {
      const answered = await judge({ crl: null, collateral: serve(sent) });
      assert.equal(answered.failure?.code, 'collateral_unavailable', 'its host sent it, not the service');
    }
    assert.equal(verdict.outcome, 'rejected');
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
    assert.deepEqual(queries, [
      {
        product: 'Genoa',
        chipId: Buffer.from(CHIP_ID).toString('hex'),
        bootloader: 12,
        tee: 0,
        snp: 28,
        microcode: 88,
      },
    ]);
  });

  it('includes a fetched VCEK, which is judged like one in the document', async () => {
    const serve = (vcek: Uint8Array): Changes => ({
      vcek: null,
      collateral: { amdVcek: () => Promise.resolve(vcek) },
    });
    assert.deepEqual(failures(await judge(serve(new Uint8Array(3)))), ['snp.vcek.available']);
    const other = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
    assert.deepEqual(failures(await judge(serve(issueVcek({ key: other })))), ['snp.report.signature']);
  });

  /** What AMD is asked for; it serves what is there. */
  async function askedFor(changes: Changes): Promise<readonly [asked: readonly string[], EvidenceVerdict]> {
    const asked: string[] = [];
    const serve = <T>(name: string, served: T) => {
      asked.push(name);
      return Promise.resolve(served);
    };
    const collateral = { amdVcek: () => serve('VCEK', VCEK), amdCrl: () => serve('CRL', { crl: CRL }) };
    const verdict = await judge({ ...changes, collateral });
    return [asked, verdict];
  }
  const unendorsed: Changes = { vcek: null, crl: null };
  const unlisted: Changes = { crl: null };
  const otherKey = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;

  for (const [what, changes, requests] of [
    ['another report version', { ...unendorsed, report: { version: 6 } }, []],
    ['another stated type', { ...unendorsed, attestationType: [1, 3, 9901, 2, 2] }, []],
    ['a nonce of another length', { ...unendorsed, nonce: new Uint8Array(31) }, []],
    ['another measurement', { ...unendorsed, report: { measurement: new Uint8Array(48) } }, []],
    ['a guest under debug', { ...unendorsed, report: { policy: 0x252013an | (1n << 19n) } }, []],
    ['a chip that is not allowed', { ...unendorsed, report: { chipId: new Uint8Array(64).fill(7) } }, []],
    ['another product line', { ...unendorsed, snp: [{ ...REFERENCE_VALUE, ProductName: 'Milan' }] }, []],
    ['old firmware', { ...unendorsed, report: { reportedTcb: tcbValue({ ...TCB, snp: 27 }) } }, []],
    ['no pinned root', { ...unendorsed, roots: { snp: {}, tdx: undefined } }, []],
    ['no VCEK, and a signature by another key', { ...unendorsed, reportKey: otherKey }, ['VCEK']],
    ['a signature by another key', { ...unlisted, reportKey: otherKey }, []],
    ['a guest under debug with a VCEK', { ...unlisted, report: { policy: 0x252013an | (1n << 19n) } }, []],
    ['a VCEK of another chip', { ...unlisted, ...replaced('4', new Uint8Array(64).fill(1)) }, []],
    ['a VCEK of another name', { ...unlisted, ...vcek({ subject: amdName('other') }) }, []],
    ['no VCEK and no CRL', unendorsed, ['VCEK', 'CRL']],
    ['no CRL', unlisted, ['CRL']],
    ['no VCEK', { vcek: null }, ['VCEK']],
  ] as const satisfies readonly (readonly [string, Changes, readonly string[]])[]) {
    it(`is requested for evidence with ${what}: ${requests.join(', ') || 'nothing'}`, async () => {
      const [asked, { checks, outcome }] = await askedFor(changes);
      assert.deepEqual(asked, requests);
      const ofList = checks.filter(({ id }) => id.startsWith('snp.crl.'));
      const isMade = outcome === 'accepted';
      for (const check of ofList) assert.equal(check.outcome, isMade ? 'pass' : 'not-evaluated', check.id);
      const ids = checks.map(({ id }) => id).filter((id) => id.startsWith('snp.'));
      if (ids.length > 0)
        assert.deepEqual(
          ids,
          SNP_ROWS.map(({ id }) => id),
        );
    });
  }

  it('is requested once, however many reference values there are', async () => {
    let asked = 0;
    const amdCrl: CollateralSource['amdCrl'] = async () => {
      asked++;
      return { crl: CRL };
    };
    const other = { ...REFERENCE_VALUE, MinimumMitigationVector: 255 };
    const verdict = await judge({ crl: null, collateral: { amdCrl }, snp: [other, other, REFERENCE_VALUE] });
    assert.equal(verdict.outcome, 'accepted');
    assert.equal(asked, 1);
  });
});

describe('evidence of SEV-SNP that nobody can complete', () => {
  const own = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
  const debugged: Changes = { report: { policy: 0x252013an | (1n << 19n) } };
  const foreign: Changes = {
    report: { measurement: new Uint8Array(48), chipId: new Uint8Array(64).fill(7), ...debugged.report },
    reportKey: own,
  };
  for (const [what, changes, decisive] of [
    ['a made-up report without a VCEK', { ...foreign, vcek: null }, 'snp.vcek.available'],
    ['a made-up report with a VCEK and no CRL', { ...foreign, crl: null }, 'snp.report.signature'],
    ['a report of a guest under debug, without a VCEK', { ...debugged, vcek: null }, 'snp.vcek.available'],
    ['a report of a guest under debug, without a CRL', { ...debugged, crl: null }, 'snp.policy.debug'],
    ['a report by another key, without a CRL', { reportKey: own, crl: null }, 'snp.report.signature'],
  ] as const satisfies readonly (readonly [string, Changes, string])[]) {
    it(`is rejected for what it says, not for what is missing: ${what}`, async () => {
      const { outcome, failure } = await judge(changes);
      assert.deepEqual([outcome, failure?.id], ['rejected', decisive]);
      assert.equal(failure?.code, 'attestation_failed');
      const cause = /because (.*) fails$/.exec(failure?.found ?? '')?.[1];
      if (decisive === 'snp.vcek.available')
        assert.match(cause ?? '', /^snp\.(?:measurement|policy\.debug)$/);
    });
  }

  it('lacks collateral, and nothing else is known, if all that it says is right', async () => {
    for (const changes of [{ vcek: null }, { crl: null }, { vcek: null, reportKey: own }])
      assert.equal((await judge(changes)).failure?.code, 'collateral_unavailable');
  });
});

describe('the policy documents of a response', () => {
  const withPolicies = (
    change: (policies: readonly string[]) => readonly string[],
  ): Promise<EvidenceVerdict> => {
    const input = attestedBy({ secondCoordinator: true });
    const document = JSON.parse(Buffer.from(input.document).toString()) as { policies: readonly string[] };
    const changed = { ...document, policies: change(document.policies) };
    return verify({ ...input, document: Buffer.from(JSON.stringify(changed)) });
  };

  it('are accepted in any order, and refused if one is missing, extra or repeated', async () => {
    assert.deepEqual(failures(await withPolicies((all) => all.toReversed())), []);
    for (const change of [
      (all: readonly string[]) => all.slice(1),
      (all: readonly string[]) => [...all, 'bW9yZQ=='],
      (all: readonly string[]) => [...all, ...all.slice(0, 1)],
    ]) {
      assert.deepEqual(failures(await withPolicies(change)), ['document.policies']);
    }
  });
});

describe('several reference values', () => {
  const milan = { ...REFERENCE_VALUE, ProductName: 'Milan', MinimumMitigationVector: 16 };
  const demanding = { ...REFERENCE_VALUE, MinimumMitigationVector: 16 };

  it('accept evidence if any of them does, and list the checks of that one', async () => {
    for (const snp of [
      [milan, REFERENCE_VALUE],
      [REFERENCE_VALUE, milan],
      [demanding, milan, REFERENCE_VALUE],
    ]) {
      assert.deepEqual(failures(await judge({ snp })), []);
    }
  });

  it('fail evidence.reference_values if all of them are for the other kind of evidence', async () => {
    const [quarter, half] = ['00'.repeat(8), '00'.repeat(48)];
    const tdx = [{ MrTd: half, MrSeam: half, Rtmrs: [half, half, half, half], Xfam: quarter }];
    assert.deepEqual(failures(await judge({ snp: [], tdx })), ['evidence.reference_values']);
    assert.deepEqual(failures(await judge({ tdx })), []);
  });

  it('list the checks of the closest one if none accepts', async () => {
    const verdict = await judge({ snp: [milan, demanding] });
    assert.deepEqual(failures(verdict), ['snp.mitigation.launch', 'snp.mitigation.current']);
    assert.equal(verdict.outcome, 'rejected');
  });
});

describe('the mesh CA', () => {
  const issued = (request: Partial<CertificateRequest> = {}): string => toPem(issueMeshCa(request));
  const otherCa = { name: [['CN', 'root']], key: KEYS.vcek } as const;
  const limitedBy = (limit: EncodedExtension): string =>
    issued({ extensions: [keyUsage('digitalSignature', 'keyCertSign'), basicConstraints(true), limit] });
  const unknown = { ...keyUsage('cRLSign'), oid: '1.2.3' };
  const cases: readonly (readonly [what: string, meshCaPem: string])[] = [
    ['two certificates', issued().repeat(2)],
    ['text before the certificate', `mesh\n${issued()}`],
    ['a certificate that is no CA', issued({ extensions: [] })],
    [
      'version 2, by another CA whose signature nobody checks',
      toPem(ofVersion2(issueMeshCa({ issuer: otherCa }))),
    ],
    ['a beginning in the future', issued({ notBefore: new Date('2026-12-02T00:00:00Z') })],
    ['an RSA key', issued({ key: KEYS.small })],
    ['another purpose than servers', limitedBy(extendedKeyUsage('clientAuth'))],
    ['a limit of names', limitedBy(vendorExtension('2.5.29.30', sequence()))],
    ['a self-signature by another key', issued({ key: KEYS.vcek })],
    ['an end in the past', issued({ notAfter: new Date('2026-11-30T00:00:00Z') })],
    ['an unknown critical extension', issued({ extensions: [basicConstraints(true), unknown] })],
  ];
  for (const [what, meshCaPem] of cases) {
    it(`is refused with ${what}`, () => assertCase([what, { meshCaPem }, ['document.mesh_ca']]));
  }

  it('is accepted if another CA issued it, since the hardware vouches for it', async () => {
    assert.deepEqual(failures(await judge({ meshCaPem: issued({ issuer: otherCa }) })), []);
  });
});

describe('attestation_type', () => {
  it('is accepted if it is absent or the type of SEV-SNP, and refused otherwise', async () => {
    assert.deepEqual(failures(await judge({ attestationType: [1, 3, 9901, 2, 1] })), []);
    for (const attestationType of [[1, 3, 9901, 2, 2], [1, 3, 9901, 2, 3], [1, 3, 9901, 2, 99], [1]]) {
      assert.deepEqual(failures(await judge({ attestationType })), ['evidence.type']);
    }
    assert.deepEqual(failures(await judge({ attestationType: [] })), ['document.form']);
  });
});
