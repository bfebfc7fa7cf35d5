/** Programs of others that a test runs beside the proxy: a browser, HTTP proxies. scripts/install-test-tools.sh gets them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { cleanEnvironment } from './proxy-process.ts';

export interface Program {
  readonly path: string;
  /** For the options of a test or suite. */
  readonly skip: string | false;
}

/**
 * Looks for it in `directories`. Where it is missing, its tests are skipped in words nobody overlooks; with CI=true that is an
 * error instead.
 */
export function program(
  name: string,
  directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/bin', '/usr/sbin'],
): Program {
  const path = directories.map((directory) => join(directory, name)).find(isExecutable);
  if (path !== undefined) return { path, skip: false };
  const words = `${name} is missing on this machine; scripts/install-test-tools.sh installs it`;
  if (process.env['CI'] === 'true') throw new Error(words);
  process.stderr.write(`\n########## NOT CHECKED: ${words} ##########\n\n`);
  return { path: name, skip: `NOT CHECKED: ${words}` };
}

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

/** Runs it until the test ends; `environment` is added to ours without what would change how connections are made. */
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

/** A port that was free a moment ago, for programs that cannot choose one themselves. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Resolves once `condition` holds; rejects with what the program said where it takes longer than `ms`. */
export async function waitFor(
  what: string,
  condition: () => boolean | Promise<boolean>,
  { output, process: child }: RunningProgram,
  ms = 20_000,
): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline || child.exitCode !== null) {
      throw new Error(`waited in vain for ${what}; the program said:\n${output()}`);
    }
    await delay(25);
  }
}
