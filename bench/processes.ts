/** Child processes of the benchmark, and what Linux knows of them. */
import { type ChildProcess, type ForkOptions, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, setPriority } from 'node:os';
import { cleanEnvironment as testEnvironment } from '../test/support/processes/program.ts';

/** ms of the clock that all processes of a machine share. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Whether processes can be kept to a processor each: the subject on the first, all else on the second. */
export const PINNABLE = availableParallelism() > 1 && spawnSync('taskset', ['-V']).status === 0;
export type Place = 'subject' | 'others' | 'anywhere';
const PROCESSORS: Record<Place, string | undefined> = {
  subject: '0',
  others: '1',
  anywhere: undefined,
};

/** Keeps a process, all its threads, to its place; what it forks later inherits that. */
export function pin(pid: number, place: Place): void {
  const processor = PROCESSORS[place];
  if (processor !== undefined) spawnSync('taskset', ['-a', '-c', '-p', processor, String(pid)]);
}

const PRIORITY = -10;
const AUTOGROUP = '/proc/self/autogroup';

/**
 * Takes this process, and what it starts, out of the contest with everything else that runs on the machine;
 * only root may, and Linux may group processes by session, so that the group's priority counts. Gives back
 * what undoes it for the session, or undefined where nothing is allowed.
 */
export function raisePriority(): (() => void) | undefined {
  try {
    setPriority(0, PRIORITY);
    const restored = /nice (-?\d+)/.exec(readFileSync(AUTOGROUP, 'latin1'))?.[1] ?? '0';
    writeFileSync(AUTOGROUP, String(PRIORITY));
    return () => writeFileSync(AUTOGROUP, restored);
  } catch (error) {
    // no groups: all is done
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? () => {} : undefined;
  }
}

/** Environment without anything that would configure the proxy, Node or how connections are made. */
export const cleanEnvironment = (extra: Record<string, string> = {}): Record<string, string> =>
  testEnvironment(extra, /^NODE_/i);

/** Starts a module of this directory with a message channel; its standard error is ours. */
export function start(module: string, args: readonly string[], options: ForkOptions = {}): ChildProcess {
  return fork(module, [...args], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    serialization: 'advanced',
    env: cleanEnvironment(),
    ...options,
  });
}

const PATIENCE = 60_000;

/**
 * The next message of a type that is `meant`. Rejects where the process ends before, or none comes within a
 * minute.
 */
export function message<T extends { readonly type: string }>(
  child: ChildProcess,
  type: T['type'],
  meant: (note: T) => boolean = () => true,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const impatience = setTimeout(() => {
      settle();
      reject(new Error(`no ${type} of ${child.spawnargs.slice(1, 3).join(' ')}`));
    }, PATIENCE);
    const settle = (): void => {
      clearTimeout(impatience);
      child.off('message', received);
      child.off('exit', exited);
    };
    const received = (note: T): void => {
      if (note.type !== type || !meant(note)) return;
      settle();
      resolve(note);
    };
    const exited = (code: number | null): void => {
      settle();
      reject(new Error(`${child.spawnargs.slice(1, 3).join(' ')} ended with ${code}`));
    };
    child.on('message', received);
    child.on('exit', exited);
  });
}

export async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  const impatience = setTimeout(() => child.kill('SIGKILL'), 5_000);
  child.kill('SIGTERM');
  await exited;
  clearTimeout(impatience);
}

const processFile = (pid: number, name: string): string => readFileSync(`/proc/${pid}/${name}`, 'latin1');

/** Microseconds of processor time of a process: all threads, by the scheduler's own account. */
export function cpuMicroseconds(pid: number): number {
  let nanoseconds = 0;
  for (const task of readdirSync(`/proc/${pid}/task`))
    nanoseconds += Number(processFile(pid, `task/${task}/schedstat`).split(' ')[0]);
  return nanoseconds / 1e3;
}

export const residentBytes = (pid: number): number =>
  1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(processFile(pid, 'status'))?.[1]);

export const openSockets = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;
