/** What else lies among receipts: it neither hides them nor makes them fail, and is told of in few words. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { sumUsage } from '../../lib/receipts/usage.ts';
import { receipt, receiptsOfEachTest, sortOf } from '../support/doors/receipts.ts';

const here = receiptsOfEachTest();
const path = (name: string): string => join(here.directory, name);

/** A closed chain of two receipts, in four lines of one file. */
async function chain(): Promise<string> {
  const log = await here.open();
  for (const id of ['r1', 'r2']) log.add(receipt(id, { epoch: null }));
  await log.close();
  return `2026-12-01.${log.instance}.jsonl`;
}

const LOOKS_ALIKE = '2026-12-01.abcdefghijkl.jsonl';

describe('junk among receipts', { timeout: 600_000 }, () => {
  const FILES: [what: string, name: string, make: (path: string) => unknown][] = [
    ['a text', 'notes.txt', (at) => writeFileSync(at, 'x')],
    ['a day that no calendar has', '2026-02-30.abcdefghijkl.jsonl', (at) => writeFileSync(at, 'x\n')],
    ['an instance in capitals', '2026-12-01.ABCDEFGHIJKL.jsonl', (at) => writeFileSync(at, 'x\n')],
    ['a directory with the name of receipts', LOOKS_ALIKE, (at) => mkdirSync(at)],
    ['a FIFO with the name of receipts', LOOKS_ALIKE, (at) => execFileSync('mkfifo', [at])],
    ['a link to a device', LOOKS_ALIKE, (at) => symlinkSync('/dev/zero', at)],
    ['a link to nowhere', LOOKS_ALIKE, (at) => symlinkSync('/nowhere', at)],
  ];
  for (const [what, name, make] of FILES) {
    it(`is named and harms nothing: ${what}`, async () => {
      await chain();
      make(path(name));
      const { ok, requests, findings } = await checkReceipts(here.directory, { strict: true });
      assert.deepEqual([ok, requests], [true, 2]);
      const message = 'is no file of receipts';
      assert.deepEqual(findings, [
        { kind: 'not ours or changed', file: name, line: 0, message, fails: false },
      ]);
      // The next instance begins all the same, and ties itself to the chain.
      const file = await chain();
      const { found } = JSON.parse(here.linesOf(file)[0] as string);
      assert.equal(found.length, 1);
    });
  }

  it('is named and harms nothing: a socket with the name of receipts', async (t) => {
    await chain();
    const server = createServer().listen(path(LOOKS_ALIKE));
    t.after(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const { ok, findings } = await checkReceipts(here.directory);
    assert.deepEqual(
      [ok, findings.map((found) => [sortOf(found), found.file])],
      [true, [['junk', LOOKS_ALIKE]]],
    );
  });

  it('does not block a check if a key or a verdict is a FIFO', async () => {
    const log = await here.open();
    log.add(receipt('r1'));
    await log.close();
    const { verdictSha256 } = receipt('r1').epoch as { verdictSha256: string };
    mkdirSync(path('verdicts'), { recursive: true });
    execFileSync('mkfifo', [path(`verdicts/${verdictSha256}.json`)]);
    const { ok, findings } = await checkReceipts(here.directory);
    assert.deepEqual([ok, findings.map(({ kind }) => kind)], [false, ['missing']]);
    rmSync(path('public.pem'));
    execFileSync('mkfifo', [path('public.pem')]);
    await assert.rejects(checkReceipts(here.directory), { code: 'receipts_unreadable' });
  });

  /** A line of the form of receipts which nobody has signed. */
  const forged = (line: string, change: object): string => JSON.stringify({ ...JSON.parse(line), ...change });

  const LINES: [what: string, change: (lines: string[]) => string[], line: number, message: RegExp][] = [
    ['before the first line', (lines) => ['x', ...lines], 1, /^is no receipt$/],
    ['an empty line before the first', (lines) => ['', ...lines], 1, /^is no receipt$/],
    [
      'a forged first line',
      (lines) => [forged(lines[0] as string, { version: '9' }), ...lines],
      1,
      /^its signature/,
    ],
    ['between lines', (lines) => lines.toSpliced(2, 0, '{"v":1'), 3, /^is no receipt$/],
    [
      'a forged line between lines',
      (lines) => lines.toSpliced(2, 0, forged(lines[2] as string, { model: 'x' })),
      ...([3, /^its signature/] as const),
    ],
    ['behind the last line', (lines) => [...lines, 'x'], 5, /^is no receipt$/],
    [
      'a forged line behind the last',
      (lines) => [...lines, forged(lines[3] as string, { seq: 4 })],
      5,
      /^its sig/,
    ],
    [
      'two thousand lines',
      (lines) => lines.toSpliced(1, 0, ...Array<string>(2_000).fill('[]')),
      ...([2, /^is no receipt$/] as const),
    ],
    [
      'a line of three megabytes',
      (lines) => lines.toSpliced(1, 0, 'x'.repeat(3_000_000)),
      2,
      /^is no receipt$/,
    ],
    [
      'a line of NUL bytes behind the last',
      (lines) => [...lines, '\0'.repeat(2_500_000)],
      ...([5, /^is no receipt$/] as const),
    ],
  ];
  for (const [what, change, line, message] of LINES) {
    it(`is named, breaks no chain, and does not hide its end from the next instance: ${what}`, async () => {
      const file = await chain();
      here.store(file, change(here.linesOf(file)));
      const { ok, requests, findings } = await checkReceipts(here.directory, { strict: true });
      assert.deepEqual(
        [ok, requests, findings.map((each) => [sortOf(each), each.file, each.line])],
        [true, 2, [['junk', file, line]]],
      );
      assert.match(findings[0]?.message as string, message);

      const next = await chain();
      const { found } = JSON.parse(here.linesOf(next)[0] as string);
      assert.deepEqual([found.length, found[0].seq], [1, 3]);
      rmSync(path(file));
      assert.equal((await checkReceipts(here.directory)).ok, false);
    });
  }

  it('is not recorded as the end of a chain by the next instance if its lines are unsigned', async () => {
    const file = await chain();
    const [first = ''] = here.linesOf(file);
    writeFileSync(path(LOOKS_ALIKE), `${forged(first, { instance: 'abcdefghijkl' })}\n`);
    const next = await chain();
    const { found } = JSON.parse(here.linesOf(next)[0] as string);
    assert.deepEqual(
      found.map(({ instance }: { instance: string }) => instance),
      [file.split('.')[1]],
    );
  });

  it('fails the check if it replaces a line', async () => {
    const file = await chain();
    here.store(file, here.linesOf(file).with(2, 'x'));
    const { ok, findings } = await checkReceipts(here.directory);
    const message = 'is no receipt';
    assert.deepEqual(
      [ok, findings],
      [false, [{ kind: 'not ours or changed', file, line: 3, message, fails: true }]],
    );
  });

  it('includes a cut-off line after which the chain goes on', async () => {
    const file = await chain();
    const lines = here.linesOf(file);
    const next = file.replace('2026-12-01', '2026-12-02');
    writeFileSync(path(file), `${lines.slice(0, 2).join('\n')}\n{"v":1,"inst`);
    here.store(next, lines.slice(2));
    const { findings } = await checkReceipts(here.directory);
    assert.deepEqual(
      findings
        .filter((found) => sortOf(found) === 'junk')
        .map((each) => [each.file, each.line, each.message]),
      [[file, 3, 'is cut off']],
    );
  });

  it('does not flood a report: of 300 files 20 are named and 280 counted', async () => {
    await chain();
    for (let i = 100; i < 400; i++) writeFileSync(path(`2026-12-01.aaaaaaaaa${i}.jsonl`), 'x\n');
    const { ok, instances, findings } = await checkReceipts(here.directory);
    assert.deepEqual([ok, instances, findings.length], [true, 1, 21]);
    assert.match(findings[20]?.message as string, /^280 more files hold what is no receipt$/);
  });

  it('takes less than 100 MiB of memory for a line of 200 MiB', async () => {
    const file = await chain();
    const text = readFileSync(path(file));
    truncateSync(path(file), 200 * 1024 * 1024); // without a line feed, all NUL behind the lines
    appendFileSync(path(file), `\n${text}`);
    globalThis.gc?.();
    const before = process.memoryUsage.rss();
    await checkReceipts(here.directory);
    assert.ok(process.memoryUsage.rss() - before < 100 * 1024 * 1024);
  });

  it('is reported by usage, without waiting, if it has the name of a receipt file', async () => {
    const file = await chain();
    execFileSync('mkfifo', [path(LOOKS_ALIKE)]);
    writeFileSync(path('notes.txt'), 'x');
    const { lines, total } = await sumUsage([here.directory]);
    assert.deepEqual([total.requests, lines.unreadable, lines.first], [2, 1, { file: LOOKS_ALIKE, line: 0 }]);
    rmSync(path(LOOKS_ALIKE));
    renameSync(path(file), path('elsewhere'));
    symlinkSync(path('elsewhere'), path(file));
    assert.deepEqual((await sumUsage([here.directory])).lines.first, { file, line: 0 });
  });
});
