/** Receipts as they lie on the disk, checked after every way to falsify them. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type CheckOptions, checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { readLine, sha256 } from '../../lib/receipts/receipt.ts';
import { DAY_MS, EPOCH, NOON, RECORD, receipt, receiptsOfEachTest } from '../support/doors/receipts.ts';

const here = receiptsOfEachTest();
const { linesOf, store, files, path } = here;

/** A chain with the receipts r1 to r4: `opened`, `epoch`, four requests, `closed`. Gives the file's name. */
async function fourReceipts(more: Parameters<typeof here.open>[0] = {}): Promise<string> {
  const log = await here.open(more);
  for (const id of ['r1', 'r2', 'r3', 'r4']) log.add(receipt(id));
  await log.close();
  return files().find((name) => name.includes(log.instance)) as string;
}

/** A chain with a receipt on each of three days. Gives the names of its files. */
async function threeDays(): Promise<readonly [string, string, string]> {
  const log = await here.open();
  for (const [day, id] of ['r1', 'r2', 'r3'].entries()) {
    here.now = NOON + day * DAY_MS;
    log.add(receipt(id, { time: new Date(here.now).toISOString() }));
  }
  await log.close();
  here.now = NOON;
  return files().filter((name) => name.includes(log.instance)) as unknown as [string, string, string];
}

const key = (): string => fs.readFileSync(path('key.pem'), 'utf8');
const newKey = () => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const base64 = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
  return { pem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), base64 };
};
/** Lines that follow `last` and each other, signed with the key. */
function signedAnew(lines: readonly string[], last: string, pem = key()): string[] {
  let before = last;
  return lines.map((line) => {
    const seq = before === '' ? 0 : JSON.parse(before).seq + 1;
    before = again(line, { seq, prev: before === '' ? '0'.repeat(64) : sha256(before) }, pem);
    return before;
  });
}
/** A line with other members, signed again with the key. */
function again(line: string | undefined, change: object, pem = key()): string {
  const { sig: _, ...members } = JSON.parse(line as string);
  const text = JSON.stringify({ ...members, ...change });
  const signature = sign(null, Buffer.from(text), createPrivateKey(pem)).toString('base64');
  return `${text.slice(0, -1)},"sig":"${signature}"}`;
}
const changed = (line: string | undefined, change: object): string =>
  JSON.stringify({ ...JSON.parse(line as string), ...change });

/** Each finding as a text: ✗ for one that fails the check, - for a gap. */
async function found(options: CheckOptions = {}): Promise<readonly string[]> {
  const { ok, findings } = await checkReceipts(path(), options);
  assert.equal(ok, !findings.some(({ fails }) => fails));
  return findings.map(({ fails, file, line, message }) => `${fails ? '✗' : '-'} ${file} ${line}: ${message}`);
}
const failing = async (options: CheckOptions = {}): Promise<readonly string[]> =>
  (await found(options)).filter((each) => each.startsWith('✗'));

const UNSIGNED = 'is not signed by its instance with the key of its chain';
const BREAK = 'does not follow the line before: a line is missing, changed or moved';
const NO_EPOCH = 'was sent under an epoch that no line before it names';
const FIRST =
  'is not signed with the key that it names: was the beginning of the file moved away while the proxy ran?';

describe('a receipt', () => {
  it('is one line of JSON with the hash of the line before, and the signature last; the first line has the key', async () => {
    const lines = linesOf(await fourReceipts());
    const members = lines.map((line) => JSON.parse(line));
    const types = ['opened', 'epoch', 'request', 'request', 'request', 'request', 'closed'];
    assert.deepEqual(
      members.map(({ v, type, seq }) => [v, type, seq]),
      types.map((type, i) => [2, type, i]),
    );
    assert.deepEqual(
      members.map(({ prev }) => prev),
      ['0'.repeat(64), ...lines.slice(0, -1).map(sha256)],
    );
    const pem = createPublicKey(fs.readFileSync(path('public.pem')));
    assert.equal(members[0].key, pem.export({ type: 'spki', format: 'der' }).toString('base64'));
    const { sig: _, prev: __, instance: ___, ...epoch } = members[1];
    const time = new Date(EPOCH.attestedAt).toISOString();
    assert.deepEqual(epoch, {
      ...{ v: 2, seq: 1, type: 'epoch', time, secretId: 'secret' },
      ...{ manifestSha256: EPOCH.manifestSha256, roots: 'vendor', record: RECORD.sha256 },
    });
    assert.equal(Object.keys(members[2]).at(-1), 'sig');
  });

  it('has a signature over every byte before it: a line with any byte changed, also of the signature, is no receipt', async () => {
    const line = linesOf(await fourReceipts())[2] as string;
    const publicKey = createPublicKey(fs.readFileSync(path('public.pem')));
    assert.equal(typeof readLine(line, publicKey), 'object');
    for (let at = 0; at < line.length; at++) {
      const other = Buffer.from(line);
      other[at]! += 1;
      assert.equal(readLine(other.toString(), publicKey), undefined, `${other} is taken for ${line}`);
    }
  });
});

describe('checking receipts', () => {
  it('finds nothing wrong with what was written, in two chains of one directory, and counts it', async () => {
    await fourReceipts();
    await fourReceipts();
    const { publicKeys, ...report } = await checkReceipts(path(), { strict: true });
    const counts = { instances: 2, lines: 14, requests: 8 };
    assert.deepEqual(report, { ok: true, ...counts, findings: [], hasCustomRoots: false });
    assert.equal(publicKeys.length, 1);
  });

  it('says that requests were protected under other roots than those of AMD and Intel', async () => {
    await fourReceipts({ roots: 'custom' });
    const { ok, hasCustomRoots } = await checkReceipts(path());
    assert.deepEqual([ok, hasCustomRoots], [true, true]);
  });

  /** Changes of the lines opened, epoch, r1 to r4 and closed; which line the check then names first. */
  const CHANGES: [what: string, change: (l: string[]) => (string | undefined)[], at: number, why: string][] =
    [
      ['a line that was changed', (l) => l.with(3, changed(l[3], { id: 'r9' })), 4, UNSIGNED],
      ['a line that was removed', (l) => l.toSpliced(3, 1), 4, BREAK],
      ['a line that stands there twice', (l) => [...l.slice(0, 4), ...l.slice(3)], 5, BREAK],
      ['junk behind the end', (l) => [...l, 'nothing'], 8, UNSIGNED],
      ['a line of two megabytes', (l) => l.toSpliced(2, 0, 'x'.repeat(2_000_000)), 3, UNSIGNED],
      ['a line without a signature', (l) => l.with(2, changed(l[2], { sig: undefined })), 3, UNSIGNED],
      ['a line signed again with the stolen key', (l) => l.with(3, again(l[3], { model: 'x' })), 5, BREAK],
      ['a line signed again with another key', (l) => l.with(3, again(l[3], {}, newKey().pem)), 4, UNSIGNED],
      ['a request without its epoch', ([l0 = '', , ...l]) => [l0, ...signedAnew(l, l0)], 2, NO_EPOCH],
      ['a first line that was removed', (l) => l.slice(1), 1, FIRST],
      ['a first line that was changed', (l) => l.with(0, changed(l[0], { version: '2' })), 1, FIRST],
    ];
  for (const [what, change, at, why] of CHANGES) {
    it(`names ${what}`, async () => {
      const file = await fourReceipts();
      store(file, change(linesOf(file)) as string[]);
      assert.equal((await failing())[0], `✗ ${file} ${at}: ${why}`);
    });
  }

  it('does not accept a line whose members have other types, even if it is signed with the key', async () => {
    const file = await fourReceipts();
    const lines = linesOf(file);
    const wrong = { v: 1, instance: 7, seq: 2.5, prev: 0, type: 'else', time: 5 };
    for (const [name, value] of Object.entries(wrong)) {
      store(file, lines.with(3, again(lines[3], { [name]: value })));
      const [first = ''] = await found();
      assert.ok(first.startsWith(`✗ ${file} 4: `), name);
    }
  });

  it('reports a cut end, a torn line and an empty file as gaps, which fail a strict check', async () => {
    const file = await fourReceipts();
    const lines = linesOf(file);
    store(file, lines.slice(0, 4));
    const cut = `- ${file} 4: is the last line: its instance runs still or was killed; receipts may be missing`;
    assert.deepEqual(await found(), [cut]);
    assert.deepEqual(await failing({ strict: true }), [cut.replace('-', '✗')]);
    fs.appendFileSync(path(file), lines[4]?.slice(0, 40) as string);
    const torn = `- ${file} 5: is cut off: its instance was killed, or the disk was full`;
    assert.deepEqual(await found(), [torn, cut]);
    assert.equal((await checkReceipts(path())).lines, 4);
    fs.rmSync(path(file));
    fs.writeFileSync(path('2026-12-01.abcdefghijkl.jsonl'), '');
    assert.deepEqual(await found(), [
      '- 2026-12-01.abcdefghijkl.jsonl 0: has no whole line: its instance was killed, or the disk was full',
      '✗ . 0: there are no receipts',
    ]);
  });

  const REMOVALS: [what: string, remove: (file: string) => void][] = [
    ['a deleted end', (file) => store(file, linesOf(file).slice(0, 5))],
    ['a deleted file', (file) => fs.rmSync(path(file))],
    ['an emptied file', (file) => fs.truncateSync(path(file))],
    [
      'a last line that was signed anew',
      (file) => store(file, linesOf(file).with(6, again(linesOf(file)[6], { more: 1 }))),
    ],
  ];
  for (const [what, remove] of REMOVALS) {
    it(`misses ${what} if an instance that began later has found it; and then that instance, too`, async () => {
      const chains = [await fourReceipts(), await fourReceipts(), await fourReceipts()];
      const [file = '', second = '', third = ''] = chains;
      assert.deepEqual(Object.keys(JSON.parse(linesOf(third)[0] as string).found), [second], 'and no others');
      remove(file);
      assert.deepEqual(await failing(), [`✗ ${second} 1: names a line of ${file} that is missing`]);
      fs.rmSync(path(second));
      assert.deepEqual(await failing(), [`✗ ${third} 1: names a line of ${second} that is missing`]);
    });
  }

  it('lets nobody hide a chain from the next start by naming it in a line that is not signed', async () => {
    const file = await fourReceipts();
    const forged = '2026-12-01.abcdefghijkl.jsonl';
    const [opened, ...rest] = linesOf(file);
    const end = { [file]: sha256(rest.at(-1) as string) };
    store(forged, [changed(opened, { instance: 'abcdefghijkl', found: end })]);
    const next = await fourReceipts();
    assert.deepEqual(Object.keys(JSON.parse(linesOf(next)[0] as string).found).sort(), [file, forged].sort());
  });

  it('lets nobody hide the end of a chain from the next start behind a line that is too long to read', async () => {
    const file = await fourReceipts();
    const lines = linesOf(file);
    fs.appendFileSync(path(file), `${'x'.repeat(3 * 1024 * 1024)}\n`);
    const next = await fourReceipts();
    assert.deepEqual(await failing(), [`✗ ${file} 8: ${UNSIGNED}`]);
    store(file, lines.slice(0, 4));
    assert.deepEqual(await failing(), [`✗ ${next} 1: names a line of ${file} that is missing`]);
  });

  it('is not deceived about a file that was removed by a copy of its last line elsewhere, be it cut off', async () => {
    const file = await fourReceipts();
    const next = await fourReceipts();
    const last = linesOf(file).at(-1) as string;
    fs.rmSync(path(file));
    for (const copy of [last, '\n']) {
      fs.appendFileSync(path(next), copy);
      assert.equal((await failing()).at(-1), `✗ ${next} 1: names a line of ${file} that is missing`);
    }
  });

  it('does not take lines of one instance in the file of another', async () => {
    const file = await fourReceipts();
    const other = '2026-12-01.abcdefghijkl.jsonl';
    fs.cpSync(path(file), path(other));
    assert.deepEqual(await found(), [`✗ ${other} 1: ${UNSIGNED}`]);
  });

  it('leaves alone what has not the name of receipts, and links and FIFOs that have, as the next start does', async () => {
    await fourReceipts();
    for (const name of ['README', '2026-12-01.jsonl', 'x.jsonl']) fs.writeFileSync(path(name), 'x');
    fs.symlinkSync(path('README'), path('2026-12-01.abcdefghijkl.jsonl'));
    execFileSync('mkfifo', [path('2026-12-01.bbbbbbbbbbbb.jsonl')]);
    await fourReceipts();
    assert.deepEqual(await found({ strict: true }), []);
  });
});

describe('what receipts refer to', () => {
  const kept = (): string => path('records', `${RECORD.sha256}.json`);
  const logged = (): string => join(here.workspace, 'manifests/1.json');
  const [UNLOGGED, OF_RECORD] = [
    `its manifest ${EPOCH.manifestSha256} is not in manifests`,
    `its record ${RECORD.sha256}`,
  ];
  const CHANGES: [what: string, falsify: () => void, finding: string][] = [
    ['without any manifest', () => fs.rmSync(logged()), `✗ ${UNLOGGED}`],
    ['a manifest that was changed', () => fs.writeFileSync(logged(), '[]'), `✗ ${UNLOGGED}`],
    ['a record that is missing', () => fs.rmSync(kept()), `- ${OF_RECORD} is missing`],
    ['a record that was changed', () => fs.appendFileSync(kept(), ' '), `✗ ${OF_RECORD} was changed`],
  ];
  for (const [what, falsify, finding] of CHANGES) {
    it(`is named once, with the first line that refers to it: ${what}`, async () => {
      const [file] = await threeDays();
      falsify();
      assert.deepEqual(await found(), [finding.replace(' ', ` ${file} 2: `)]);
    });
  }

  it('is none if a line has a member of another type, although its key signed it', async () => {
    const file = await fourReceipts();
    const [first, second, ...rest] = linesOf(file);
    store(file, signedAnew([again(first, { found: null }), second!, ...rest], ''));
    assert.equal((await found())[0], `✗ ${file} 1: ${FIRST}`);
    store(file, [first!, ...signedAnew([again(second, { record: {} }), ...rest], first!)]);
    assert.equal((await found())[0], `✗ ${file} 2: ${UNSIGNED}`);
  });

  it('leaves out a directory with the name of a record', async () => {
    await fourReceipts();
    fs.mkdirSync(path('records', `${'0'.repeat(64)}.json`));
    assert.deepEqual(await found(), []);
  });

  it('may be gone if it is older than the newest 1,000 records', async () => {
    await fourReceipts();
    fs.rmSync(kept());
    for (let i = 0; i < 1_000; i++) fs.writeFileSync(path('records', `junk-${i}.json`), '');
    assert.equal((await found()).length, 1);
    for (let i = 0; i < 1_000; i++) fs.writeFileSync(path('records', `${sha256(`${i}`)}.json`), `${i}`);
    assert.deepEqual(await found(), []);
  });

  it('cannot be checked if it is a link', async () => {
    await fourReceipts();
    fs.renameSync(logged(), join(here.workspace, 'elsewhere'));
    fs.symlinkSync(join(here.workspace, 'elsewhere'), logged());
    await assert.rejects(checkReceipts(path()), { code: 'receipts_unreadable', message: /ELOOP: / });
  });
});

describe('the key of receipts', () => {
  /** A copy of the public key of now. */
  function copyOfKey(): string {
    const kept = join(here.workspace, 'kept.pem');
    fs.cpSync(path('public.pem'), kept);
    return kept;
  }

  it('is a new one if key.pem was moved away; with --public-key only chains of the given ones count', async () => {
    const file = await fourReceipts();
    const kept = copyOfKey();
    fs.renameSync(path('key.pem'), join(here.workspace, 'former-key.pem'));
    const second = await fourReceipts();
    assert.deepEqual(Object.keys(JSON.parse(linesOf(second)[0] as string).found), [file]);
    const { ok, publicKeys } = await checkReceipts(path());
    assert.deepEqual([ok, publicKeys.length], [true, 2]);
    assert.deepEqual(await found({ publicKeyFiles: [kept, path('public.pem')] }), []);
    const [refused = '', ...more] = await found({ publicKeyFiles: [kept] });
    assert.match(refused, new RegExp(`^✗ ${second} 1: names the key [0-9a-f]{64}, which was not given$`));
    assert.deepEqual(more, []);
  });

  it('of somebody else does not go on with a chain; a directory signed anew shows only in the key', async () => {
    const [first, second, third] = await threeDays();
    const kept = copyOfKey();
    const { pem, base64 } = newKey();
    const forge = (file: string, last: string): void => {
      const [opened, ...lines] = linesOf(file);
      store(file, signedAnew([changed(opened, { key: base64 }), ...lines], last, pem));
    };
    forge(third, linesOf(second).at(-1) as string);
    assert.equal((await failing())[0], `✗ ${third} 1: ${UNSIGNED}`);
    for (const file of [second, third]) fs.rmSync(path(file));
    forge(first, '');
    assert.deepEqual(await failing(), [], 'which is why a copy of the key is kept elsewhere');
    const [refused = ''] = await failing({ publicKeyFiles: [kept] });
    assert.match(refused, new RegExp(`^✗ ${first} 1: names the key [0-9a-f]{64}, which was not given$`));
  });

  it('has to be in the file that is named for it', async () => {
    await fourReceipts();
    const file = join(here.workspace, 'no-key.pem');
    fs.writeFileSync(file, 'hello');
    const asked = checkReceipts(path(), { publicKeyFiles: [file] });
    await assert.rejects(asked, { code: 'receipts_unreadable', message: /no-key\.pem holds no public key/ });
    await assert.rejects(checkReceipts(join(here.workspace, 'nowhere')), { code: 'receipts_unreadable' });
  });
});

describe('receipts of several days', () => {
  it('are one chain; each file begins with the key and the end of the one before, and names its epochs', async () => {
    const [first, second, third] = await threeDays();
    assert.deepEqual(
      [first, second, third].map((name) => name.slice(0, 10)),
      ['2026-12-01', '2026-12-02', '2026-12-03'],
    );
    const end = sha256(linesOf(first).at(-1) as string);
    assert.deepEqual(JSON.parse(linesOf(second)[0] as string).found, { [first]: end });
    for (const since of ['', '2026-12-01', '2026-12-02', '2026-12-03'])
      assert.deepEqual(await found({ since, strict: true }), [], since);
    for (const file of [first, second]) fs.rmSync(path(file));
    assert.deepEqual(await found({ since: '2026-12-03', strict: true }), []);
    assert.deepEqual(await failing(), [`✗ ${third} 1: names a line of ${second} that is missing`]);
  });

  it('are missed if they are of the day of --since or later, and not if they are earlier', async () => {
    const [first, second, third] = await threeDays();
    fs.rmSync(path(first));
    assert.deepEqual(await found({ since: '2026-12-02' }), []);
    fs.rmSync(path(second));
    const missing = `✗ ${third} 1: names a line of ${second} that is missing`;
    assert.deepEqual(await found({ since: '2026-12-02' }), [missing]);
    assert.deepEqual(await found({ since: '2026-12-04' }), ['- . 0: there are no receipts']);
    fs.rmSync(path(third));
    assert.deepEqual(await found(), ['✗ . 0: there are no receipts']);
  });

  it('cannot be hidden from --since in a file of an earlier day', async () => {
    const [first, second, third] = await threeDays();
    const atEnd = linesOf(second).length + 1;
    store(second, [...linesOf(second), ...linesOf(third)]);
    fs.rmSync(path(third));
    const late = `✗ ${second} ${atEnd}: is of 2026-12-03T12:00:00.000Z, after the day of its file`;
    assert.deepEqual(await failing(), [late]);
    for (const file of [first, second]) fs.rmSync(path(file));
    const alone = await fourReceipts();
    fs.renameSync(path(alone), path(alone.replace('2026-12-01', '2026-11-30')));
    assert.equal((await failing()).length, 1);
  });
});
