/** Receipts and records of verifications, written through every mishap of the disk. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { link } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { sha256 } from '../../lib/receipts/receipt.ts';
import { TIMES } from '../../lib/times.ts';
import { DAY_MS, EPOCH, RECORD, receipt, receiptsOfEachTest } from '../support/doors/receipts.ts';
import { breakFiles, breakFs, errno } from '../support/processes/broken-file-system.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const here = receiptsOfEachTest();
const { linesOf, files, path } = here;

/** A receipt of a request under no epoch. */
const plain = (id: string, more: Parameters<typeof receipt>[1] = {}) => receipt(id, { epoch: null, ...more });
/** Of each line of all files: the id of a request, the number of lost ones, or its type. */
const written = (): (string | number)[] =>
  files()
    .flatMap(linesOf)
    .map((line) => JSON.parse(line))
    .map(({ id, count, type }) => id ?? count ?? type);

/** A log by a clock that the test turns, with what it told, without what it told again, and its counters. */
async function opened(more: Parameters<typeof here.open>[0] = {}) {
  const told: string[] = [];
  const tell = (what: string): void => {
    if (told.at(-1) !== what) told.push(what);
  };
  const counters = { lost: 0 };
  const clock = createFakeClock(here.now);
  const log = await here.open({
    counters,
    clock,
    onFailure: (reason) => tell((reason as NodeJS.ErrnoException).code ?? reason.message),
    onWritten: () => tell('written'),
    onLost: () => tell(`${counters.lost} lost`),
    ...more,
  });
  /** Lets the log try to write once, and waits until it has told this. */
  const tries = async (what: string): Promise<void> => {
    await clock.advance(TIMES.batchPause);
    await eventually(what, () => told.at(-1) === what);
  };
  return { log, told, counters, clock, tries };
}

describe('writing receipts', () => {
  it('makes files that only their owner reads, and the public key beside them', async () => {
    const log = await here.open();
    await log.close();
    const mode = (name: string): string => (fs.statSync(path(name)).mode & 0o777).toString(8);
    const names = [...files(), 'key.pem', 'public.pem', '', 'records'];
    assert.deepEqual(names.map(mode), ['600', '600', '644', '700', '700']);
    assert.ok(fs.readFileSync(path('public.pem'), 'utf8').includes(log.publicKey));
    const again = await here.open();
    await again.close();
    assert.equal(again.publicKey, log.publicKey);
  });

  it('gives two proxies with one workspace a chain each, under one key', async () => {
    const [one, two] = await Promise.all([here.open(), here.open()]);
    assert.equal(one.publicKey, two.publicKey);
    for (let i = 0; i < 50; i++) for (const log of [one, two]) log.add(plain(`${log.instance}-${i}`));
    await Promise.all([one.close(), two.close()]);
    const { ok, instances, lines, requests } = await checkReceipts(path(), { strict: true });
    assert.deepEqual([ok, instances, lines, requests], [true, 2, 104, 100]);
  });

  it('fails with receipts_unavailable and the cause if nothing can be written', async (t) => {
    breakFs(t, 'link', async () => {
      throw errno('EIO');
    });
    await assert.rejects(here.open(), { code: 'receipts_unavailable', message: /EIO: the disk is damaged$/ });
  });

  it('fails with the name of its directory if that is a link, and puts no key where the link leads', async () => {
    const elsewhere = temporaryDirectory('elsewhere-');
    fs.symlinkSync(elsewhere, path());
    const message = /receipts\/?: ENOTDIR: a file or a link stands where a directory is needed/;
    await assert.rejects(here.open(), { code: 'receipts_unavailable', message });
    assert.deepEqual(fs.readdirSync(elsewhere), []);
  });

  it('cuts off a torn write and writes each line once, also over midnight', async (t) => {
    let takes = Number.POSITIVE_INFINITY;
    breakFiles(t, /jsonl$/, { write: (real, bytes: Buffer) => real(bytes.subarray(0, takes)) });
    const { log, told, counters, clock, tries } = await opened();
    takes = 1_000; // a whole line, and a torn one
    for (const id of ['r1', 'r2', 'r3']) log.add(plain(id));
    await tries('ENOSPC');
    clock.jump(DAY_MS);
    log.add(plain('r4', { time: new Date(clock.now()).toISOString() }));
    takes = Number.POSITIVE_INFINITY;
    await log.close();
    assert.deepEqual([told, counters], [['ENOSPC', 'written'], { lost: 0 }]);
    assert.deepEqual(written(), ['opened', 'r1', 'r2', 'r3', 'opened', 'r4', 'closed']);
    assert.deepEqual((await checkReceipts(path(), { strict: true })).findings, []);
  });

  it('writes each line once, also if a file fails when it is closed', async (t) => {
    let fails = false;
    breakFiles(t, /jsonl$/, {
      async close(real) {
        await real();
        if (fails) throw errno('EIO');
      },
    });
    const { log, told, tries } = await opened();
    fails = true;
    log.add(plain('r1'));
    await tries('EIO');
    fails = false;
    await log.close();
    assert.deepEqual(told, ['EIO', 'written']);
    assert.deepEqual(written(), ['opened', 'r1', 'closed']);
  });

  it('counts the receipts that do not fit while the disk fails, and writes their number into the chain', async (t) => {
    let fails = false;
    breakFiles(t, /jsonl$/, {
      async datasync(real) {
        if (fails) throw errno('EIO');
        return real();
      },
    });
    const { log, told, counters, tries } = await opened({ mostPending: 5 });
    fails = true;
    for (let i = 0; i < 12; i++) log.add(plain(`r${i}`));
    await tries('EIO');
    fails = false;
    await log.close();
    assert.deepEqual(told, ['1 lost', 'EIO', '7 lost', 'written']);
    assert.deepEqual(counters, { lost: 7 });
    assert.deepEqual(written(), ['opened', 'r0', 'r1', 'r2', 'r3', 'r4', 7, 'closed']);
    const { ok, findings } = await checkReceipts(path());
    assert.equal(ok, true);
    assert.match(findings[0]?.message ?? '', /^7 receipts before it were not written$/);
  });

  it('counts the receipts that could not be written at the end', async (t) => {
    let fails = false;
    breakFiles(t, /jsonl$/, {
      async write(real, bytes: Buffer) {
        if (fails) throw errno('EROFS');
        return real(bytes);
      },
    });
    const { log, told, counters } = await opened();
    fails = true;
    for (const id of ['r1', 'r2', 'r3']) log.add(plain(id));
    await log.close();
    assert.deepEqual([told, counters], [['EROFS', '3 lost'], { lost: 3 }]);
    assert.deepEqual(written(), ['opened']);
  });

  it('waits for no disk that hangs: it tells after 10 s, counts what does not fit, and goes on with it', async (t) => {
    const disk = Promise.withResolvers<void>();
    let hangs = false;
    breakFiles(t, /jsonl$/, {
      async datasync(real) {
        if (hangs) await disk.promise;
        return real();
      },
    });
    const { log, told, counters, clock } = await opened({ mostPending: 5 });
    hangs = true;
    for (let i = 0; i < 8; i++) log.add(plain(`r${i}`));
    await clock.advance(TIMES.batchPause + TIMES.diskPatience);
    assert.deepEqual([told, counters.lost], [['1 lost', 'ETIMEDOUT'], 3]);
    hangs = false;
    disk.resolve();
    await log.close();
    assert.deepEqual(told, ['1 lost', 'ETIMEDOUT', '3 lost', 'written']);
    assert.deepEqual([counters, written().includes(3)], [{ lost: 3 }, true]);
    assert.equal((await checkReceipts(path())).ok, true);
  });

  it('puts the last line into the file of its day, though nothing else is of that day', async () => {
    const log = await here.open();
    log.add(receipt('r1'));
    here.now += DAY_MS;
    await log.close();
    assert.deepEqual(written(), ['opened', 'epoch', 'r1', 'opened', 'closed']);
    assert.deepEqual((await checkReceipts(path(), { strict: true })).findings, []);
  });

  it('keeps the day of its file if the clock is set back, and puts no line into an earlier day', async () => {
    const { log, clock } = await opened();
    // The clock was set back while the request ran.
    log.add(plain('r1', { time: new Date(clock.now() + DAY_MS).toISOString() }));
    clock.jump(-DAY_MS);
    log.add(plain('r2'));
    await log.close();
    const found = files().map((file) => `${file.slice(0, 10)} ${linesOf(file).length}`);
    assert.deepEqual(found, ['2026-12-01 1', '2026-12-02 4']);
    assert.deepEqual((await checkReceipts(path(), { strict: true })).findings, []);
  });

  it('leaves a chain that verifies up to the crash, with the gap named, each time the process is killed', {
    timeout: 600_000,
  }, async () => {
    const writer = `
      const { openReceiptLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/receipts/receipt-log.ts'))});
      const { clockWith } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/clock.ts'))});
      const clock = clockWith({ ...${JSON.stringify(TIMES)}, batchPause: 1 });
      const told = { onFailure() {}, onRecovery() {}, onLost() {}, counters: {} };
      const log = await openReceiptLog({ workspace: process.argv[1], version: '1', roots: 'vendor', clock, ...told });
      console.log('ready');
      const receipt = ${JSON.stringify(plain('r'))};
      setInterval(() => { for (let i = 0; i < 50; i++) log.add(receipt); }, 1);`;
    const size = (): number => files().reduce((sum, file) => sum + fs.statSync(path(file)).size, 0);
    for (let round = 0; round < 3; round++) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', writer, here.workspace]);
      await once(child.stdout, 'data');
      const atStart = size();
      await eventually('the writer to write', () => size() >= atStart + 20_000 * round);
      child.kill('SIGKILL');
      await once(child, 'close');
    }
    const { ok, instances, requests, findings } = await checkReceipts(path());
    assert.deepEqual([ok, instances, requests > 0], [true, 3, true]);
    for (const { message } of findings) assert.match(message, /killed/);
    assert.equal(findings.filter(({ message }) => message.startsWith('is the last line')).length, 3);
  });
});

describe('the key that signs receipts', () => {
  beforeEach(async () => (await here.open()).close());

  const NO_KEY = /key\.pem is no Ed25519 private key in PEM$/;
  const UNUSABLE: [what: string, replace: () => void, why: RegExp][] = [
    ['a link', () => fs.symlinkSync('public.pem', path('key.pem')), /key\.pem: ELOOP: /],
    ['a FIFO', () => execFileSync('mkfifo', ['-m', '600', path('key.pem')]), NO_KEY],
    ['no key', () => fs.writeFileSync(path('key.pem'), 'x', { mode: 0o600 }), NO_KEY],
  ];
  for (const [what, replace, message] of UNUSABLE) {
    it(`is refused if it is ${what}`, async () => {
      fs.rmSync(path('key.pem'));
      replace();
      await assert.rejects(here.open(), { code: 'receipts_unavailable', message });
    });
  }

  for (const [directoryMode, keyMode, isRead] of [
    [0o700, 0o400, true],
    [0o700, 0o640, false],
    [0o700, 0o604, false],
    [0o770, 0o660, false],
    [0o2775, 0o660, true], // as the fsGroup of a pod leaves them
    [0o2775, 0o664, false],
  ] as const) {
    const [inside, mode] = [directoryMode, keyMode].map((each) => each.toString(8));
    it(`of mode ${mode} in a directory of mode ${inside} is ${isRead ? 'read' : 'refused'}`, async () => {
      fs.chmodSync(path(), directoryMode);
      fs.chmodSync(path('key.pem'), keyMode);
      const message = new RegExp(`key\\.pem can be read or written to by others \\(mode ${mode}\\)$`);
      const refused = { code: 'receipts_unavailable', message, remedy: /^Run chmod 600 on it/ };
      if (isRead) await (await here.open()).close();
      else await assert.rejects(here.open(), refused);
    });
  }
});

describe('the records of verifications', () => {
  const stored = (): string[] =>
    fs
      .readdirSync(path('records'))
      .filter((name) => !name.endsWith('.tmp'))
      .sort();
  const nameOf = (text: string): string => `${sha256(text)}.json`;
  /** A receipt under an epoch of its own, which the record with this text shows. */
  const under = (text: string) =>
    receipt('r', {
      epoch: { ...EPOCH, secretId: sha256(text), exchangeSha256: sha256(text), exchange: text },
    });

  it('are stored before the line that names them, readable by their owner only', async (t) => {
    const { log, tries } = await opened();
    let isFull = true;
    const realLink = link;
    breakFs(t, 'link', async (from: string, to: string) => {
      if (isFull) throw errno('ENOSPC');
      return realLink(from, to);
    });
    log.add(receipt('r1'));
    log.add(receipt('r2'));
    await tries('ENOSPC');
    assert.deepEqual([written(), stored()], [['opened'], []]);
    fs.rmSync(path('records'), { recursive: true });
    isFull = false;
    await tries('written');
    assert.deepEqual(stored(), [`${RECORD.sha256}.json`]);
    assert.equal(fs.readFileSync(path('records', `${RECORD.sha256}.json`), 'utf8'), RECORD.text);
    assert.equal(fs.statSync(path('records', `${RECORD.sha256}.json`)).mode & 0o777, 0o600);
    await log.close();
  });

  it('stay if they are of the newest 1,000 to which receipts refer', async () => {
    const { log } = await opened();
    for (let i = 0; i < 1_000; i++) {
      fs.writeFileSync(path('records', nameOf(`${i}`)), '');
      fs.utimesSync(path('records', nameOf(`${i}`)), i, i);
    }
    for (const text of ['one', 'two']) log.add(under(text));
    await log.close();
    assert.equal(stored().length, 1_000);
    const names = ['one', 'two', '0', '1', '2'].map(nameOf);
    assert.deepEqual(
      names.map((name) => stored().includes(name)),
      [true, true, false, false, true],
    );
  });

  it('wait for the disk in bounded number', async () => {
    const { log } = await opened();
    for (let i = 0; i < 200; i++) log.add(under(`${i}`));
    await log.close();
    assert.deepEqual([stored().length, (await checkReceipts(path())).requests], [20, 200]);
  });
});
