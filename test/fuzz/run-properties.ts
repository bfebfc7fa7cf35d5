/** Runs test files with the other fast-check of longer.ts. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');
export const REGRESSIONS = join(import.meta.dirname, 'regressions');

/** Every test file that has a property, and how many there are. */
export function filesWithProperties(): { readonly file: string; readonly properties: number }[] {
  return readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => {
      const source = readFileSync(join(ROOT, 'test', name), 'utf8');
      const properties = source.includes("from 'fast-check'") ? source.split('fc.assert(').length - 1 : 0;
      return { file: join('test', name), properties };
    })
    .filter(({ properties }) => properties > 0)
    .sort((a, b) => (a.file < b.file ? -1 : 1));
}

export interface Run {
  readonly code: number | null;
  /** What it wrote. */
  readonly output: string;
}

/** ms that a file gets beyond the shares of its properties: nothing may hang instead of failing. */
const PATIENCE = 300_000;

/** Runs the tests of one file whose full name is `test` (default: all), in a process of its own. */
export function runProperties(
  file: string,
  environment: Readonly<Record<string, string>>,
  test?: string,
): Promise<Run> {
  const pattern = test === undefined ? [] : [`--test-name-pattern=^${escaped(test)}$`];
  const timeout = 100 * Number(environment['FUZZ_MS'] ?? 0) + PATIENCE; // a file has several, some in loops
  const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
  const child = spawn(
    process.execPath,
    [
      '--import',
      join(import.meta.dirname, 'longer.ts'),
      '--test-reporter=spec',
      ...pattern,
      join(ROOT, file),
    ],
    {
      cwd: ROOT,
      env: { ...inherited, FUZZ_REGRESSIONS: REGRESSIONS, ...environment },
      stdio: 'pipe',
      timeout,
    },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const { promise, resolve } = Promise.withResolvers<Run>();
  child.on('close', (code) => resolve({ code, output }));
  return promise;
}

/** As a pattern; a full name has ` > ` between suite and test, what patterns are matched with has a blank. */
const escaped = (text: string): string =>
  text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&').replaceAll(' > ', '(?: > | )');
