/** A command of the program in this process: arguments in, what it wrote and its exit code out. */

import { main } from '../../../lib/cli.ts';
import type { Io } from '../../../lib/commands/command.ts';
import type { Times } from '../../../lib/times.ts';
import { clockOf } from '../remote/fake-clock.ts';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** What stdout is beside text that is kept, a terminal for example. */
  readonly terminal?: Omit<Io['stdout'], 'write'>;
  /** What the clock says. */
  readonly now?: string;
  /** Waits that are shorter. */
  readonly times?: Partial<Times>;
  /** In place of the program itself, which otherwise is only noted to have been asked for: it gives 0. */
  readonly serve?: Parameters<typeof main>[3];
}

export async function runCommand(argv: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const { env = {}, terminal, now, times, serve = async () => 0 } = options;
  const written = { stdout: '', stderr: '' };
  const io: Io = {
    stdout: { write: (text) => (written.stdout += text), ...terminal },
    stderr: { write: (text) => (written.stderr += text) },
    program: 'privatemode-proxy',
    clock: clockOf({ ...times, ...(now !== undefined && { now: () => Date.parse(now) }) }),
  };
  return { code: await main(argv, env, io, serve), ...written };
}
