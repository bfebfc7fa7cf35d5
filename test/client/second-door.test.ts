/**
 * The gateway's tests a second time, without a proxy: the same files, the same assertions, through the client library
 * (test/support/doors/library-door.ts), with the cryptography of Node and with the portable one.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { describe, it } from 'node:test';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';

/** ms for one file, on a busy machine. */
const PATIENCE = 480_000;

const OPENAI = 'test/applications/openai.test.ts';
const ANTHROPIC = 'test/applications/anthropic.test.ts';
const ATTACKS = 'test/e2e/gateway-attacks.test.ts';
const RESPONSES = 'test/applications/responses.test.ts';

/** What only a proxy has, by file: how many tests are stepped over for which reason (library-door.ts). */
type SteppedOver = Readonly<Record<string, number>>;

const CALLER_KEYS = 'callers of the library bring no key of their own: its key is an option';

const RUNS: readonly (readonly [
  file: string,
  conditions: readonly string[],
  least: number,
  stepped?: SteppedOver,
])[] = [
  [
    'test/faults/matrix.test.ts',
    [],
    242,
    { 'the fetch below decides whether an answer survives the reset that comes with it': 4 },
  ],
  [OPENAI, [], 43],
  [ANTHROPIC, [], 27, { [CALLER_KEYS]: 2 }],
  ['test/applications/aborts.test.ts', [], 32],
  [
    'test/applications/errors.test.ts',
    [],
    168,
    {
      'the library has no listener that foreign web pages could reach': 8,
      'the library protects no other program from large uploads': 8,
    },
  ],
  ['test/applications/rejected-service.test.ts', [], 20],
  [
    'test/applications/usage.test.ts',
    [],
    52,
    { 'the library listens nowhere, so other processes cannot reach it': 1 },
  ],
  [ATTACKS, [], 361],
  [RESPONSES, [], 95],
  [
    'test/gateway/responses-api.test.ts',
    [],
    13,
    {
      'the library keeps no counters and writes no log: it tells its application': 5,
      'the library listens nowhere, so other processes cannot reach it': 2,
      'the library has an option in place of the flag': 1,
    },
  ],
  ['test/e2e/honest-transcripts.test.ts', [], 240],
  [OPENAI, ['portable'], 43],
  [ANTHROPIC, ['portable'], 27, { [CALLER_KEYS]: 2 }],
  [ATTACKS, ['portable'], 361],
  [RESPONSES, ['portable'], 95],
];

interface Ended {
  readonly status: number | null;
  readonly output: string;
}

/** Runs one test file in a process of its own; kills it after PATIENCE. */
function runFile(file: string, conditions: readonly string[]): Promise<Ended> {
  const { promise, resolve } = Promise.withResolvers<Ended>();
  const flags = conditions.map((condition) => `--conditions=${condition}`);
  const child = spawn(
    process.execPath,
    // Its own process is the file's: a runner in between would not end it with itself.
    ['--test', '--test-isolation=none', '--test-reporter=spec', '--test-timeout=120000', ...flags, file],
    {
      cwd: ROOT,
      env: cleanEnvironment({ TEST_DOOR: 'library' }, /^NODE_TEST_CONTEXT$/),
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PATIENCE,
      killSignal: 'SIGKILL',
    },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  child.once('close', (status) => resolve({ status, output }));
  return promise;
}

const count = (output: string, what: string): number =>
  Number(new RegExp(`^ℹ ${what} (\\d+)$`, 'm').exec(output)?.[1]);

/** By reason, how many tests were skipped. */
function skipped(output: string): Record<string, number> {
  const reasons: Record<string, number> = {};
  for (const [, reason = ''] of output.matchAll(/^ *﹣ .* # (.*)$/gm)) {
    reasons[reason] = (reasons[reason] ?? 0) + 1;
  }
  return reasons;
}

/** From the summary of the failures on. */
const failuresIn = (output: string): string =>
  output.slice(Math.max(output.indexOf('failing tests:'), output.length - 20_000));

describe('through the library, without a proxy', { concurrency: 2 }, () => {
  for (const [file, conditions, least, stepped = {}] of RUNS) {
    const how = conditions.length === 0 ? '' : `, ${conditions.join()} cryptography`;
    it(`${file}${how}`, { timeout: PATIENCE + 30_000 }, async () => {
      const { status, output } = await runFile(file, conditions);
      assert.equal(status, 0, failuresIn(output));
      assert.ok(count(output, 'pass') >= least, `${count(output, 'pass')} tests passed, not ${least}`);
      assert.deepEqual(skipped(output), stepped);
    });
  }
});
