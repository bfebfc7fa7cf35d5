/** What `--since` leaves out is missed all the same where a line names it; and a file holds the lines of its day. */
import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { checkReceipts } from '../../lib/transparency/check-receipts.ts';
import { NOON, receipt, receiptsOfEachTest, sortOf } from '../support/doors/receipts.ts';
import { eventually } from '../support/processes/eventually.ts';

const DAY_MS = 86_400_000;
const here = receiptsOfEachTest();

/** An instance with a receipt on each of so many days, from the first or the named day of December on. Gives its files. */
async function instance(days: number, first = 1): Promise<string[]> {
  let now = NOON + (first - 1) * DAY_MS;
  const log = await here.open({ now: () => now });
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

describe('days that a check of receipts leaves out', () => {
  it('are no finding where they are all there', async () => {
    await instance(3);
    await instance(1, 4);
    for (const since of ['2026-12-02', '2026-12-03', '2026-12-04', '2027-01-01'])
      await expect({ since, ok: true, findings: [] });
  });

  it('are a gap where a line of an asked-for day names an instance that is gone', async () => {
    const old = await instance(2);
    const [young] = await instance(1, 4);
    remove(...old);
    const message = /^names instance [a-z0-9]{12}, whose receipts are missing$/;
    await expect({ since: '2026-12-04', ok: true, findings: [['gap', young, message]] });
    await expect({ ok: false, findings: [['missing', young, message]] });
  });

  it('are a gap where the line that names an instance is left out itself', async () => {
    const old = await instance(2);
    const [young] = await instance(1, 4);
    remove(...old);
    await expect({ since: '2026-12-24', ok: true, findings: [['gap', young, /whose receipts are missing/]] });
  });

  it('are a gap where the last day of an instance is gone, whose end a line names', async () => {
    const [, last] = await instance(2);
    const [young] = await instance(1, 4);
    remove(last);
    await expect({
      since: '2026-12-04',
      ok: true,
      findings: [['gap', young, /^names number 3 of instance/]],
    });
  });

  it('are a gap where a day between others is gone', async () => {
    const [first, second, third] = await instance(3);
    remove(second);
    const message = `what follows ${first} is missing before this line`;
    await expect({ since: '2026-12-04', ok: true, findings: [['gap', third, new RegExp(`^${message}$`)]] });
  });

  it('are a gap where the day before the first that was asked for is gone', async () => {
    const [, second, third] = await instance(3);
    remove(second);
    const message = /^numbers 2 to 2 are missing before this line: of days that were left out$/;
    await expect({ since: '2026-12-03', ok: true, findings: [['gap', third, message]] });
  });

  it('are a gap where the beginning of a chain was moved away', async () => {
    const [first, second, third] = await instance(3);
    remove(first, second);
    const message = /^numbers 0 to 2 are missing before this line: of days that were left out$/;
    await expect({ since: '2026-12-03', ok: true, findings: [['gap', third, message]] });
    await expect({ ok: false, findings: [['missing', third, /number 0 is missing/]] });
  });

  it('do not excuse a day that was asked for', async () => {
    const [, second, third] = await instance(3);
    remove(second);
    const findings = [['missing', third, /^number 2 is missing before this line$/]] as const;
    await expect({ since: '2026-12-02', ok: false, findings });
  });

  it('are named by signed lines only', async () => {
    const [file = ''] = await instance(1);
    const [opened = ''] = here.linesOf(file);
    const found = [{ instance: 'abcdefghijkl', seq: 1, sha256: 'c'.repeat(64) }];
    const forged = JSON.stringify({ ...JSON.parse(opened), found });
    const text = readFileSync(join(here.directory, file), 'utf8');
    writeFileSync(join(here.directory, file), `${forged}\n${text}`);
    await expect({ ok: true, findings: [['junk', file, /signature/]] });
  });
});

describe('the day of a receipt file', () => {
  const noted = (time: string, durationMs = 0) => receipt('r', { epoch: null, time, durationMs });
  /** One instance that writes these receipts at that time. */
  async function written(time: string, ...receipts: readonly ReturnType<typeof noted>[]): Promise<string> {
    const log = await here.open({ now: () => Date.parse(time) });
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
    it(`has ${what}`, async () => {
      await written(at, ...receipts);
      await expect({ ok: true, findings: [] });
    });
  }

  it('has the lines of the last batch of the day before, also where the proxy ends with it', async () => {
    const file = await written('2026-12-01T23:59:59.900Z', noted('2026-12-01T23:59:59.800Z'));
    const lines = here.linesOf(file);
    here.store(file, lines.slice(0, 1));
    const next = file.replace('2026-12-01', '2026-12-02');
    here.store(next, lines.slice(1));
    await expect({ ok: true, findings: [] });
  });

  const MOVES: [what: string, to: string, message: RegExp][] = [
    ['an earlier', '2026-11-30', /^is of 2026-12-01T\S+, after the day that the name of its file says$/],
    [
      'a later',
      '2026-12-02',
      /^is of 2026-12-01T\S+, and no line of its file is of the day that the name says$/,
    ],
    ['a much later', '2027-12-01', /no line of its file is of the day/],
  ];
  for (const [what, to, message] of MOVES) {
    it(`is found wrong where a file was given the name of ${what} day`, async () => {
      const file = await written('2026-12-01T12:00:00.000Z', noted('2026-12-01T11:59:00.000Z'));
      const renamed = file.replace('2026-12-01', to);
      renameSync(join(here.directory, file), join(here.directory, renamed));
      await expect({ ok: false, findings: [['out of order', renamed, message]] });
    });
  }

  it('is found wrong where the lines of a day were put behind those of the day before', async () => {
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

  it('is found wrong where a request ended after it', async () => {
    const file = await written('2026-12-01T23:59:00.000Z', noted('2026-12-01T23:58:00.000Z', 3 * 60_000));
    await expect({ ok: false, findings: [['out of order', file, /after the day/]] });
  });

  it('does not go back with the clock, which would tear the chain', async () => {
    let now = Date.parse('2026-12-02T00:00:01.000Z');
    const log = await here.open({ now: () => now });
    now -= 3_600_000;
    log.add(noted('2026-12-01T23:00:01.000Z'));
    await log.close();
    assert.equal(here.linesOf(`2026-12-02.${log.instance}.jsonl`).length, 3);
    await expect({ ok: true, findings: [] });
  });
});
