/** A built program in a process of its own, whatever it was built into. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { cleanEnvironment } from './proxy-process.ts';

export interface Program {
  readonly process: ChildProcess;
  /** As it says in its log. */
  readonly url: string;
  readonly log: () => string;
  /** Sends the signal and resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts the proxy; resolves once it listens, rejects where it ends before that or takes longer than `ms`. */
export async function startProgram(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
  ms = 30_000,
): Promise<Program> {
  const [program, ...args] = command as [string, ...string[]];
  const child = spawn(program, args, {
    env: cleanEnvironment({ ...env }),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const exited = once(child, 'exit');
  const deadline = Date.now() + ms;
  for (;;) {
    const url = /server.*endpoint="?(https?:\/\/[^\s"]+)/.exec(log)?.[1];
    if (url !== undefined) {
      return {
        process: child,
        url,
        log: () => log,
        async stop(signal = 'SIGTERM') {
          if (child.exitCode === null && child.signalCode === null) child.kill(signal);
          const [code] = (await exited) as [number | null];
          return code;
        },
      };
    }
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`the proxy did not start:\n${log}`);
    }
    await delay(20);
  }
}
