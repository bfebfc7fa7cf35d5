import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { DAY_MS, openReceipts, receipt as receiptOf } from '../support/doors/receipts.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

let ids = 0;
/** A complete request of ann with 10 tokens in and 5 out that took 1.5 s. */
const receipt = (time: string, more: Partial<RequestReceipt> = {}): RequestReceipt =>
  receiptOf(`proxy_${ids++}`, {
    ...{ time, durationMs: 1_500, client: 'ann', model: 'm1', tokens: { in: 10, out: 5, cached: 7 } },
    ...more,
  });

let workspace: string;
let directory: string;
beforeEach(() => {
  workspace = temporaryDirectory('usage-');
  directory = join(workspace, 'receipts');
});

/** An instance that writes these at that time, and ends. Gives the name of its file. */
async function write(time: string, receipts: readonly RequestReceipt[], mostPending = 1000): Promise<string> {
  const clock = clockOf({ now: () => Date.parse(time) });
  const log = await openReceipts(workspace, { clock, mostPending, onLost: () => {} });
  for (const each of receipts) log.add(each);
  await log.close();
  return `${time.slice(0, 10)}.${log.instance}.jsonl`;
}

const run = (...argv: string[]): Promise<Ran> => runCommand(['usage', `--dir=${directory}`, ...argv]);

/** The report as JSON, of a run that leaves no line out. */
async function json(...argv: string[]) {
  const { code, stdout, stderr } = await run('--json', ...argv);
  assert.deepEqual([code, stderr], [0, '']);
  return JSON.parse(stdout);
}

/** Three clients, one of them nobody, in two months. */
const november = (): Promise<string> =>
  write('2026-11-30T23:59:59.999Z', [
    receipt('2026-11-01T00:00:00.000Z', { durationMs: 3_000 }),
    receipt('2026-11-02T10:00:00.000Z', { outcome: 'aborted', tokens: null }),
    receipt('2026-11-02T09:00:00.000Z', {
      client: 'bob',
      model: 'm2',
      tokens: { in: 7, out: null, cached: null },
    }),
    receipt('2026-11-03T08:00:00.000Z', { client: 'bob', outcome: 'failed', tokens: null, status: 502 }),
    receipt('2026-11-03T08:00:01.000Z', {
      client: 'bob',
      outcome: 'truncated',
      tokens: { in: 3, out: 1, cached: 2 },
    }),
    receipt('2026-11-04T00:00:00.000Z', {
      ...{ client: null, model: null, outcome: 'refused', tokens: null, epoch: null, durationMs: 1 },
    }),
    receipt('2026-11-30T23:59:59.999Z', { durationMs: 0 }),
  ]);

const SUMS_OF_ANN = {
  ...{ client: 'ann', requests: 3, complete: 2, refused: 0, failed: 0, truncated: 0, aborted: 1 },
  ...{ tokensIn: 20, tokensCached: 14, tokensOut: 10, withoutTokens: 1, durationMs: 4_500 },
  ...{ first: '2026-11-01T00:00:00.000Z', last: '2026-11-30T23:59:59.999Z' },
};
const SUMS_OF_BOB = {
  ...{ client: 'bob', requests: 3, complete: 1, refused: 0, failed: 1, truncated: 1, aborted: 0 },
  ...{ tokensIn: 10, tokensCached: 2, tokensOut: 1, withoutTokens: 1, durationMs: 4_500 },
  ...{ first: '2026-11-02T09:00:00.000Z', last: '2026-11-03T08:00:01.000Z' },
};
const SUMS_OF_NOBODY = {
  ...{ client: null, requests: 1, complete: 0, refused: 1, failed: 0, truncated: 0, aborted: 0 },
  ...{ tokensIn: 0, tokensCached: 0, tokensOut: 0, withoutTokens: 0, durationMs: 1 },
  ...{ first: '2026-11-04T00:00:00.000Z', last: '2026-11-04T00:00:00.000Z' },
};

describe('usage', { timeout: 600_000 }, () => {
  it('sums the requests of each client, and prints the sums with --json under fixed names', async () => {
    await november();
    const report = await json();
    assert.deepEqual(report, {
      ...{ since: null, until: null, by: ['client'] },
      rows: [SUMS_OF_ANN, SUMS_OF_BOB, SUMS_OF_NOBODY],
      total: {
        ...{ requests: 7, complete: 3, refused: 1, failed: 1, truncated: 1, aborted: 1 },
        ...{ tokensIn: 30, tokensCached: 16, tokensOut: 11, withoutTokens: 2, durationMs: 9_001 },
        ...{ first: '2026-11-01T00:00:00.000Z', last: '2026-11-30T23:59:59.999Z' },
      },
      lost: 0,
      files: 1,
      lines: { unreadable: 0, repeated: 0, cutOff: 0 },
    });
  });

  it('prints a table with aligned columns and a total', async () => {
    await november();
    const { code, stdout, stderr } = await run('--since=2026-11-01', '--until', '2026-12-01');
    assert.deepEqual([code, stderr], [0, '']);
    assert.equal(
      stdout.replace(directory, 'DIR'),
      [
        '7 requests since 2026-11-01 before 2026-12-01 in DIR',
        '',
        'client  requests  complete  refused  failed  truncated  aborted  tokens in  tokens cached  tokens out  without tokens',
        'ann            3         2        0       0          0        1         20             14          10               1',
        'bob            3         1        0       1          1        0         10              2           1               1',
        '(none)         1         0        1       0          0        0          0              0           0               0',
        'total          7         3        1       1          1        1         30             16          11               2',
        '',
      ].join('\n'),
    );
  });

  it('counts a request by the time when it came, and not one that came at the end of the period', async () => {
    await november();
    await write('2026-12-01T00:10:00.000Z', [
      receipt('2026-11-30T23:59:59.998Z', { client: 'late' }), // its receipt is in the file of the next day
      receipt('2026-12-01T00:00:00.000Z', { client: 'next' }),
    ]);
    const periods: [argv: string[], clients: (string | null)[], requests: number][] = [
      [['--until=2026-12-01'], ['ann', 'bob', 'late', null], 8],
      [['--since=2026-12-01'], ['next'], 1],
      [['--since=2026-11-30', '--until=2026-12-01'], ['ann', 'late'], 2],
      [['--since=2026-11-02T10:00:00.001+01:00', '--until=2026-11-02T09:00:00.002Z'], [], 0],
      [['--since=2026-11-02T10:00:00+01:00', '--until=2026-11-02T09:00:00.001Z'], ['bob'], 1],
    ];
    for (const [argv, clients, requests] of periods) {
      const { rows, total } = await json(...argv);
      const names = rows.map(({ client }: { client: string | null }) => client);
      assert.deepEqual([names, total.requests], [clients, requests], argv.join(' '));
    }
  });

  it('says how many receipts were lost in the period', async () => {
    const many = Array.from({ length: 5 }, (_, i) => receipt(`2026-11-01T00:00:0${i}.000Z`));
    await write('2026-11-05T00:00:00.000Z', many, 2); // four of them do not fit
    await write('2026-11-06T00:00:00.000Z', many, 1);
    assert.equal((await json()).lost, 8);
    assert.equal((await json('--since=2026-11-06')).lost, 4);
    assert.equal((await json('--until=2026-11-05')).lost, 0);
    const text = 'Receipts lost: 8.\n';
    assert.ok((await run()).stdout.endsWith(text));
  });

  it('lets no name of a model steer the terminal, and gives it as it is with --json', async () => {
    const models = ['a\u001b[31m\nb', 'a\u202eb', 'gpt-oss-120b'];
    const at = '2026-11-01T00:00:00.000Z';
    await write(
      at,
      models.map((model) => receipt(at, { model })),
    );
    const { stdout } = await run('--by=model');
    assert.doesNotMatch(stdout, /[\u0000-\u0009\u000b-\u001f\u202e]/);
    for (const shown of ['a\\u{1b}[31m\\u{a}b', 'a\\u{202e}b', 'gpt-oss-120b'])
      assert.ok(stdout.includes(shown), shown);
    const { rows } = await json('--by=model');
    assert.deepEqual(rows.map(({ model }: { model: string }) => model).sort(), models.toSorted());
  });

  it('counts every day of an instance whose earlier days were moved away, in any order of --dir', async () => {
    let now = Date.parse('2026-11-03T12:00:00.000Z');
    const log = await openReceipts(workspace, { clock: clockOf({ now: () => now }) });
    for (const requests of [3, 4, 1]) {
      for (let i = 0; i < requests; i++) log.add(receipt(new Date(now).toISOString()));
      now += DAY_MS;
    }
    now -= DAY_MS;
    await log.close();
    const archive = temporaryDirectory('usage-');
    for (const day of ['2026-11-03', '2026-11-05']) {
      const file = `${day}.${log.instance}.jsonl`;
      renameSync(join(directory, file), join(archive, file));
    }
    for (const dirs of [`${directory},${archive}`, `${archive},${directory}`]) {
      const { code, stdout, stderr } = await runCommand(['usage', '--json', '--dir', dirs]);
      const { total, files } = JSON.parse(stdout);
      assert.deepEqual([code, stderr, total.requests, files], [0, '', 8, 3]);
    }
  });
});

describe('usage reading files of receipts', { timeout: 600_000 }, () => {
  /** A line that says something else. */
  const seq = (line: string, to: number, change: object = {}): string =>
    JSON.stringify({ ...JSON.parse(line), seq: to, ...change });

  /** What stands behind the lines of a whole file, whose last one is number 9; `line` is one of ann's. */
  const cases: [what: string, behind: (line: string) => string, unreadable: number, repeated: number][] = [
    ['of another version', (line) => `${seq(line, 10, { v: 1 })}\n`, 1, 0],
    ['without a time', (line) => `${seq(line, 10, { time: 5 })}\n`, 1, 0],
    ['of another outcome', (line) => `${seq(line, 10, { outcome: '__proto__' })}\n`, 1, 0],
    ['with tokens below zero', (line) => `${seq(line, 10, { tokens: { in: -1, out: 1 } })}\n`, 1, 0],
    ['with a count of lost receipts', (line) => `${seq(line, 10, { type: 'lost', count: 'x' })}\n`, 1, 0],
    ['of two megabytes', (line) => `${seq(line, 10, { code: 'x'.repeat(2_000_000) })}\n`, 1, 0],
    ['that is no JSON or is repeated', (line) => `x\n${line}\nx\n`, 2, 1],
  ];
  for (const [what, behind, unreadable, repeated] of cases) {
    it(`leaves out a line ${what}, says so, exits with 10, and counts all other lines`, async () => {
      const path = join(directory, await november());
      const line = readFileSync(path, 'utf8').split('\n')[2] as string;
      const more = seq(line, 20, { client: 'behind' });
      appendFileSync(path, `${behind(line)}${more}\n`);
      const { code, stdout, stderr } = await run('--json');
      const report = JSON.parse(stdout);
      assert.deepEqual(report.lines, { unreadable, repeated, cutOff: 0 });
      assert.deepEqual([code, report.total.requests], [10, 8]);
      assert.deepEqual(report.rows.slice(0, 1), [SUMS_OF_ANN]);
      assert.equal(stderr.includes('cannot be read'), unreadable > 0);
      assert.equal(stderr.includes('came twice or out of order'), repeated > 0);
    });
  }

  it('counts the receipts of a file once if it was copied under another name', async () => {
    const file = await november();
    const text = readFileSync(join(directory, file), 'utf8');
    writeFileSync(join(directory, file.replace('2026-11-30', '2026-12-01')), text);
    writeFileSync(join(directory, '2026-12-01.abcdefghijkl.jsonl'), text);
    writeFileSync(join(directory, `${file}.bak`), text);
    const { code, stdout } = await run('--json');
    const { rows, lines } = JSON.parse(stdout);
    assert.deepEqual([code, rows], [10, [SUMS_OF_ANN, SUMS_OF_BOB, SUMS_OF_NOBODY]]);
    assert.deepEqual([lines.repeated, lines.unreadable], [20, 0]);
  });
});
