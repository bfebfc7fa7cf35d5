import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type ReceiptRecord, sha256, signedLine } from '../../lib/receipts/receipt.ts';
import { judge } from '../../lib/verdict/judge.ts';
import { readRecord } from '../../lib/verdict/record.ts';
import { VERSION } from '../../lib/version.ts';
import { watchConnections } from '../support/doors/connections.ts';
import { recordOf, savedFlags, secretOf, type Verified, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const SET = 'synthetic_v158';
const GOOD = recordOf(SET);
const GOOD_SHA256 = sha256(JSON.stringify(GOOD));
const verifyRecord = (record: object | string, ...more: string[]): Promise<Verified> =>
  verifyCommand([...savedFlags(record), '--json', ...more]);
const inBase64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');
const OF_OTHER_CA = secretOf('synthetic', 'negative/secret_cert_other_ca.json');

describe('verify --saved', () => {
  for (const [what, change, code, id] of [
    ['another manifest', { manifest: recordOf('synthetic').manifest }, 10, 'manifest.expected'],
    ['another nonce', { nonce: Buffer.alloc(32).toString('base64') }, 10, 'snp.report_data'],
    ['a nonce of another length', { nonce: 'AAAA' }, 10, 'nonce.length'],
    ['other roots', { roots: recordOf('synthetic')['roots'] }, 10, undefined],
    ['no roots, so those of the vendors', { roots: undefined }, 10, undefined],
    ['roots that are no certificates', { roots: { snp: { Genoa: { ark: 'a', ask: 'b' } } } }, 30, undefined],
    ['a document that is none', { document: inBase64('hello') }, 30, 'document.form'],
    ['the secret of another mesh CA', { secret: OF_OTHER_CA }, 10, 'mesh.certificate.signature'],
  ] as const) {
    it(`refuses a record with ${what}`, async () => {
      const ran = await verifyRecord({ ...GOOD, ...change });
      assert.equal(ran.code, code, ran.stdout);
      if (id !== undefined) assert.equal(ran.json().failure?.id, id);
    });
  }

  it('refuses as unsupported a manifest with a rule that this version does not know', async () => {
    const manifest = inBase64({ ...JSON.parse(atob(GOOD.manifest)), FutureRule: true });
    const document = inBase64({ ...JSON.parse(atob(GOOD.document)), manifests: [manifest] });
    const { code, stdout } = await verifyCommand(savedFlags({ ...GOOD, manifest, document }));
    assert.equal(code, 20);
    assert.match(stdout, /^✗ UNSUPPORTED: /m);
    assert.match(stdout, /unmarshaling/);
    assert.match(stdout, /FutureRule/);
  });

  it('judges by the time that the record states, else by --at, in any form of RFC 3339', async () => {
    const later = { now: '2040-01-01T00:00:00Z' };
    const { code, stdout } = await verifyCommand(savedFlags(GOOD), later);
    assert.equal(code, 0);
    assert.match(stdout, /^Time {6}2026-12-01T00:00:00\.000Z, stated by the file$/m);
    const given = await verifyCommand([...savedFlags(GOOD), '--at', '2026-12-01T00:00:00Z']);
    assert.match(given.stdout, /^Time {6}2026-12-01T00:00:00\.000Z$/m);
    assert.equal((await verifyRecord(GOOD, '--at', '2040-01-01T00:00:00Z')).code, 10);
    for (const at of ['2026-12-01t01:00:00+01:00', '2026-11-30T19:00:00.0000001-05:00'])
      assert.equal((await verifyRecord(GOOD, '--at', at)).json().at, '2026-12-01T00:00:00.000Z');
  });

  it('marks custom roots in the first line, in the heading and on stderr, and exits with 35 without --accept-custom-roots', async () => {
    const flags = savedFlags(GOOD);
    const { code, stdout, stderr } = await verifyCommand(flags.slice(0, 2));
    assert.equal(code, 35);
    const words =
      /!! WARNING: the record .*record\.json names other hardware roots than those of AMD and Intel\./;
    assert.match(stderr, words);
    assert.match(stdout, /^! ACCEPTED under custom roots/);
    assert.match(stdout, /^Roots +those of .*, NOT those of AMD and Intel$/m);
    assert.match(stdout, /says nothing about real hardware/);
    assert.equal((await verifyCommand(flags)).code, 0);
    const late = await verifyCommand([...flags.slice(0, 2), '--at', '2040-01-01T00:00:00Z']);
    assert.equal(late.code, 10, 'what is refused keeps its code');
  });

  it('names the rows in which the record states another verdict, and the version that made it', async () => {
    const { subject, time } = readRecord(Buffer.from(JSON.stringify(GOOD)), (defect) => new Error(defect));
    const verdict = await judge({ ...subject, now: time });
    const shown = async (stated: object, version = VERSION) =>
      (await verifyRecord({ ...GOOD, version, verdict: stated })).stderr
        .split('\n')
        .filter((text) => text.startsWith('Warning'))
        .join();
    assert.equal(await shown(verdict), '');
    const checks = verdict.checks.map((row) => (row.id === 'snp.vmpl' ? { ...row, found: '3' } : row));
    const HEAD = 'Warning: the record states another verdict, made by';
    const ofThis = new RegExp(`^${HEAD} version ${VERSION}; .* differ: "snp\\.vmpl"`);
    assert.match(await shown({ ...verdict, checks }), ofThis);
    const ofOther = new RegExp(`^${HEAD} version 9\\\\u\\{1b\\}\\.9; .* differ: outcome`);
    assert.match(await shown({ ...verdict, outcome: '\u001b[2J' }, '9\u001b.9'), ofOther);
    assert.match(await shown({ checks: [null, 7, { id: { toString: 1 } }] }), /differ: .*failure/);
  });

  it('refuses a file whose name is the SHA-256 of another record', async () => {
    const directory = temporaryDirectory('record-');
    const saved = (name: string) => {
      writeFileSync(join(directory, name), JSON.stringify(GOOD));
      return verifyCommand(['--saved', join(directory, name), '--accept-custom-roots']);
    };
    for (const name of [`${GOOD_SHA256}.json`, 'any.json'])
      assert.match((await saved(name)).stdout, new RegExp(`^Exchange {2}SHA-256 ${GOOD_SHA256}$`, 'm'));
    const other = await saved(`${'0'.repeat(64)}.json`);
    assert.equal(other.code, 30);
    assert.match(other.stdout, /it is another record than its name says/);
  });

  it('opens no connection', async (t) => {
    const connections = watchConnections();
    t.after(() => connections.end());
    assert.equal((await verifyRecord(GOOD)).code, 0);
    assert.deepEqual(connections.targets(), []);
  });
});

describe('--receipts-dir', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  const epoch = (time: string, record = GOOD_SHA256): ReceiptRecord => ({
    ...{ type: 'epoch', time, secretId: 's', manifestSha256: 'ab'.repeat(32), roots: 'custom', record },
  });
  /** Verifies GOOD beside receipts, which begin by naming `publicKey` and go on with an epoch. */
  function verifyBeside(line: ReceiptRecord, signer = privateKey, first = privateKey) {
    const workspace = temporaryDirectory('receipts-');
    const opened = {
      type: 'opened',
      time: '',
      version: '1',
      key: spki.toString('base64'),
      found: {},
    } as const;
    const signed = (record: ReceiptRecord, seq: number, key: KeyObject) =>
      `${signedLine({ instance: 'abcdefabcdef', seq, prev: '0'.repeat(64) }, record, key)}\n`;
    mkdirSync(join(workspace, 'receipts'));
    const file = join(workspace, 'receipts', '2026-12-01.abcdefabcdef.jsonl');
    writeFileSync(file, signed(opened, 0, first) + signed(line, 1, signer));
    return verifyCommand([...savedFlags(GOOD), '--receipts-dir', workspace]);
  }

  it('takes the time from the receipt that names the record, and says which key signed it', async () => {
    const { code, stdout } = await verifyBeside(epoch('2026-12-01T00:00:01.000Z'));
    assert.equal(code, 0);
    const whose = `stated by a receipt signed with key SHA-256 ${sha256(spki)}`;
    assert.match(stdout, new RegExp(`^Time {6}2026-12-01T00:00:01\\.000Z, ${whose}$`, 'm'));
    const late = await verifyBeside(epoch('2040-01-01T00:00:00.000Z'));
    assert.equal(late.code, 10, late.stdout);
    assert.match(late.stderr, /^Warning: the time 2040-.* lies in the future/m);
  });

  it('refuses receipts in which no sound line names the record', async () => {
    const time = '2026-12-01T00:00:01.000Z';
    const { privateKey: other } = generateKeyPairSync('ed25519');
    for (const ran of [
      await verifyBeside(epoch(time, sha256('another record'))),
      await verifyBeside(epoch(time), other),
      await verifyBeside(epoch(time), privateKey, other),
      await verifyBeside(epoch('yesterday')),
      await verifyBeside({ type: 'lost', time: `${time} ${GOOD_SHA256}`, count: 1 }),
    ]) {
      assert.equal(ran.code, 30, ran.stdout);
      assert.match(ran.stdout, /^Reason: .* no signed receipt in it .* \[verify_input_invalid\]$/m);
    }
    const missing = await verifyRecord(GOOD, '--receipts-dir', join(temporaryDirectory('receipts-'), 'none'));
    assert.deepEqual([missing.code, missing.json().failure?.code], [30, 'verify_input_invalid']);
  });
});

describe('a record of an exchange that an error ended', () => {
  it('keeps that error and the checks of the secret, as with a key of low order that nobody can open', async () => {
    const secret = secretOf('synthetic', 'negative/secret_enc_lowOrder.json');
    const failure = { id: null, code: 'secret_exchange_failed', found: 'it cannot be opened' };
    const { code, json } = await verifyRecord({ ...recordOf('synthetic'), secret, verdict: { failure } });
    assert.deepEqual([code, json().failure?.code], [30, 'secret_exchange_failed']);
    assert.equal(json().checks.find(({ id }) => id === 'secret.signature')?.outcome, 'pass');
  });

  it('is never accepted without a secret exchange: the error decides that it states, else that there was none', async () => {
    for (const [failure, exit, code] of [
      [{ id: null, code: 'control_api_failed', found: 'status 500' }, 40, 'control_api_failed'],
      [{ id: null, code: 'accepted', found: 'fine' }, 30, 'verify_input_invalid'],
      [{ id: null, code: 'constructor', found: { toString: 1 } }, 30, 'verify_input_invalid'],
      [null, 30, 'verify_input_invalid'],
    ] as const) {
      const verdict = { outcome: 'accepted', failure };
      const ran = await verifyRecord({ ...GOOD, secret: undefined, verdict });
      assert.deepEqual([ran.code, ran.json().failure?.code], [exit, code], ran.stdout);
    }
  });
});

describe('a file that verify --saved cannot use', () => {
  const told = (change: object) => JSON.stringify({ ...GOOD, ...change });
  const HALF = { ark: '' };
  for (const [what, text, words] of [
    ['no file', undefined, /none cannot be used: ENOENT: no such file or directory; check the path/],
    ['an empty file', '', /it is empty/],
    ['text', 'hello', /not JSON/],
    ['a member twice', '{"version":"1","version":"1"}', /appears twice/],
    ['too many values', JSON.stringify({ a: Array.from({ length: 20_001 }, () => 1) }), /too many values/],
    ['no nonce', told({ nonce: undefined }), /nonce is not base64/],
    ['base64 without padding', told({ nonce: 'AAA' }), /nonce is not base64 with padding/],
    ['half an exchange', told({ secret: { publicKey: '' } }), /secret\.encapsulatedKey is not base64/],
    ['no list of collateral', told({ collateral: null }), /collateral is not a list/],
    ['a strange answer', told({ collateral: [null] }), /collateral\[0\] is not an object/],
    ['an answer to no question', told({ collateral: [{ ask: 'toString {}' }] }), /nobody asks for "toString/],
    ['half the roots', told({ roots: { snp: { Genoa: HALF } } }), /roots\.snp\.Genoa\.ask is not a string/],
    ['no time', told({ time: 'yesterday' }), /time is no time/],
    ['no verdict', told({ verdict: undefined }), /verdict is not an object/],
  ] as const) {
    it(`is malformed if it is ${what}`, async () => {
      const argv =
        text === undefined ? ['--saved', join(temporaryDirectory('record-'), 'none')] : savedFlags(text);
      const { code, json } = await verifyCommand([...argv, '--json']);
      const { outcome, checks, failure } = json();
      assert.deepEqual([code, outcome, checks, failure?.code], [30, 'malformed', [], 'verify_input_invalid']);
      assert.match(failure?.found ?? '', words);
    });
  }

  it('is malformed if it is larger than any record', async () => {
    const large = join(temporaryDirectory('record-'), 'large.json');
    writeFileSync(large, '');
    truncateSync(large, 67_108_865);
    const { code, stdout } = await verifyCommand(['--saved', large]);
    assert.equal(code, 30);
    assert.match(stdout, /^✗ MALFORMED: .*\n.*\n\nReason: .* it is larger than 64 MiB/);
  });
});
