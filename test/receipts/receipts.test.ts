/**
 * Receipts as they lie on the disk: written through every mishap, and checked after every way to falsify
 * them.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, createPublicKey, generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import {
  appendFileSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import fs from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { checkReceipts, type ReceiptsReport } from '../../lib/receipts/check-receipts.ts';
import { type RequestReceipt, readLine } from '../../lib/receipts/receipt.ts';
import { surplus } from '../../lib/receipts/verdict-store.ts';
import { TIMES } from '../../lib/times.ts';
import {
  MANIFEST,
  NOON,
  receipt,
  receiptsOfEachTest,
  signedAgain,
  sortOf,
  VERDICT,
  VERDICT_SHA256,
} from '../support/doors/receipts.ts';
import { breakFs, errno } from '../support/processes/broken-file-system.ts';
import { eventually } from '../support/processes/eventually.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const DAY_MS = 86_400_000;
const withoutKey = ({ publicKeys: _, ...rest }: ReceiptsReport) => rest;

let workspace: string;
let directory: string;
const here = receiptsOfEachTest();
const { open: opened, linesOf, store } = here;
beforeEach(() => {
  ({ workspace, directory } = here);
});

/**
 * A chain with the receipts r1 to r4, in lines 2 to 5 of one file; line 6 closes it. Gives the file's name.
 */
async function fourReceipts(): Promise<string> {
  const log = await opened();
  log.keepVerdict(VERDICT_SHA256, VERDICT);
  for (const id of ['r1', 'r2', 'r3', 'r4']) log.add(receipt(id));
  await log.close();
  return `2026-12-01.${log.instance}.jsonl`;
}

describe('a receipt', () => {
  it('is one line of JSON with its members in a fixed order, the hash of the line before, and the signature last', async () => {
    const file = await fourReceipts();
    const lines = linesOf(file);
    assert.equal(lines.length, 6);
    const [first, second] = lines as [string, string];
    assert.deepEqual(Object.keys(JSON.parse(second)), [
      ...['v', 'instance', 'seq', 'prev', 'type', 'id', 'time', 'durationMs', 'endpoint', 'client'],
      ...['model', 'status', 'request', 'response', 'tokens', 'epoch', 'outcome', 'code', 'sig'],
    ]);
    assert.equal(JSON.parse(second).prev, createHash('sha256').update(first).digest('hex'));
    assert.equal(JSON.parse(first).prev, '0'.repeat(64));
    assert.deepEqual([JSON.parse(first).type, JSON.parse(lines[5] as string).type], ['opened', 'closed']);
  });

  it('has a signature over every byte before it: a line with any byte changed, also of the signature, is no receipt', async () => {
    const line = linesOf(await fourReceipts())[1] as string;
    const key = createPublicKey(readFileSync(join(directory, 'public.pem')));
    assert.equal(typeof readLine(line, key), 'object');
    for (let at = 0; at < line.length; at++) {
      const changed = Buffer.from(line);
      changed[at]! += 1;
      assert.equal(typeof readLine(changed.toString(), key), 'string', `${changed} is taken for ${line}`);
    }
  });

  it('lies in files that only their owner reads, with the public key beside them', async () => {
    const file = await fourReceipts();
    const mode = (name: string): string => (statSync(join(directory, name)).mode & 0o777).toString(8);
    assert.deepEqual(
      [mode(file), mode('key.pem'), mode('public.pem'), mode('')],
      ['600', '600', '644', '700'],
    );
    const { publicKey, close } = await opened();
    await close();
    assert.match(readFileSync(join(directory, 'public.pem'), 'utf8'), /^-----BEGIN PUBLIC KEY-----/);
    assert.ok(readFileSync(join(directory, 'public.pem'), 'utf8').includes(publicKey));
  });
});

describe('checking receipts', () => {
  it('finds nothing wrong with what was written', async () => {
    await fourReceipts();
    const report = await checkReceipts(directory);
    assert.deepEqual(withoutKey(report), { ok: true, instances: 1, lines: 6, requests: 4, findings: [] });
  });

  const CHANGES: readonly {
    readonly what: string;
    readonly change: (lines: string[], key: string) => string[];
    readonly kind: string;
    readonly line: number;
    readonly message: RegExp;
  }[] = [
    {
      what: 'a line that was removed',
      change: (lines) => lines.toSpliced(2, 1),
      ...{ kind: 'missing', line: 3, message: /number 2 is missing before this line/ },
    },
    {
      what: 'a first line that was removed',
      change: (lines) => lines.slice(1),
      ...{ kind: 'missing', line: 1, message: /number 0 is missing/ },
    },
    {
      what: 'a changed byte',
      change: (lines) => lines.with(3, (lines[3] as string).replace('"r3"', '"r9"')),
      ...{ kind: 'not ours or changed', line: 4, message: /signature/ },
    },
    {
      what: 'a line signed again with another key',
      change: (lines) => {
        const { privateKey } = generateKeyPairSync('ed25519');
        const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
        return lines.with(3, signedAgain(lines[3] as string, { model: 'another' }, pem));
      },
      ...{ kind: 'not ours or changed', line: 4, message: /signature/ },
    },
    {
      what: 'a line signed again with the stolen key',
      change: (lines, key) => lines.with(3, signedAgain(lines[3] as string, { model: 'another' }, key)),
      ...{ kind: 'not ours or changed', line: 4, message: /not the line that the next one follows/ },
    },
    {
      what: 'two lines that changed places',
      change: (lines) => lines.with(2, lines[3] as string).with(3, lines[2] as string),
      ...{ kind: 'out of order', line: 3, message: /number 2 belongs here/ },
    },
    {
      what: 'a line that stands there twice',
      change: (lines) => lines.toSpliced(3, 0, lines[2] as string),
      ...{ kind: 'out of order', line: 4, message: /number 2 stands where number 3 belongs/ },
    },
    {
      what: 'a line that is no JSON',
      change: (lines) => lines.with(1, 'nothing'),
      ...{ kind: 'not ours or changed', line: 2, message: /no receipt/ },
    },
    {
      what: 'a line that is a number',
      change: (lines) => lines.with(1, '7'),
      ...{ kind: 'not ours or changed', line: 2, message: /no receipt/ },
    },
    {
      what: 'a line without a signature',
      change: (lines) => lines.with(1, (lines[1] as string).replace(/,"sig":"[^"]*"/, '')),
      ...{ kind: 'not ours or changed', line: 2, message: /signature/ },
    },
  ];
  for (const members of [{ v: 2 }, { instance: 7 }, { seq: 2.5 }, { prev: 0 }, { type: 'else' }]) {
    it(`does not accept a line with ${JSON.stringify(members)} as a receipt, even if it is signed with the key`, async () => {
      const file = await fourReceipts();
      const lines = linesOf(file);
      const key = readFileSync(join(directory, 'key.pem'), 'utf8');
      store(file, lines.with(3, signedAgain(lines[3] as string, members, key)));
      const { findings } = await checkReceipts(directory);
      const message = 'is no receipt';
      assert.deepEqual(findings, [{ kind: 'not ours or changed', file, line: 4, message, fails: true }]);
    });
  }

  for (const { what, change, ...expected } of CHANGES) {
    it(`names ${what}`, async () => {
      const file = await fourReceipts();
      store(file, change(linesOf(file), readFileSync(join(directory, 'key.pem'), 'utf8')));
      const { ok, findings } = await checkReceipts(directory);
      assert.equal(ok, false);
      const [finding] = findings.filter(({ fails }) => fails);
      assert.deepEqual([finding?.kind, finding?.file, finding?.line], [expected.kind, file, expected.line]);
      assert.match(finding?.message as string, expected.message);
    });
  }

  it('reports the deleted end of a chain, or a deleted chain, as missing if a later instance recorded it', async () => {
    const file = await fourReceipts();
    const second = await fourReceipts();
    const whole = linesOf(file);
    store(file, whole.slice(0, 4));
    const cut = await checkReceipts(directory);
    assert.deepEqual(
      cut.findings.map((found) => [sortOf(found), found.file, found.line]),
      [
        ['gap', file, 4],
        ['missing', second, 1],
      ],
    );
    rmSync(join(directory, file));
    const gone = await checkReceipts(directory);
    assert.deepEqual(
      gone.findings.map(({ kind, file: where, line }) => [kind, where, line]),
      [['missing', second, 1]],
    );
    assert.equal(gone.ok, false);
  });

  it('reports a replaced last line of a chain if a later instance recorded the original', async () => {
    const file = await fourReceipts();
    await fourReceipts();
    const key = readFileSync(join(directory, 'key.pem'), 'utf8');
    const lines = linesOf(file);
    store(file, lines.with(5, signedAgain(lines[5] as string, { time: '2026-12-01T13:00:00.000Z' }, key)));
    const { findings } = await checkReceipts(directory);
    assert.deepEqual(
      findings.map(({ kind, file: where, line }) => [kind, where, line]),
      [['not ours or changed', file, 6]],
    );
  });

  for (const [what, falsify, kind, message] of [
    ['missing', (path: string) => rmSync(path), 'missing', /is missing/],
    ['changed', (path: string) => appendFileSync(path, ' '), 'not ours or changed', /was changed/],
  ] as const) {
    it(`names the first receipt whose verdict is ${what}`, async () => {
      const file = await fourReceipts();
      falsify(join(directory, 'verdicts', `${VERDICT_SHA256}.json`));
      const { ok, findings } = await checkReceipts(directory);
      assert.deepEqual(
        [ok, findings.length, findings[0]?.kind, findings[0]?.file, findings[0]?.line],
        [false, 1, kind, file, 2],
      );
      assert.match(findings[0]?.message as string, message);
    });
  }

  for (const [what, verdict] of [
    ['rejects the evidence', { outcome: 'rejected', manifestSha256: MANIFEST }],
    ['is about another manifest', { outcome: 'accepted', manifestSha256: 'b'.repeat(64) }],
  ] as const) {
    it(`does not accept a verdict that ${what}`, async () => {
      const text = JSON.stringify(verdict);
      const verdictSha256 = createHash('sha256').update(text).digest('hex');
      const log = await opened();
      log.keepVerdict(verdictSha256, text);
      log.add(receipt('r1', { epoch: { secretId: 's', manifestSha256: MANIFEST, verdictSha256 } }));
      await log.close();
      const { ok, findings } = await checkReceipts(directory);
      assert.deepEqual([ok, findings[0]?.kind], [false, 'not ours or changed']);
    });
  }

  it('names each verdict under custom roots once, with its first receipt, and finds nothing else wrong', async () => {
    const log = await opened();
    const epochs = ['custom', 'custom', 'vendor'].map((roots, i) => {
      const text = JSON.stringify({ outcome: 'accepted', manifestSha256: MANIFEST, roots, i });
      const verdictSha256 = createHash('sha256').update(text).digest('hex');
      log.keepVerdict(verdictSha256, text);
      return { secretId: 's', manifestSha256: MANIFEST, verdictSha256 };
    });
    for (const i of [2, 0, 0, 1]) log.add(receipt(`r${i}`, { epoch: epochs[i] as (typeof epochs)[number] }));
    await log.close();
    const [file] = receiptNames();
    const { ok, findings, customRoots } = await checkReceipts(directory);
    assert.deepEqual([ok, findings], [true, []]);
    assert.deepEqual(customRoots, [
      { verdictSha256: epochs[0]?.verdictSha256, file, line: 3 },
      { verdictSha256: epochs[1]?.verdictSha256, file, line: 5 },
    ]);
  });

  it('accepts a chain that began before --since, and without --since reports its deleted first day as missing', async () => {
    let now = NOON;
    const log = await opened({ clock: clockOf({ now: () => now, batchPause: 1 }) });
    log.keepVerdict(VERDICT_SHA256, VERDICT);
    log.add(receipt('r1'));
    await eventually('the receipts', () => log.counters.written === 1);
    now += 86_400_000;
    log.add(receipt('r2'));
    await log.close();
    assert.deepEqual(receiptNames(), [
      `2026-12-01.${log.instance}.jsonl`,
      `2026-12-02.${log.instance}.jsonl`,
    ]);
    const all = await checkReceipts(directory);
    assert.deepEqual([all.ok, all.requests], [true, 2]);
    const since = await checkReceipts(directory, { since: '2026-12-02' });
    assert.deepEqual([since.ok, since.requests, since.findings], [true, 1, []]);
    rmSync(join(directory, `2026-12-01.${log.instance}.jsonl`));
    const without = await checkReceipts(directory);
    assert.deepEqual(
      [without.ok, without.findings[0]?.kind, without.findings[0]?.line],
      [false, 'missing', 1],
    );
  });

  it('with --since reports a changed first line, even if it is signed, by the line that follows it', async () => {
    let now = NOON;
    const log = await opened({ clock: clockOf({ now: () => now, batchPause: 1 }) });
    log.add(receipt('r1', { epoch: null }));
    await eventually('the receipts', () => log.counters.written === 1);
    now += 86_400_000;
    for (const id of ['r2', 'r3']) log.add(receipt(id, { epoch: null }));
    await log.close();
    const file = `2026-12-02.${log.instance}.jsonl`;
    const lines = linesOf(file);
    const key = readFileSync(join(directory, 'key.pem'), 'utf8');
    store(file, lines.with(0, signedAgain(lines[0] as string, { model: 'another' }, key)));
    const { ok, findings } = await checkReceipts(directory, { since: '2026-12-02' });
    assert.deepEqual(
      [ok, findings.map(({ kind, line }) => [kind, line])],
      [false, [['not ours or changed', 1]]],
    );
  });

  it('uses a given public key, not the stored one, and fails with receipts_unreadable without a directory', async () => {
    await fourReceipts();
    const { publicKey } = generateKeyPairSync('ed25519');
    const publicKeyFile = join(workspace, 'other.pem');
    writeFileSync(publicKeyFile, publicKey.export({ type: 'spki', format: 'pem' }));
    const { ok, findings } = await checkReceipts(directory, { publicKeyFiles: [publicKeyFile] });
    assert.deepEqual([ok, findings[0]?.kind, findings[0]?.line], [false, 'not ours or changed', 1]);
    await assert.rejects(checkReceipts(join(workspace, 'nowhere')), { code: 'receipts_unreadable' });
  });
});

const receiptNames = (): string[] =>
  readdirSync(directory)
    .filter((name) => name.endsWith('.jsonl'))
    .toSorted();

describe('writing receipts', () => {
  it('gives two proxies with one workspace a chain each, under one key', async () => {
    const [one, two] = await Promise.all([opened(), opened()]);
    assert.notEqual(one.instance, two.instance);
    assert.equal(one.publicKey, two.publicKey);
    one.keepVerdict(VERDICT_SHA256, VERDICT);
    for (let i = 0; i < 50; i++) {
      one.add(receipt(`one-${i}`));
      two.add(receipt(`two-${i}`));
    }
    await Promise.all([one.close(), two.close()]);
    const found = withoutKey(await checkReceipts(directory));
    assert.deepEqual(found, { ok: true, instances: 2, lines: 104, requests: 100, findings: [] });
  });

  it('survives a failing disk: receipts wait, the failure is reported once, and nothing is lost', async () => {
    const { log, told, mend } = await onFailingDisk();
    for (let i = 0; i < 20; i++) log.add(receipt(`r${i}`, { epoch: null }));
    await eventually('the receipts', () => told.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 20)); // several attempts
    mend();
    await eventually('the receipts', () => told.length > 1);
    await log.close();
    assert.deepEqual(told, ['failure', 'recovery, 0 lost']);
    assert.deepEqual(log.counters, { written: 20, lost: 0 });
    const { requests, findings } = await checkReceipts(directory);
    // The first line was in the directory that was taken away.
    assert.deepEqual([requests, findings.map(({ kind }) => kind)], [20, ['missing']]);
  });

  it('counts the receipts that do not fit while the disk fails, and writes their number into the chain', async () => {
    const { log, told, mend } = await onFailingDisk({ mostPending: 5 });
    for (let i = 0; i < 12; i++) log.add(receipt(`r${i}`, { epoch: null }));
    await eventually('the receipts', () => told.length > 0);
    mend();
    await log.close();
    assert.deepEqual([told, log.counters.lost], [['failure', 'recovery, 7 lost'], 7]);
    const [file] = receiptNames();
    const records = linesOf(file as string).map((line) => JSON.parse(line));
    assert.deepEqual(
      records.map(({ type, count, id }) => count ?? id ?? type),
      ['r0', 'r1', 'r2', 'r3', 'r4', 7, 'closed'],
    );
    assert.deepEqual(
      records.map(({ seq }) => seq - records[0].seq),
      records.map((_, index) => index),
      'what was never written leaves no hole in the numbers',
    );
  });

  it('reports each loss: receipts that do not fit, and receipts still unwritten at the end', async () => {
    const told: (number | string)[] = [];
    let now = NOON;
    const log = await opened({
      mostPending: 5,
      onFailure: () => told.push('failure'),
      onLoss: (lost) => told.push(lost),
      clock: clockOf({ now: () => now, batchPause: 1 }),
    });
    for (let i = 0; i < 12; i++) log.add(receipt(`r${i}`, { epoch: null }));
    await eventually('the receipts', () => log.counters.written === 5 && told.length > 0);
    assert.deepEqual([...told], [7]);
    breakDirectory();
    now += 86_400_000;
    for (let i = 0; i < 3; i++) log.add(receipt(`s${i}`, { epoch: null }));
    log.add(receipt('t', { endpoint: null, outcome: 'refused', code: 'unknown_path' }));
    await eventually('the receipts', () => told.includes('failure'));
    await log.close();
    assert.deepEqual(told, [7, 'failure', 4]);
    assert.equal(log.counters.lost, 11);
  });

  it('reports a loss while the disk hangs', async (t) => {
    const realOpen = fs.open;
    const disk = Promise.withResolvers<void>();
    t.after(() => disk.resolve());
    let hangs = false;
    breakFs(t, 'open', async (path: string, ...rest: [number, number]) => {
      const handle = await realOpen(path, ...rest);
      const datasync = handle.datasync.bind(handle);
      handle.datasync = async () => {
        if (hangs) await disk.promise;
        return datasync();
      };
      return handle;
    });
    const told: number[] = [];
    const log = await opened({ mostPending: 5, onLoss: (lost) => told.push(lost) });
    hangs = true;
    for (let i = 0; i < 12; i++) log.add(receipt(`r${i}`, { epoch: null }));
    await eventually('the first loss', () => told.length === 1);
    for (let i = 0; i < 3; i++) log.add(receipt(`s${i}`, { epoch: null }));
    await eventually('the second loss', () => told.length === 2);
    assert.deepEqual(told, [7, 3]);
    disk.resolve();
    await log.close();
    assert.deepEqual([told, log.counters], [[7, 3], { written: 5, lost: 10 }]);
  });

  it('opens one file a day, and loses no receipt if a file cannot be closed', async (t) => {
    const realOpen = fs.open;
    const names: string[] = [];
    const told: string[] = [];
    breakFs(t, 'open', async (path: string, ...rest: [number, number]) => {
      const handle = await realOpen(path, ...rest);
      if (!path.endsWith('.jsonl') || (rest[0] & constants.O_APPEND) === 0) return handle;
      names.push(path.slice(directory.length + 1, directory.length + 11));
      const close = handle.close.bind(handle);
      let failed = names.length > 1;
      handle.close = async () => {
        if (failed) return close();
        failed = true;
        throw errno('EIO');
      };
      return handle;
    });
    let now = NOON;
    const log = await opened({
      clock: clockOf({ now: () => now, batchPause: 1 }),
      onFailure: ({ message }) => told.push(message),
      onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    });
    for (const count of [1, 2, 3]) {
      log.add(receipt(`r${count}`, { epoch: null }));
      await eventually('the receipts', () => log.counters.written === count);
    }
    assert.deepEqual(names, ['2026-12-01']);
    now += 86_400_000;
    log.add(receipt('r4', { epoch: null }));
    await eventually('the receipts', () => log.counters.written === 4);
    await log.close();
    assert.deepEqual(
      [names, told],
      [
        ['2026-12-01', '2026-12-02'],
        ['EIO', 'recovery, 0 lost'],
      ],
    );
    const { ok, requests } = await checkReceipts(directory);
    assert.deepEqual([ok, requests], [true, 4]);
  });

  it('writes each receipt once if the disk is full over midnight', async (t) => {
    const realOpen = fs.open;
    let takes = Number.POSITIVE_INFINITY;
    breakFs(t, 'open', async (path: string, ...rest: [number, number]) => {
      const handle = await realOpen(path, ...rest);
      const write = handle.write.bind(handle) as (bytes: Buffer) => ReturnType<typeof handle.write<Buffer>>;
      if (path.endsWith('.jsonl'))
        handle.write = ((bytes: Buffer) => write(bytes.subarray(0, takes))) as typeof handle.write;
      return handle;
    });
    let now = NOON;
    const told: string[] = [];
    const log = await opened({
      clock: clockOf({ now: () => now, batchPause: 1 }),
      onFailure: () => told.push('failure'),
      onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    });
    takes = 1_000; // a whole line, and a torn one
    for (const id of ['r1', 'r2', 'r3']) log.add(receipt(id, { epoch: null }));
    await eventually('the failure', () => told.length > 0);
    now += 43_200_000;
    takes = Number.POSITIVE_INFINITY;
    log.add(receipt('r4', { epoch: null, time: new Date(now).toISOString() }));
    await log.close();
    assert.deepEqual(told, ['failure', 'recovery, 0 lost']);
    const found = withoutKey(await checkReceipts(directory, { strict: true }));
    assert.deepEqual(found, { ok: true, instances: 1, lines: 6, requests: 4, findings: [] });
  });

  it('fails with receipts_unavailable and the cause, such as EIO, if no key can be made', async (t) => {
    breakFs(t, 'link', async () => {
      throw errno('EIO');
    });
    const remedy = /^Make room on the disk of --workspace, or make it writable/;
    await assert.rejects(opened(), { code: 'receipts_unavailable', message: /\(EIO\)$/, remedy });
  });

  it('keeps the newest exchanges behind verdicts, whole and readable by their owner only', async () => {
    const log = await opened({ mostExchanges: 3 });
    const digests = ['a', 'b', 'c', 'd'].map((letter) => letter.repeat(64));
    const exchanges = join(directory, 'exchanges');
    for (const [i, sha256] of digests.entries()) {
      log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': `${i}`, 'roots/a.pem': 'a root' } });
      await eventually('the exchange', () => existsSync(join(exchanges, sha256)) || undefined);
      log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': 'not again' } });
      await delay(10); // the age of a directory in whole milliseconds
    }
    await log.close();
    assert.deepEqual(readdirSync(exchanges).toSorted(), digests.slice(1));
    const [oldest = ''] = digests.slice(1);
    assert.equal(readFileSync(join(exchanges, oldest, 'nonce.json'), 'utf8'), '1');
    assert.equal(readFileSync(join(exchanges, oldest, 'roots/a.pem'), 'utf8'), 'a root');
    assert.equal(statSync(join(exchanges, oldest, 'roots/a.pem')).mode & 0o777, 0o600);
    assert.equal(statSync(join(exchanges, oldest)).mode & 0o777, 0o700);
  });

  it('keeps a month of exchanges, however many are forced in a day, and at most 256 MiB of them', () => {
    const day = (number: number, count: number, bytes = 50_000) =>
      Array.from({ length: count }, (_, i) => ({ name: '', at: NOON + number * DAY_MS + i, bytes }));
    const month = Array.from({ length: 30 }, (_, number) => day(number, 33)).flat();
    assert.deepEqual(surplus([...month, ...day(30, 10)]), []);
    assert.deepEqual(surplus([...day(30, 33), ...month]), day(0, 23), 'the oldest');
    const forced = surplus([...month, ...day(30, 1_000)]);
    assert.deepEqual(
      forced,
      [...day(30, 1_000 - 64), ...month.slice(0, 54)],
      'twice a usual day stays of it',
    );
    const padded = surplus([...month.slice(33), ...day(30, 30, 16 * 1024 * 1024)]);
    assert.deepEqual(padded, day(30, 30 - 13, 16 * 1024 * 1024));
  });

  it('counts the bytes of exchanges that are stored', async () => {
    const log = await opened();
    const exchanges = join(directory, 'exchanges');
    const large = join(exchanges, 'a'.repeat(64));
    mkdirSync(join(large, 'roots'), { recursive: true, mode: 0o700 });
    writeFileSync(join(large, 'roots', 'a.pem'), '');
    truncateSync(join(large, 'roots', 'a.pem'), 256 * 1024 * 1024); // takes no room on the disk
    const sha256 = 'b'.repeat(64);
    log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': 'a nonce' } });
    await log.close();
    assert.deepEqual(readdirSync(exchanges), [sha256]);
  });

  it('leaves no part of an old exchange under its name if it crashes while it deletes the exchange', async (t) => {
    const failures: string[] = [];
    const log = await opened({ mostExchanges: 1, onUnpruned: ({ message }) => failures.push(message) });
    const realRm = fs.rm;
    breakFs(t, 'rm', async (path: string, options: object) => {
      await realRm(existsSync(path) ? join(path, 'nonce.json') : path, options);
      if (existsSync(path)) throw errno('EIO');
    });
    const files = { 'nonce.json': 'a nonce', 'manifest.json': 'a manifest' };
    const exchanges = join(directory, 'exchanges');
    for (const letter of ['a', 'b']) {
      const sha256 = letter.repeat(64);
      log.keepVerdict(sha256, '{}', { sha256, files });
      await eventually('the exchange', () => existsSync(join(exchanges, sha256)) || undefined);
      await delay(10); // the age of a directory in whole milliseconds
    }
    await eventually('the failure', () => failures.length > 0);
    const kept = readdirSync(exchanges).filter((name) => !name.startsWith('.'));
    assert.deepEqual(kept, ['b'.repeat(64)]);
    await log.close();
  });

  it('goes on while an old exchange cannot be removed, which is reported', async (t) => {
    const failures: string[] = [];
    const log = await opened({ mostExchanges: 1, onUnpruned: ({ message }) => failures.push(message) });
    breakFs(t, 'rm', async (path: string) => {
      if (existsSync(path)) throw errno('EACCES');
    });
    for (const letter of ['a', 'b', 'c']) {
      const sha256 = letter.repeat(64);
      log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': letter } });
      log.add(receipt(letter, { epoch: null }));
      await eventually('the receipt', () => log.counters.written === 'abc'.indexOf(letter) + 1);
    }
    await log.close();
    assert.deepEqual(failures, ['EACCES', 'EACCES']);
    assert.deepEqual((await checkReceipts(directory, { strict: true })).findings, []);
  });

  it('goes on whatever else lies among the exchanges, and leaves it there', async () => {
    const exchanges = join(directory, 'exchanges');
    mkdirSync(join(exchanges, 'lost+found'), { recursive: true, mode: 0o700 });
    for (const name of ['.DS_Store', 'SHA256SUMS', 'f'.repeat(64)]) writeFileSync(join(exchanges, name), '');
    const before = readdirSync(exchanges);
    const log = await opened({ mostExchanges: 1, onUnpruned: (reason) => assert.fail(reason) });
    const sha256 = 'a'.repeat(64);
    log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': 'a nonce' } });
    log.add(receipt('r1', { epoch: null }));
    await log.close();
    assert.equal(log.counters.written, 1);
    assert.deepEqual(readdirSync(exchanges).toSorted(), [...before, sha256].toSorted());
  });

  it('deletes what a crash has left of an exchange, if it is older than a day', async () => {
    const exchanges = join(directory, 'exchanges');
    const [old, young] = ['1', '2'].map((digit) => join(exchanges, `.${digit.repeat(36)}.tmp`)) as [
      string,
      string,
    ];
    for (const path of [old, young]) mkdirSync(join(path, 'roots'), { recursive: true, mode: 0o700 });
    for (const [path, age] of [
      [old, 2 * 86_400_000],
      [young, 60_000],
    ] as const)
      utimesSync(path, (NOON - age) / 1000, (NOON - age) / 1000);
    const log = await opened();
    const sha256 = 'a'.repeat(64);
    log.keepVerdict(sha256, '{}', { sha256, files: { 'nonce.json': 'a nonce' } });
    await log.close();
    assert.deepEqual([existsSync(old), existsSync(young)], [false, true]);
  });

  it('makes its key if the file system does not support links', async (t) => {
    breakFs(t, 'link', async () => {
      throw errno('EPERM');
    });
    const { publicKey, close } = await opened();
    await close();
    const again = await opened();
    await again.close();
    assert.equal(again.publicKey, publicKey);
  });

  it('fails with receipts_unavailable if nothing can be written', async () => {
    writeFileSync(directory, 'a file');
    await assert.rejects(opened(), { code: 'receipts_unavailable' });
  });

  it('leaves a chain that verifies up to the crash, with the gap named, each time the process is killed', {
    timeout: 600_000,
  }, async () => {
    const writer = `
      const { openReceiptLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/receipts/receipt-log.ts'))});
      const { clockWith } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/clock.ts'))});
      const clock = clockWith({ ...${JSON.stringify(TIMES)}, batchPause: 1 });
      const log = await openReceiptLog({ workspace: process.argv[1], version: '1', clock, onFailure() {}, onRecovery() {} });
      console.log('ready');
      const receipt = ${JSON.stringify(receipt('r', { epoch: null }))};
      setInterval(() => { for (let i = 0; i < 50; i++) log.add(receipt); }, 1);`;
    const written = (): number =>
      readdirSync(directory)
        .filter((file) => file.endsWith('.jsonl'))
        .reduce((sum, file) => sum + statSync(join(directory, file)).size, 0);
    for (let round = 0; round < 3; round++) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', writer, workspace]);
      await once(child.stdout, 'data');
      const atStart = written();
      await eventually('the writer to write', () => written() >= atStart + 20_000 * round);
      child.kill('SIGKILL');
      await once(child, 'close');
    }
    const { ok, instances, requests, findings } = await checkReceipts(directory);
    assert.deepEqual([ok, instances], [true, 3]);
    assert.ok(requests > 0);
    assert.deepEqual(
      new Set(findings.map((found) => `${sortOf(found)} ${/killed/.exec(found.message)}`)),
      new Set(['gap killed']),
    );
    assert.equal(findings.length, 3);
  });

  it('leaves half a line after a crash, which a check reports as a gap and does not count', async () => {
    const file = await fourReceipts();
    const lines = linesOf(file);
    writeFileSync(
      join(directory, file),
      `${lines.slice(0, 5).join('\n')}\n${(lines[5] as string).slice(0, 40)}`,
    );
    const { ok, lines: count, findings } = await checkReceipts(directory);
    assert.deepEqual(
      [ok, count, findings.map((found) => [sortOf(found), found.line])],
      [true, 5, [['gap', 5]]],
    );
    assert.match(findings[0]?.message as string, /cut off/);
  });
});

describe('refused requests', () => {
  const refusal = (code: string, more: Partial<RequestReceipt> = {}): RequestReceipt =>
    receipt('refused', { endpoint: null, outcome: 'refused', epoch: null, tokens: null, code, ...more });
  const recordsOf = (instance: string) =>
    linesOf(`2026-12-01.${instance}.jsonl`).map((line) => JSON.parse(line));

  it('are counted by client and code, in one signed line, if they were refused before admission', async () => {
    const log = await opened();
    for (let i = 0; i < 30_000; i++) log.add(refusal('client_unknown'));
    log.add(receipt('r1', { epoch: null }));
    for (let i = 0; i < 3; i++) log.add(refusal('client_forbidden', { client: 'ann' }));
    for (let i = 0; i < 30_000; i++) log.add(refusal('unknown_path'));
    await log.close();
    const [, admitted, { sig, prev, ...line }, ...rest] = recordsOf(log.instance);
    assert.equal(admitted.id, 'r1');
    assert.deepEqual(Object.keys(line), ['v', 'instance', 'seq', 'type', 'time', 'durationMs', 'counts']);
    assert.deepEqual(line, {
      ...{ v: 1, instance: log.instance, seq: 2, type: 'refused' },
      ...{ time: '2026-12-01T12:00:00.000Z', durationMs: 0 },
      counts: [
        { client: null, code: 'client_unknown', count: 30_000 },
        { client: 'ann', code: 'client_forbidden', count: 3 },
        { client: null, code: 'unknown_path', count: 30_000 },
      ],
    });
    assert.deepEqual(
      rest.map(({ type }) => type),
      ['closed'],
    );
    assert.deepEqual(log.counters, { written: 1, lost: 0 });
    assert.deepEqual(withoutKey(await checkReceipts(directory)), {
      ...{ ok: true, instances: 1, lines: 4, requests: 1 },
      refused: { client_unknown: 30_000, client_forbidden: 3, unknown_path: 30_000 },
      findings: [],
    });
  });

  it('are summed up in one line per interval as long as they come', async () => {
    const log = await opened({ clock: clockOf({ now: () => NOON, batchPause: 1, refusalInterval: 5 }) });
    for (const lines of [2, 3, 4]) {
      log.add(refusal('unknown_path'));
      log.add(refusal('unknown_path'));
      await eventually('the receipts', () => recordsOf(log.instance).length === lines);
    }
    await log.close();
    assert.deepEqual(
      recordsOf(log.instance).map(({ type, counts }) => counts?.[0].count ?? type),
      ['opened', 2, 2, 2, 'closed'],
    );
  });

  it('cause no loss of receipts that are added while the sum of refusals is written', async () => {
    const log = await opened({ clock: clockOf({ now: () => NOON, batchPause: 1, refusalInterval: 1 }) });
    for (let i = 0; i < 500; i++) {
      log.add(refusal('unknown_path'));
      log.add(receipt(`r${i}`, { epoch: null }));
      if (i % 5 === 0) await delay(1); // time to write some of it, which is what this is about
    }
    await log.close();
    assert.deepEqual(log.counters, { written: 500, lost: 0 });
    const { requests, refused } = await checkReceipts(directory);
    assert.deepEqual([requests, refused], [500, { unknown_path: 500 }]);
  });

  it('have lines of their own if refused after admission, unless these would push out other receipts', async () => {
    const log = await opened({ mostPending: 100 });
    const wrong = refusal('invalid_json', { endpoint: 'chat', client: 'bob' });
    for (let i = 0; i < 1_000; i++) log.add(wrong);
    for (let i = 0; i < 90; i++) log.add(receipt(`r${i}`, { epoch: null }));
    await log.close();
    assert.deepEqual(log.counters, { written: 100, lost: 0 });
    const { requests, refused } = await checkReceipts(directory);
    assert.deepEqual([requests, refused], [100, { invalid_json: 990 }]);
    const { counts } = recordsOf(log.instance).find(({ type }) => type === 'refused');
    assert.deepEqual(counts, [{ client: 'bob', code: 'invalid_json', count: 990 }]);
  });

  it('are all counted after the disk failed, and take no places of waiting receipts', async () => {
    const { log, told, mend } = await onFailingDisk({ mostPending: 5 });
    for (let i = 0; i < 500; i++) log.add(refusal('unknown_path'));
    await eventually('the receipts', () => told.length > 0);
    for (let i = 0; i < 500; i++) log.add(refusal('unknown_path'));
    mend();
    await eventually('the receipts', () => told.length > 1);
    await log.close();
    assert.equal(log.counters.lost, 0);
    assert.deepEqual((await checkReceipts(directory)).refused, { unknown_path: 1_000 });
  });
});

/**
 * A log whose disk fails once it is open, with a new file due; what it told of that, and how to mend the
 * disk.
 */
async function onFailingDisk(options: Parameters<typeof opened>[0] = {}) {
  const told: string[] = [];
  let now = NOON;
  const log = await opened({
    ...options,
    onFailure: () => told.push('failure'),
    onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    clock: clockOf({ now: () => now, batchPause: 1, refusalInterval: 1 }),
  });
  const mend = breakDirectory();
  now += 86_400_000;
  return { log, told, mend };
}

/**
 * In the place of the directory lies a file: nothing can be written, by whatever user. Gives back how to mend
 * it.
 */
function breakDirectory(): () => void {
  const publicKey = readFileSync(join(directory, 'public.pem'));
  rmSync(directory, { recursive: true });
  writeFileSync(directory, '');
  return () => {
    rmSync(directory);
    mkdirSync(directory, { mode: 0o700, recursive: true }); // the log may be making it, too
    writeFileSync(join(directory, 'public.pem'), publicKey);
  };
}
