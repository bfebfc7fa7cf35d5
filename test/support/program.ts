/** A built program in a process of its own, whatever it was built into. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { searchLog } from './canaries.ts';
import { cleanEnvironment } from './proxy-process.ts';

export interface Program {
  readonly process: ChildProcess;
  /** As it says in its log. */
  readonly url: string;
  readonly log: () => string;
  /** Sends the signal and resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/**
 * Starts the proxy; resolves once it listens, rejects where it ends before that or takes longer than `ms`. Signals go to it
 * alone, or to its process group, as the keys of a terminal send them.
 */
export async function startProgram(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
  ms = 30_000,
  signals: 'process' | 'group' = 'process',
): Promise<Program> {
  const [program, ...args] = command as [string, ...string[]];
  const child = spawn(program, args, {
    env: cleanEnvironment({ ...env }),
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: signals === 'group',
  });
  const kill = (signal: NodeJS.Signals): void => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    if (signals === 'group') process.kill(-(child.pid as number), signal);
    else child.kill(signal);
  };
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  child.once('close', () => searchLog(log, 'the program'));
  const closed = once(child, 'close'); // gone, and all it wrote has been read
  const deadline = Date.now() + ms;
  for (;;) {
    const url = /server.*endpoint="?(https?:\/\/[^\s"]+)/.exec(log)?.[1];
    if (url !== undefined) {
      return {
        process: child,
        url,
        log: () => log,
        async stop(signal = 'SIGTERM') {
          kill(signal);
          const [code] = (await closed) as [number | null];
          return code;
        },
      };
    }
    if (child.exitCode !== null || Date.now() > deadline) {
      kill('SIGKILL');
      throw new Error(`the proxy did not start:\n${log}`);
    }
    await delay(20);
  }
}
