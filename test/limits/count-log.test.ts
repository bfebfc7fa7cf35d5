/** The counts of limits as they lie on the disk: what a restart finds of them, after every mishap. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { beforeEach, describe, it, type TestContext } from 'node:test';
import { type CountLogOptions, type CountRecord, openCountLog } from '../../lib/limits/count-log.ts';
import { TIMES } from '../../lib/times.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const NOON = Date.UTC(2026, 11, 1, 12);
const MIDNIGHT = Date.UTC(2026, 11, 2);

let workspace: string;
let directory: string;
beforeEach(() => {
  workspace = temporaryDirectory('counts-');
  directory = join(workspace, 'limits');
});

const opened = (now: number | (() => number), more: Partial<CountLogOptions> = {}) =>
  openCountLog({
    workspace,
    clock: clockOf({ now: typeof now === 'number' ? () => now : now, batchPause: 1 }),
    onFailure: (reason) => assert.fail(reason),
    onRecovery: () => assert.fail('nothing failed'),
    ...more,
  });

const admitted = (client: string, at: number): CountRecord => ({ client, at, requests: 1, tokens: 0 });
const used = (client: string, at: number, tokens: number): CountRecord => ({
  client,
  at,
  requests: 0,
  tokens,
});

/** Writes these records as an instance of its own. */
async function written(records: readonly CountRecord[], now: number | (() => number) = NOON): Promise<void> {
  const log = await opened(now);
  for (const record of records) log.add(record);
  await log.close();
}

/** What an instance that starts now finds. */
async function found(now = NOON): Promise<{ before: readonly CountRecord[]; unreadable: number }> {
  const { before, unreadable, close } = await opened(now);
  await close();
  return { before, unreadable };
}

const line = (...counts: unknown[]): string =>
  JSON.stringify({ v: 1, time: '2026-12-01T12:00:00.000Z', counts });

/** A file of another instance, made by hand. */
function store(name: string, text: string): void {
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, name), text);
}

const names = (): string[] => readdirSync(directory).sort();

describe('the counts of limits on disk', { timeout: 600_000 }, () => {
  it('are read after a restart: admissions of the last minute one by one, tokens of the day as a sum', async () => {
    await written([admitted('ann', NOON - 60_000)], NOON - 60_000);
    await written([
      admitted('ann', NOON - 59_999),
      admitted('bob', NOON - 1_000),
      admitted('ann', NOON - 1_000),
      admitted('ann', NOON - 1_000),
    ]);
    await written([used('ann', NOON - 43_200_000, 5), used('ann', NOON - 10, 7), used('bob', NOON - 20, 1)]);
    const { before } = await found();
    assert.deepEqual(before, [
      admitted('ann', NOON - 59_999),
      admitted('bob', NOON - 1_000),
      admitted('ann', NOON - 1_000),
      admitted('ann', NOON - 1_000),
      used('bob', NOON - 20, 1),
      used('ann', NOON - 10, 12),
    ]);
  });

  it('are JSON lines of version 1, in files that only their owner can read', async () => {
    await written([admitted('ann', NOON - 5), used('ann', NOON - 3, 4), used('ann', NOON - 2, 6)]);
    const [name = '', ...others] = names();
    assert.deepEqual(others, []);
    assert.match(name, /^2026-12-01\.[a-z0-9]{12}\.jsonl$/);
    assert.deepEqual(JSON.parse(readFileSync(join(directory, name), 'utf8')), {
      v: 1,
      time: '2026-12-01T12:00:00.000Z',
      counts: [
        { client: 'ann', at: NOON - 2, requests: 0, tokens: 10 },
        { client: 'ann', at: NOON - 5, requests: 1, tokens: 0 },
      ],
    });
    const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8);
    assert.deepEqual([mode(join(directory, name)), mode(directory)], ['600', '700']);
  });

  it('are in no file if nothing was counted', async () => {
    await written([]);
    assert.deepEqual(names(), []);
  });

  it('are written to the disk without waiting for close', async () => {
    const log = await opened(NOON);
    log.add(admitted('ann', NOON));
    await eventually('a whole line', () => {
      const [name] = names();
      return name !== undefined && readFileSync(join(directory, name), 'utf8').endsWith('\n');
    });
    assert.deepEqual((await found()).before, [admitted('ann', NOON)]);
    log.add(used('ann', NOON, 3));
    await log.close();
    assert.deepEqual((await found()).before, [used('ann', NOON, 3), admitted('ann', NOON)]);
  });

  it('include no record that is added after close', async () => {
    const log = await opened(NOON);
    await log.close();
    log.add(admitted('ann', NOON));
    await log.close();
    assert.deepEqual(names(), []);
  });

  it('are added up over all instances that share the workspace', async () => {
    const [one, two] = [await opened(NOON), await opened(NOON)];
    for (const log of [one, two, one]) log.add(used('ann', NOON, 10));
    await Promise.all([one.close(), two.close()]);
    assert.equal(names().length, 2);
    assert.deepEqual((await found()).before, [used('ann', NOON, 30)]);
  });

  it('are in the file of the day of their record, even if they are written on the next day', async () => {
    await written(
      [
        admitted('ann', MIDNIGHT - 10),
        used('ann', MIDNIGHT - 5, 100),
        admitted('ann', MIDNIGHT),
        used('ann', MIDNIGHT + 5, 1),
      ],
      MIDNIGHT + 20,
    );
    assert.deepEqual(
      names().map((name) => name.slice(0, 10)),
      ['2026-12-01', '2026-12-02'],
    );
    const tokens = (records: readonly CountRecord[]) => records.map(({ tokens }) => tokens);
    assert.deepEqual(tokens((await found(MIDNIGHT - 1)).before), [0, 100, 0]);
    const after = await found(MIDNIGHT + 30);
    assert.deepEqual(after.before, [
      admitted('ann', MIDNIGHT - 10),
      admitted('ann', MIDNIGHT),
      used('ann', MIDNIGHT + 5, 1),
    ]);
    assert.deepEqual(tokens((await found(MIDNIGHT + 86_400_000)).before), []);
  });

  it('are dated now if they are in the future; admissions over a minute in the future are left out', async () => {
    await written([admitted('ann', NOON), admitted('bob', NOON + 60_000), used('ann', NOON + 60_000, 9)]);
    const { before } = await found(NOON - 5_000);
    assert.deepEqual(before, [used('ann', NOON - 5_000, 9), admitted('ann', NOON - 5_000)]);
    await written([admitted('ann', MIDNIGHT + 10)], MIDNIGHT + 10);
    assert.deepEqual((await found(MIDNIGHT - 10)).before.at(-1), admitted('ann', MIDNIGHT - 10));
  });

  it('are written to the file of the earlier day after the clock was set back', async () => {
    let now = MIDNIGHT;
    const log = await opened(() => now);
    for (const at of [MIDNIGHT - 1, MIDNIGHT, MIDNIGHT - 1]) {
      now = at;
      log.add(used('ann', at, 1));
      const lines = (): number =>
        names()
          .map((name) => readFileSync(join(directory, name), 'utf8'))
          .join('')
          .split('\n').length;
      const had = existsSync(directory) ? lines() : 0;
      await eventually('another line', () => lines() > had);
    }
    await log.close();
    assert.equal(names().length, 2);
    assert.deepEqual((await found(MIDNIGHT - 1)).before, [used('ann', MIDNIGHT - 1, 2)]);
  });
});

describe('the directory of the counts of limits', { timeout: 600_000 }, () => {
  const OLD = line(used('ann', NOON, 1));

  it('may have a file with an incomplete line, last or between others; only that line is left out', async () => {
    store('2026-12-01.aaaaaaaaaaaa.jsonl', `${OLD}\n${OLD.slice(0, 60)}`);
    assert.deepEqual(await found(), { before: [used('ann', NOON, 1)], unreadable: 0 });
    store('2026-12-01.bbbbbbbbbbbb.jsonl', `${OLD}\n${OLD.slice(0, 60)}\n${OLD}\n`);
    assert.deepEqual(await found(), { before: [used('ann', NOON, 3)], unreadable: 1 });
  });

  for (const [what, text] of [
    ['no JSON', '{'],
    ['no object', 'null'],
    ['another version', OLD.replace('"v":1', '"v":2')],
    ['counts that are no list', '{"v":1,"counts":{}}'],
    ['null for a count', line(null)],
    ['a name that no client can have', line(used('../ann', NOON, 1))],
    ['text for a time', line({ ...used('ann', NOON, 1), at: '2026' })],
    ['a time of which no date can be made', line(used('ann', 8.64e15 + 1, 1))],
    ['a negative number', line(used('ann', NOON, -1))],
    ['a fraction', line(used('ann', NOON, 0.5))],
    ['no number of requests', line({ client: 'ann', at: NOON, tokens: 1 })],
    ['two requests in one record', line({ ...admitted('ann', NOON), requests: 2 })],
    ['2^53 - 1 requests in one record', line({ ...admitted('ann', NOON), requests: 2 ** 53 - 1 })],
    ['a bad record behind a good one', line(used('ann', NOON, 1), used('ann', NOON, -1))],
    ['text that would fill the memory', `"${'x'.repeat(3 << 20)}"`],
  ] as const) {
    it(`may have a line with ${what}, which is left out and counted as unreadable`, async () => {
      store('2026-12-01.aaaaaaaaaaaa.jsonl', `${OLD}\n${text}\n${OLD}\n`);
      assert.deepEqual(await found(), { before: [used('ann', NOON, 2)], unreadable: 1 });
    });
  }

  it('may have counts of clients that are called constructor and toString', async () => {
    await written([used('constructor', NOON, 1), used('constructor', NOON, 2), used('toString', NOON, 4)]);
    assert.deepEqual((await found()).before, [used('constructor', NOON, 3), used('toString', NOON, 4)]);
  });

  it('has its files deleted after eight days, and no file whose name has another form', async () => {
    const kept = [
      '2026-11-23.aaaaaaaaaaaa.jsonl',
      '2026-12-01.aaaaaaaaaaaa.jsonl',
      '2027-01-01.aaaaaaaaaaaa.jsonl',
      '2026-11-01.aaaaaaaaaaaa.jsonl.bak',
      '2026-11-01.aaaaaaaaaaaaa.jsonl',
      '2026-11-01.AAAAAAAAAAAA.jsonl',
      '2026-11-01.jsonl',
      ' 2026-11-01.aaaaaaaaaaaa.jsonl',
      '2026-11-01.aaaaaaaaaaaa.jsonl\n',
      '2026-11-01.aaaa\naaaaaaa.jsonl',
      '2026-11-1.aaaaaaaaaaaa.jsonl',
      'notes.txt',
    ];
    for (const name of [...kept, '2026-11-22.aaaaaaaaaaaa.jsonl', '1999-01-01.zzzzzzzzzzzz.jsonl'])
      store(name, `${OLD}\n`);
    mkdirSync(join(directory, '2026-11-02.aaaaaaaaaaaa.jsonl'));
    assert.deepEqual((await found()).before, [used('ann', NOON, 1)]);
    assert.deepEqual(names(), [...kept, '2026-11-02.aaaaaaaaaaaa.jsonl'].sort());
  });

  it('has the files of a running gateway deleted after eight days too', async () => {
    let now = NOON;
    const log = await opened(() => now);
    const days = (): string[] => names().map((name) => name.slice(0, 10));
    for (let day = 1; day <= 12; day++) {
      log.add(used('ann', now, 1));
      const today = new Date(now).toISOString().slice(0, 10);
      await eventually('the file of the day', () => existsSync(directory) && days().includes(today));
      if (day < 12) now += 86_400_000;
    }
    await log.close();
    assert.deepEqual([days().length, days()[0], days().at(-1)], [9, '2026-12-04', '2026-12-12']);
  });

  it('has files that are links neither read nor deleted', async () => {
    const outside = join(workspace, 'outside');
    writeFileSync(outside, `${OLD}\n`);
    mkdirSync(directory);
    for (const day of ['2026-12-01', '2026-11-01'])
      symlinkSync(outside, join(directory, `${day}.aaaaaaaaaaaa.jsonl`));
    assert.deepEqual(await found(), { before: [], unreadable: 0 });
    assert.equal(names().length, 2);
    assert.equal(readFileSync(outside, 'utf8'), `${OLD}\n`);
  });

  it('is refused if it is a file, or a link to another directory', async () => {
    const elsewhere = join(workspace, 'elsewhere');
    mkdirSync(elsewhere);
    writeFileSync(join(elsewhere, '2026-11-01.aaaaaaaaaaaa.jsonl'), '');
    symlinkSync(elsewhere, directory);
    const refused = {
      code: 'config_invalid',
      message: /^--workspace: the counts of limits cannot be kept in /,
    };
    await assert.rejects(opened(NOON), refused);
    assert.deepEqual(readdirSync(elsewhere), ['2026-11-01.aaaaaaaaaaaa.jsonl']);
    rmSync(directory);
    writeFileSync(directory, 'a file');
    await assert.rejects(opened(NOON), refused);
  });
});

describe('counts of limits that cannot be written', { timeout: 600_000 }, () => {
  /** Lets files take no more than `room` bytes in all, until the disk is mended. */
  function fillDisk(t: TestContext, room: number) {
    let left = room;
    let attempts = 0;
    const realOpen = fs.open;
    t.mock.method(fs, 'open', async (path: string, ...rest: [string, number]) => {
      const handle = await realOpen(path, ...rest);
      const write = handle.write.bind(handle) as (bytes: Buffer) => Promise<{ bytesWritten: number }>;
      handle.write = (async (bytes: Buffer) => {
        const fits = bytes.subarray(0, left);
        attempts += 1;
        left -= fits.length;
        if (fits.length === 0) throw Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' });
        return write(fits);
      }) as typeof handle.write;
      return handle;
    });
    syncBuiltinESMExports();
    t.after(() => {
      t.mock.restoreAll();
      syncBuiltinESMExports();
    });
    return {
      attempts: () => attempts,
      mend: (): void => {
        left = Number.POSITIVE_INFINITY;
      },
      fill: (): void => {
        left = 0;
      },
    };
  }

  it('wait while the disk is full, which is reported once, and are written completely later', async (t) => {
    const disk = fillDisk(t, 30); // the first write is cut short
    const told: string[] = [];
    const log = await opened(NOON, {
      onFailure: ({ message }) => told.push(message),
      onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    });
    for (let i = 0; i < 5; i++) {
      log.add(admitted('ann', NOON));
      log.add(used('ann', NOON, 1));
      const before = disk.attempts();
      await eventually('an attempt to write', () => disk.attempts() > before);
    }
    disk.mend();
    await eventually('the recovery', () => told.length > 1);
    await log.close();
    assert.deepEqual(told, ['short write', 'recovery, 0 lost']);
    assert.deepEqual(await found(), {
      before: [used('ann', NOON, 5), ...Array.from({ length: 5 }, () => admitted('ann', NOON))],
      unreadable: 0,
    });
  });

  it('wait in bounded number: the oldest admissions are dropped and their number is reported; tokens are kept', async (t) => {
    const disk = fillDisk(t, 0);
    const told: string[] = [];
    let now = NOON;
    const log = await opened(() => now, {
      mostPending: 10,
      onFailure: ({ code }: NodeJS.ErrnoException) => told.push(code as string),
      onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    });
    for (let i = 0; i < 15; i++) {
      now += 1;
      log.add(admitted('ann', now));
      log.add(used('ann', now, 1));
    }
    await eventually('the failure', () => told.length > 0);
    disk.mend();
    await log.close();
    assert.equal(told[0], 'ENOSPC');
    const lost = Number(/recovery, (\d+) lost/.exec(told[1] as string)?.[1]);
    const { before } = await found(now);
    const kept = before.filter(({ requests }) => requests > 0);
    assert.equal(before.find(({ tokens }) => tokens > 0)?.tokens, 15);
    assert.ok(kept.length >= 5 && kept.length <= 10, `${kept.length} kept`);
    assert.equal(kept.length + lost, 15);
    assert.deepEqual(
      kept.map(({ at }) => at),
      Array.from(kept, (_, i) => NOON + 16 - kept.length + i),
    );
  });

  it('are reported as written again once the disk has room, though all that wait have become too old', async (t) => {
    const disk = fillDisk(t, 0);
    const told: string[] = [];
    let now = NOON;
    const log = await opened(() => now, {
      onFailure: ({ code }: NodeJS.ErrnoException) => told.push(code as string),
      onRecovery: (lost) => told.push(`recovery, ${lost} lost`),
    });
    for (const count of [admitted('ann', now), used('ann', now, 1)]) {
      log.add(count);
      await eventually('a failure', () => told.length % 2 === 1);
      now += 3 * 86_400_000;
      const before = disk.attempts();
      await eventually('an attempt of three days later', () => disk.attempts() > before + 1);
      assert.equal(told.at(-1), 'ENOSPC');
      disk.mend();
      await eventually('the recovery', () => told.length % 2 === 0);
      disk.fill();
    }
    await log.close();
    assert.deepEqual(told, ['ENOSPC', 'recovery, 0 lost', 'ENOSPC', 'recovery, 0 lost']);
    assert.deepEqual((await found(now)).before, []);
  });

  it('are written after the disk recovers, without the records that have become too old to count', async (t) => {
    const disk = fillDisk(t, 0);
    let now = NOON;
    let failed = false;
    const log = await opened(() => now, {
      onFailure: () => {
        failed = true;
      },
      onRecovery: (lost) => assert.equal(lost, 0),
    });
    log.add(used('ann', NOON - 43_200_001, 1));
    log.add(used('ann', NOON, 2));
    await eventually('the failure', () => failed);
    now = NOON + 86_400_000;
    log.add(admitted('ann', now - 60_000));
    log.add(admitted('ann', now - 59_999));
    disk.mend();
    await log.close();
    const lines = names()
      .map((name) => readFileSync(join(directory, name), 'utf8'))
      .filter((text) => text !== '')
      .map((text) => JSON.parse(text).counts);
    assert.deepEqual(lines, [[used('ann', NOON, 2)], [admitted('ann', now - 59_999)]]);
  });

  it('are written once if the disk becomes full between two days of one batch', async (t) => {
    const { length } = `${line(used('ann', MIDNIGHT - 1, 100))}\n`;
    const disk = fillDisk(t, length + 10);
    let failed = false;
    const log = await opened(MIDNIGHT, {
      onFailure: () => {
        failed = true;
      },
      onRecovery: () => {},
    });
    log.add(used('ann', MIDNIGHT - 1, 100));
    log.add(used('ann', MIDNIGHT, 3));
    await eventually('the failure', () => failed);
    disk.mend();
    await log.close();
    assert.deepEqual((await found(MIDNIGHT - 1)).before, [used('ann', MIDNIGHT - 1, 100)]);
    assert.deepEqual(await found(MIDNIGHT), { before: [used('ann', MIDNIGHT, 3)], unreadable: 0 });
  });

  it('are given up on close if they still cannot be written', async (t) => {
    fillDisk(t, 0);
    const told: string[] = [];
    const log = await opened(NOON, { onFailure: ({ message }) => told.push(message) });
    log.add(admitted('ann', NOON));
    await log.close();
    assert.equal(told.length, 1);
  });
});

describe('a process that is killed while it counts for limits', { timeout: 600_000 }, () => {
  it('leaves lines of counts that the next start can read', async () => {
    const writer = `
      const { openCountLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/limits/count-log.ts'))});
      const { clockWith } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/clock.ts'))});
      const clock = clockWith({ ...${JSON.stringify(TIMES)}, batchPause: 1 });
      const log = await openCountLog({ workspace: process.argv[1], clock, onFailure() {}, onRecovery() {} });
      console.log('ready');
      setInterval(() => { for (let i = 0; i < 50; i++) log.add({ client: 'ann', at: Date.now(), requests: 1, tokens: 1 }); }, 1);`;
    let sum = 0;
    for (let round = 0; round < 2; round++) {
      const old = new Set(round === 0 ? [] : names());
      const child = spawn(process.execPath, ['--input-type=module', '-e', writer, workspace]);
      await once(child.stdout, 'data');
      await eventually('a new file with counts', () =>
        names().some((name) => !old.has(name) && statSync(join(directory, name)).size > 0),
      );
      await new Promise((resolve) => setTimeout(resolve, 10 + 45 * round));
      child.kill('SIGKILL');
      await once(child, 'close');
      const { before, unreadable } = await found(Date.now());
      const tokens = before.reduce((total, record) => total + record.tokens, 0);
      assert.equal(unreadable, 0);
      assert.ok(tokens > sum, `${tokens} after ${sum}`);
      sum = tokens;
    }
    appendFileSync(join(directory, names()[0]!), '{"v":1,"time":"2026-12-01T12:00:00.000Z","counts":[{"cl');
    const { before, unreadable } = await found(Date.now());
    assert.deepEqual([before.reduce((total, record) => total + record.tokens, 0), unreadable], [sum, 0]);
  });
});
