/** The counts of limits in limits.json: what a restart finds of them, and what is told when it would not. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { type ClientCounts, openCountsFile } from '../../lib/limits/counts-file.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf, createFakeClock } from '../support/remote/fake-clock.ts';

const NOON = Date.UTC(2026, 11, 1, 12);
const MIDNIGHT = Date.UTC(2026, 11, 2);
const DAY = 86_400_000;

let workspace: string;
let path: string;
beforeEach(() => {
  workspace = temporaryDirectory('counts-');
  path = join(workspace, 'limits.json');
});

async function opened(now: number, clock = clockOf({ now: () => now, countsPause: 1 })) {
  const told: string[] = [];
  const note = (reason?: NodeJS.ErrnoException): void => {
    const event = reason === undefined ? 'written' : (reason.code ?? reason.message);
    if (event !== told.at(-1)) told.push(event);
  };
  return { told, ...(await openCountsFile(workspace, clock, note)) };
}

/** What a gateway that starts now finds. */
async function found(now = NOON): Promise<readonly ClientCounts[] | undefined> {
  const { before, close } = await opened(now);
  await close();
  return before;
}

const ANN = { name: 'ann', tokens: 7, admissions: [NOON - 59_999, NOON - 1_000] };
const BOB = { name: 'constructor', tokens: 0, admissions: [] };
const text = (clients: readonly unknown[] = [ANN, BOB], day = '2026-12-01', v = 1): string =>
  JSON.stringify({ v, day, clients });

describe('the counts of limits in the workspace', { timeout: 600_000 }, () => {
  it('are JSON of version 1, in one file that only its owner can read; without counts there is none', async () => {
    const { store, close } = await opened(NOON);
    await close();
    assert.ok(!existsSync(path));
    store(() => [ANN, BOB]);
    await close();
    assert.equal(readFileSync(path, 'utf8'), text());
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  it('are written within a second after they changed, and not again without a change', async () => {
    const clock = createFakeClock(NOON);
    const { store, close } = await opened(NOON, clock);
    await clock.advance(500);
    store((now) => [{ ...ANN, tokens: now - NOON }]);
    await clock.advance(499);
    assert.ok(!existsSync(path));
    await clock.advance(1);
    await eventually('the file', () => existsSync(path));
    assert.equal(readFileSync(path, 'utf8'), text([{ ...ANN, tokens: 1_000 }]));
    rmSync(path);
    await clock.advance(5_000);
    await close();
    assert.ok(!existsSync(path));
  });

  it('hold on the next day for requests of the last minute, but not for tokens', async () => {
    const admissions = [MIDNIGHT - 60_000, MIDNIGHT - 59_999, MIDNIGHT - 1];
    for (const [day, tokens] of [
      ['2026-12-01', 0],
      ['2026-12-02', 7],
      ['2026-12-03', 0],
    ] as const) {
      writeFileSync(path, text([{ ...ANN, admissions }], day));
      assert.deepEqual(await found(MIDNIGHT), [{ ...ANN, tokens, admissions: admissions.slice(1) }], day);
    }
  });

  it('hold if they lie less than a minute ahead, because the clock was set back', async () => {
    writeFileSync(path, text([{ ...ANN, admissions: [NOON + 59_999, NOON + 60_000, NOON + DAY] }]));
    assert.deepEqual(await found(), [{ ...ANN, admissions: [NOON + 59_999] }]);
  });

  it('are left out, which is told until they are written again, if the file has another form', async () => {
    for (const content of [
      '',
      text().slice(0, 60),
      'null',
      text([ANN], '2026-12-01', 2),
      '{"v":1,"day":"2026-12-01","clients":{}}',
      text([null]),
      text([ANN, { ...ANN, name: '../ann' }]),
      text([{ ...ANN, tokens: -1 }]),
      text([{ ...ANN, tokens: 0.5 }]),
      text([{ ...ANN, admissions: ['2026'] }]),
    ]) {
      writeFileSync(path, content);
      const { before, told, store, close } = await opened(NOON);
      assert.equal(before, undefined, content);
      assert.deepEqual(told, ['limits.json cannot be understood, and is left out']);
      store(() => [ANN]);
      await close();
      assert.equal(told.at(-1), 'written');
      assert.deepEqual(await found(), [ANN]);
    }
  });

  it('keep the program from starting if they cannot be read', async () => {
    mkdirSync(path);
    await assert.rejects(opened(NOON), {
      code: 'config_invalid',
      message: /^failed to read the counts of the limits, ".*limits\.json": EISDIR/,
    });
  });

  it('wait while they cannot be written, which is told, and are written later', async () => {
    const { told, store, close } = await opened(NOON);
    rmSync(workspace, { recursive: true });
    store(() => [ANN]);
    await eventually('the failure', () => told.length > 0);
    mkdirSync(workspace);
    await eventually('the recovery', () => told.length > 1);
    assert.deepEqual(told, ['ENOENT', 'written']);
    assert.deepEqual(await found(), [ANN]);
    rmSync(workspace, { recursive: true });
    store(() => [BOB]);
    await close();
    assert.equal(told.at(-1), 'ENOENT', 'they are lost at the end');
  });

  it('are told to be shared while another gateway writes to the same workspace', async () => {
    const [one, other] = [await opened(NOON), await opened(NOON)];
    const write = async ({ store, told }: typeof one, expected: RegExp): Promise<void> => {
      told.length = 0;
      store(() => [ANN]);
      await eventually(String(expected), () => expected.test(told.join()));
    };
    for (let i = 0; i < 2; i++) await write(one, /^written$/);
    for (const each of [other, one, other])
      await write(each, /^another gateway writes to this workspace, too/);
    await write(other, /^written$/);
  });
});
