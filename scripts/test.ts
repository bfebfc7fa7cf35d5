/**
 * Runs the tests: `npm test` those that prove the product once, `npm run test:all` also those that repeat it (test/suites.ts).
 * `npm test -- WORDS…`: every file whose path contains one of the words; `--list` prints the files instead. Exit code 1 where a test
 * fails or none ran. A program that a test needs and the machine lacks is named at the end; with CI=true its test fails.
 */
import { globSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { ALONE, isIn, REPEATED } from '../test/suites.ts';

const ROOT = join(import.meta.dirname, '..');
/** ms for one file, on a busy machine. */
const PATIENCE = 600_000;
/** Files at a time: most wait for a child process or a timer now and then. */
const AT_ONCE = availableParallelism() + 1;
/** What test/support/processes/foreign-programs.ts writes of a program that is missing. */
const MISSING = /NOT CHECKED: ([^\n#]+?) *#/g;

/** The files to run, by the words of the command line. */
function filesFor(words: readonly string[], all: boolean): string[] {
  const files = globSync('test/**/*.test.ts', { cwd: ROOT }).sort();
  if (words.length > 0) return files.filter((file) => words.some((word) => file.includes(word)));
  return all ? files : files.filter((file) => !isIn(REPEATED, file));
}

/** What became of some files. */
interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly missing: readonly string[];
}

/** Runs files `concurrency` at a time, and prints what Node's own reporter says of them. */
async function runFiles(files: readonly string[], concurrency: number): Promise<Outcome> {
  let counts = { passed: 0, failed: 0, skipped: 0 };
  const missing = new Set<string>();
  if (files.length === 0) return { ...counts, missing: [] };
  const tests = run({
    cwd: ROOT,
    files: files.map((file) => join(ROOT, file)),
    concurrency,
    timeout: PATIENCE,
  });
  tests.on('test:stderr', ({ message }) => {
    for (const [, program = ''] of message.matchAll(MISSING)) missing.add(program);
  });
  tests.on('test:summary', ({ file, counts: { tests: all, passed, skipped, todo } }) => {
    if (file === undefined) counts = { passed, failed: all - passed - skipped - todo, skipped };
  });
  for await (const text of tests.compose(spec)) process.stdout.write(text);
  return { ...counts, missing: [...missing] };
}

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  const unknown = args.find((arg) => arg.startsWith('--') && arg !== '--all' && arg !== '--list');
  if (unknown !== undefined) throw new Error(`unknown option ${unknown}; there are --all and --list`);
  const words = args.filter((arg) => !arg.startsWith('--')).map((path) => relative('.', path));
  const files = filesFor(words, args.includes('--all'));
  if (args.includes('--list')) {
    console.log(files.join('\n'));
    return 0;
  }
  process.chdir(ROOT);
  process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/compiled');
  const began = performance.now();
  const outcomes = [
    await runFiles(
      files.filter((file) => !isIn(ALONE, file)),
      AT_ONCE,
    ),
    await runFiles(
      files.filter((file) => isIn(ALONE, file)),
      1,
    ),
  ];
  const sum = (what: 'passed' | 'failed' | 'skipped'): number =>
    outcomes.reduce((total, outcome) => total + outcome[what], 0);
  const missing = outcomes.flatMap((outcome) => outcome.missing);
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`\n${files.length} files in ${seconds} s`);
  if (missing.length > 0) console.log(`Not checked on this machine: ${missing.join('; ')}`);
  console.log(`${sum('passed')} passed, ${sum('failed')} failed, ${sum('skipped')} skipped`);
  return sum('failed') === 0 && sum('passed') > 0 ? 0 : 1;
}

process.exitCode = await main();
