/**
 * What `--since` leaves out is missed all the same where a line names it; and a file holds the lines of its
 * day.
 */
import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { NOON, receipt, receiptsOfEachTest, signedAgain, sortOf } from '../support/doors/receipts.ts';
import { eventually } from '../support/processes/eventually.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const DAY_MS = 86_400_000;
const here = receiptsOfEachTest();

/**
 * An instance with a receipt on each of so many days, from the first or the named day of December on. Gives
 * its files.
 */
async function instance(days: number, first = 1): Promise<string[]> {
  let now = NOON + (first - 1) * DAY_MS;
  const log = await here.open({ clock: clockOf({ now: () => now, batchPause: 1 }) });
  for (let written = 0; written < days; written++) {
    if (written > 0) now += DAY_MS;
    log.add(receipt(`r${written}`, { epoch: null, time: new Date(now).toISOString() }));
    await eventually('the receipts', () => log.counters.written === written + 1);
  }
  await log.close();
  return Array.from({ length: days }, (_, i) => `2026-12-0${first + i}.${log.instance}.jsonl`);
}

const remove = (...files: readonly (string | undefined)[]): void => {
  for (const file of files) rmSync(join(here.directory, file as string));
};

interface Expected {
  readonly since?: string;
  readonly ok: boolean;
  readonly findings: readonly (readonly [sort: string, file: string | undefined, message: RegExp])[];
}
/** Checks what is found, in order; with `strict`, gaps count. */
async function expect({ since, ok, findings }: Expected): Promise<void> {
  const report = await checkReceipts(here.directory, { since });
  assert.deepEqual(
    report.findings.map((found) => [sortOf(found), found.file]),
    findings.map(([sort, file]) => [sort, file]),
    JSON.stringify(report.findings, undefined, 1),
  );
  for (const [i, [, , message]] of findings.entries())
    assert.match(report.findings[i]?.message as string, message);
  assert.equal(report.ok, ok);
  const strict = await checkReceipts(here.directory, { since, strict: true });
  assert.equal(
    strict.ok,
    findings.every(([sort]) => sort === 'junk'),
    'strict',
  );
}

describe('receipts of the days before --since', () => {
  it('lead to no finding if they are all present', async () => {
    await instance(3);
    await instance(1, 4);
    for (const since of ['2026-12-02', '2026-12-03', '2026-12-04', '2027-01-01'])
      await expect({ since, ok: true, findings: [] });
  });

  it('are a gap if a checked line names an instance whose files are gone, and missing without --since', async () => {
    const old = await instance(2);
    const [young] = await instance(1, 4);
    remove(...old);
    const message = /^names instance [a-z0-9]{12}, whose receipts are missing$/;
    await expect({ since: '2026-12-04', ok: true, findings: [['gap', young, message]] });
    await expect({ ok: false, findings: [['missing', young, message]] });
  });

  it('are a gap if the line that names the missing instance is itself before --since', async () => {
    const old = await instance(2);
    const [young] = await instance(1, 4);
    remove(...old);
    await expect({ since: '2026-12-24', ok: true, findings: [['gap', young, /whose receipts are missing/]] });
  });

  it('are a gap if the last day of an instance is gone and a checked line names its end', async () => {
    const [, last] = await instance(2);
    const [young] = await instance(1, 4);
    remove(last);
    await expect({
      since: '2026-12-04',
      ok: true,
      findings: [['gap', young, /^names number 3 of instance/]],
    });
  });

  it('are a gap if a day between others is gone', async () => {
    const [first, second, third] = await instance(3);
    remove(second);
    const message = `what follows ${first} is missing before this line`;
    await expect({ since: '2026-12-04', ok: true, findings: [['gap', third, new RegExp(`^${message}$`)]] });
  });

  it('are a gap if the day directly before --since is gone', async () => {
    const [, second, third] = await instance(3);
    remove(second);
    const message = /^numbers 2 to 2 are missing before this line: of days that were left out$/;
    await expect({ since: '2026-12-03', ok: true, findings: [['gap', third, message]] });
  });

  it('are a gap if the beginning of a chain was moved away, and missing without --since', async () => {
    const [first, second, third] = await instance(3);
    remove(first, second);
    const message = /^numbers 0 to 2 are missing before this line: of days that were left out$/;
    await expect({ since: '2026-12-03', ok: true, findings: [['gap', third, message]] });
    await expect({ ok: false, findings: [['missing', third, /number 0 is missing/]] });
  });

  it('do not excuse a missing day from --since on: that day is missing, not a gap', async () => {
    const [, second, third] = await instance(3);
    remove(second);
    const findings = [['missing', third, /^number 2 is missing before this line$/]] as const;
    await expect({ since: '2026-12-02', ok: false, findings });
  });

  it('are not reported as missing because of a forged line: only signed lines name instances', async () => {
    const [file = ''] = await instance(1);
    const [opened = ''] = here.linesOf(file);
    const found = [{ instance: 'abcdefghijkl', seq: 1, sha256: 'c'.repeat(64) }];
    const forged = JSON.stringify({ ...JSON.parse(opened), found });
    const text = readFileSync(join(here.directory, file), 'utf8');
    writeFileSync(join(here.directory, file), `${forged}\n${text}`);
    await expect({ ok: true, findings: [['junk', file, /signature/]] });
  });
});

describe('somebody without the key cannot hide lines from --since', () => {
  const since = '2026-12-02';
  const move = (line: string | undefined, to: string | undefined, where: 'first' | 'last'): void => {
    const lines = here.linesOf(to as string);
    here.store(to as string, where === 'first' ? [line as string, ...lines] : [...lines, line as string]);
  };

  for (const [where, line] of [
    ['first', 1],
    ['last', 0],
  ] as const) {
    it(`by moving the end of a chain to the ${where} line of an earlier file, and deleting the days between`, async () => {
      const [first, ...others] = await instance(3);
      const end = here.linesOf(others.at(-1) as string).at(-1);
      await instance(1, 4);
      move(end, first, where);
      remove(...others);
      const { findings } = await checkReceipts(here.directory, { since });
      const failing = findings.filter(({ fails }) => fails);
      assert.deepEqual(
        failing.map((found) => [sortOf(found), found.file, found.line]),
        [['out of order', first, line]],
      );
      assert.match(
        failing[0]?.message as string,
        /^is of 2026-12-03T12:00:00\.000Z, after the day that the name of its file says$/,
      );
    });
  }

  it('by renaming the first file of a chain to an earlier day, and cutting a line out of it', async () => {
    const [file = ''] = await instance(1, 2);
    const renamed = file.replace('2026-12-02', '2026-12-01');
    renameSync(join(here.directory, file), join(here.directory, renamed));
    here.store(renamed, here.linesOf(renamed).toSpliced(1, 1));
    const message = /^is of 2026-12-02T\S+, after the day that the name of its file says$/;
    await expect({ since, ok: false, findings: [['out of order', renamed, message]] });
  });

  it('by deleting the days of the newest chain: what is left of it does not end, which is a gap', async () => {
    const [first, ...others] = await instance(3);
    remove(...others);
    const message =
      /^is the end of its chain; its instance runs still or was killed: receipts may be missing$/;
    await expect({ since, ok: true, findings: [['gap', first, message]] });
    await instance(1, 4);
    await expect({ since, ok: true, findings: [] }); // a later instance has found the chain like this
  });
});

describe('the day in the name of a receipt file', () => {
  const noted = (time: string, durationMs = 0) => receipt('r', { epoch: null, time, durationMs });
  /** One instance that writes these receipts at that time. */
  async function written(time: string, ...receipts: readonly ReturnType<typeof noted>[]): Promise<string> {
    const log = await here.open({ clock: clockOf({ now: () => Date.parse(time), batchPause: 1 }) });
    for (const each of receipts) log.add(each);
    await log.close();
    return `${time.slice(0, 10)}.${log.instance}.jsonl`;
  }

  const legitimate: [what: string, at: string, receipts: ReturnType<typeof noted>[]][] = [
    [
      'a request that went on over midnight',
      '2026-12-02T00:10:00.000Z',
      [noted('2026-12-01T23:50:00.000Z', 20 * 60_000)],
    ],
    ['a line that waited for the disk', '2026-12-02T00:30:00.000Z', [noted('2026-12-01T22:00:00.000Z')]],
    [
      'the last millisecond of a day',
      '2026-12-01T23:59:59.999Z',
      [noted('2026-12-01T23:59:59.000Z', 999), noted('2026-12-01T00:00:00.000Z')],
    ],
  ];
  for (const [what, at, receipts] of legitimate) {
    it(`fits ${what}`, async () => {
      await written(at, ...receipts);
      await expect({ ok: true, findings: [] });
    });
  }

  it('fits the last batch of the day before, even if the proxy ends with it', async () => {
    const file = await written('2026-12-01T23:59:59.900Z', noted('2026-12-01T23:59:59.800Z'));
    const lines = here.linesOf(file);
    here.store(file, lines.slice(0, 1));
    const next = file.replace('2026-12-01', '2026-12-02');
    here.store(next, lines.slice(1));
    await expect({ ok: true, findings: [] });
  });

  it('leads to a gap if the lines waited for the disk over midnight and none of the new day follows', async () => {
    let now = NOON;
    const log = await here.open({ clock: clockOf({ now: () => now, batchPause: 1 }) });
    now = Date.parse('2026-12-02T00:30:00.000Z');
    log.add(noted('2026-12-01T22:00:00.000Z'));
    await eventually('the receipt', () => log.counters.written === 1);
    now += DAY_MS;
    await log.close();
    const file = `2026-12-02.${log.instance}.jsonl`;
    await expect({
      ok: true,
      findings: [['gap', file, /^is of 2026-12-01T22:00:00\.000Z, and no line of its/]],
    });
  });

  for (const [what, to] of [
    ['a later', '2026-12-02'],
    ['a much later', '2027-12-01'],
  ] as const) {
    it(`leads to a gap if the file was renamed to ${what} day, which changes no line`, async () => {
      const file = await written('2026-12-01T12:00:00.000Z', noted('2026-12-01T11:59:00.000Z'));
      const renamed = file.replace('2026-12-01', to);
      renameSync(join(here.directory, file), join(here.directory, renamed));
      const message =
        /^is of 2026-12-01T\S+, and no line of its file is of the day that the name says: they waited for the disk, or /;
      await expect({ ok: true, findings: [['gap', renamed, message]] });
    });
  }

  it('is reported out of order if the file was renamed to an earlier day', async () => {
    const file = await written('2026-12-01T12:00:00.000Z', noted('2026-12-01T11:59:00.000Z'));
    const renamed = file.replace('2026-12-01', '2026-11-30');
    renameSync(join(here.directory, file), join(here.directory, renamed));
    const message = /^is of 2026-12-01T\S+, after the day that the name of its file says$/;
    await expect({ ok: false, findings: [['out of order', renamed, message]] });
  });

  it('is reported out of order if the lines of a day were appended to the file of the day before', async () => {
    const [first = '', second = ''] = await instance(2);
    appendFileSync(join(here.directory, first), readFileSync(join(here.directory, second)));
    remove(second);
    await expect({
      ok: false,
      findings: [['out of order', first, /^is of 2026-12-02T12:00:00\.000Z, after/]],
    });
    const { findings } = await checkReceipts(here.directory);
    assert.equal(findings[0]?.line, 3);
  });

  it('is reported out of order if a request in the file ended after that day', async () => {
    const file = await written('2026-12-01T23:59:00.000Z', noted('2026-12-01T23:58:00.000Z'));
    const [opened = '', request = ''] = here.linesOf(file);
    const key = readFileSync(join(here.directory, 'key.pem'), 'utf8');
    here.store(file, [opened, signedAgain(request, { durationMs: 3 * 60_000 }, key)]);
    await expect({ ok: false, findings: [['out of order', file, /after the day/]] });
  });

  it('does not go back when the clock does, so the chain stays whole', async () => {
    let now = Date.parse('2026-12-02T00:00:01.000Z');
    const log = await here.open({ clock: clockOf({ now: () => now, batchPause: 1 }) });
    now -= 3_600_000;
    log.add(noted('2026-12-01T23:00:01.000Z'));
    await log.close();
    assert.equal(here.linesOf(`2026-12-02.${log.instance}.jsonl`).length, 3);
    await expect({ ok: true, findings: [] });
  });

  it('is the day on which a request ended, even if the clock is set back over midnight before it is written', async () => {
    let now = Date.parse('2026-12-01T23:58:00.000Z');
    const log = await here.open({ clock: clockOf({ now: () => now, batchPause: 1 }) });
    now += 60_000; // the request has ended after midnight, and then the clock was set back to here
    log.add(noted('2026-12-01T23:58:00.000Z', 3 * 60_000));
    await log.close();
    assert.equal(here.linesOf(`2026-12-02.${log.instance}.jsonl`).length, 2);
    await expect({ ok: true, findings: [] });
  });
});
