/**
 * Programs of others that tests run: a browser, a Redis server, Helm. The scripts scripts/install-….sh get
 * them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import type { TestContext } from 'node:test';
import { eventually } from './eventually.ts';
import { cleanEnvironment } from './program.ts';
import { ROOT } from './tools.ts';

export interface Program {
  readonly path: string;
  /** For the options of a test or suite. */
  readonly skip: string | false;
}

/** Where the scripts put what they build, and where systems have their programs. */
const DIRECTORIES = [
  join(ROOT, '.tools/bin'),
  ...(process.env['PATH'] ?? '').split(delimiter),
  ...['/usr/bin', '/usr/sbin', '/sbin'],
];

/**
 * Looks for a program by its names, in `directories`. Where it is missing, the tests that need it are skipped
 * and say so on stderr, from where scripts/test.ts takes it for its last lines; with CI=true that is an error
 * instead. `from` is what installs it.
 */
export function program(
  names: string | readonly string[],
  { from = 'scripts/install-test-tools.sh', directories = DIRECTORIES } = {},
): Program {
  const [name = '', ...others] = [names].flat();
  const places = [name, ...others].flatMap((each) => directories.map((directory) => join(directory, each)));
  const path = places.find(isExecutable);
  if (path !== undefined) return { path, skip: false };
  const words = `${name} is missing (${from} installs it)`;
  if (process.env['CI'] === 'true') throw new Error(words);
  process.stderr.write(`\n########## NOT CHECKED: ${words} ##########\n\n`);
  return { path: name, skip: `NOT CHECKED: ${words}` };
}

/** Python 3, whatever the system calls it. */
export const python = (directories?: string[]): Program =>
  program(['python3', 'python'], directories && { directories });

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export interface RunningProgram {
  readonly process: ChildProcess;
  /** Everything it has written so far. */
  readonly output: () => string;
  /** Ends it; resolves when it is gone. */
  stop(): Promise<void>;
}

/**
 * Runs it until the test ends; `environment` is added to ours without what would change how connections are
 * made.
 */
export function runBeside(
  t: Pick<TestContext, 'after'>,
  { path }: Program,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): RunningProgram {
  const child = spawn(path, args, {
    env: cleanEnvironment(environment),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const gone = Promise.race([once(child, 'exit'), once(child, 'error')]);
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    const force = setTimeout(() => child.kill('SIGKILL'), 3_000);
    await gone;
    clearTimeout(force);
  };
  t.after(stop);
  return { process: child, output: () => output, stop };
}

/**
 * A port that was free a moment ago, for programs that cannot choose one themselves. Below those that the
 * system hands out: among them, any connection of a test beside this one could take it meanwhile.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_081, 32_000); // fetch refuses 10080
    const server = createServer().listen(port, '127.0.0.1');
    const taken = await once(server, 'listening').catch((error: NodeJS.ErrnoException) => error);
    if (taken instanceof Error) {
      if ((taken as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw taken;
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** Resolves once `condition` holds; rejects with what the program said where it takes longer than `ms`. */
export async function waitFor(
  what: string,
  condition: () => boolean | Promise<boolean>,
  { output, process: child }: RunningProgram,
  ms = 120_000,
): Promise<void> {
  const words = (): string => `${what}; the program said:\n${output()}`;
  const isMet = async (): Promise<boolean> => {
    if (child.exitCode !== null) throw new Error(`it ended before ${words()}`);
    return condition();
  };
  await eventually(words, isMet, ms, 25);
}
