/**
 * Runs the tests: `npm test` those that prove the product once, `npm run test:all` also those that repeat it,
 * and the runs through another door or engine (test/suites.ts). `npm test -- WORDS…`: every file whose path
 * contains one of the words. `TEST_DOOR=library` and `TEST_ENGINE=portable` run these, or without words those
 * of the table, through that door and engine. Exit code 1 where a test fails or none passed. A program that a
 * test needs and the machine lacks is named at the end; with CI=true its test fails.
 */
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { compose } from 'node:stream';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import {
  BY_ITSELF,
  DOORS,
  ENGINES,
  filesOf,
  isIn,
  maySkip,
  REPEATED,
  RUNS,
  type Through,
  variablesOf,
} from '../test/suites.ts';
import { readOptions, refuse } from './options.ts';
import { TestReport } from './test-report.ts';

const ROOT = join(import.meta.dirname, '..');
/** ms for one file, on a busy machine. */
const PATIENCE = 1_200_000;
/** Files at a time: most wait for a child process, a connection or a timer. */
const AT_ONCE = availableParallelism() + 3;

/** Files, and the door and engine through which they run. */
interface Pass extends Through {
  readonly files: readonly string[];
}

/** What to run, by the words of the command line. */
function passesFor(words: readonly string[], all: boolean, through: Through): Pass[] {
  const files = globSync('test/**/*.test.ts', { cwd: ROOT }).sort();
  if (words.length > 0)
    return [{ ...through, files: files.filter((file) => words.some((word) => file.includes(word))) }];
  const isPlain = variablesOf(through) === '';
  const runs = RUNS.filter((run) => (isPlain ? all : variablesOf(run) === variablesOf(through)));
  const repeated = runs.map((run) => ({ ...run, files: filesOf(run, files) }));
  if (!isPlain) return repeated;
  return [{ ...through, files: all ? files : files.filter((file) => !isIn(REPEATED, file)) }, ...repeated];
}

/** Writes a module for each directory of tests that runs those of its files that can share a process. */
function shards(files: readonly string[], directory: string): string[] {
  const rooms = Map.groupBy(files, (file) => file.split('/').slice(0, -1)[1] ?? 'test');
  // The largest first, so that none is left for the end.
  return [...rooms]
    .sort(([, a], [, b]) => b.length - a.length)
    .map(([room, own]) => {
      const path = join(directory, `${room}.mjs`);
      const [module, ...given] = [join(ROOT, 'test/together.ts'), ROOT, own].map((each) =>
        JSON.stringify(each),
      );
      writeFileSync(path, `import { together } from ${module};\ntogether(${given.join(', ')});\n`);
      return path;
    });
}

/** Runs the files of a pass, and prints what Node's own reporter says of them. */
async function runFiles(pass: Pass, report: TestReport): Promise<void> {
  const { door, engine, files } = pass;
  const label = variablesOf(pass);
  if (label !== '') console.log(`\n${files.length} files with ${label}`);
  // The library's door replaces the global fetch of its process.
  const shared = door === 'library' ? [] : files.filter((file) => !isIn(BY_ITSELF, file));
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-tests-'));
  const tests = run({
    cwd: ROOT,
    files: [
      ...shards(shared, directory),
      ...files.filter((file) => !shared.includes(file)).map((file) => join(ROOT, file)),
    ],
    concurrency: AT_ONCE,
    timeout: PATIENCE,
    execArgv: engine === 'node' ? [] : [`--conditions=${engine}`],
    env: { ...process.env, TEST_DOOR: door },
  });
  const followed = report.follow(tests, ROOT, files, label, (reason) => maySkip(pass, reason));
  for await (const text of compose(followed, spec)) process.stdout.write(text);
  rmSync(directory, { recursive: true });
}

/** The value of a variable, if it is one of these; the first where it is not set. */
function variable<Value extends string>(name: string, values: readonly [Value, ...Value[]]): Value {
  const given = process.env[name] ?? values[0];
  const value = values.find((each) => each === given);
  return value ?? refuse(`${name}=${given} is none of ${values.join(', ')}`);
}

async function main(): Promise<number> {
  const { values, positionals } = readOptions(import.meta.filename, {
    allowPositionals: true,
    options: { all: { type: 'boolean', default: false } },
  });
  const through = { door: variable('TEST_DOOR', DOORS), engine: variable('TEST_ENGINE', ENGINES) };
  const words = positionals.map((path) => relative('.', path));
  const passes = passesFor(words, values.all, through);
  process.chdir(ROOT);
  process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/compiled');
  const began = performance.now();
  const report = new TestReport();
  for (const pass of passes) await runFiles(pass, report);
  const seconds = Math.round((performance.now() - began) / 1000);
  const { passed, skipped, failures, missing } = report;
  console.log(`\n${passes.flatMap(({ files }) => files).length} files in ${seconds} s`);
  if (failures.length > 0) console.log(`Failed:\n${failures.map((each) => `  ${each}\n`).join('')}`);
  if (missing.size > 0) console.log(`Not checked on this machine: ${[...missing].join('; ')}`);
  console.log(`${passed} passed, ${failures.length} failed, ${skipped} skipped`);
  return failures.length === 0 && passed > 0 ? 0 : 1;
}

process.exitCode = await main();
