/** The program, from the sources or built into whatever, in a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Times } from '../../../lib/times.ts';
import { searchLog } from '../doors/canaries.ts';
import { QUICK_PAUSES } from '../quick-pauses.ts';
import { eventually } from './eventually.ts';

export const SOURCES = join(import.meta.dirname, '../../../bin/privatemode-proxy.ts');
const SCALED = join(import.meta.dirname, 'scaled-program.ts');

export interface Program {
  readonly process: ChildProcess;
  /** As it says in its log. */
  readonly url: string;
  /** Everything written to stderr so far. */
  readonly log: () => string;
  /** Sends the signal, unless it was told to stop before, and resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** `env` without the settings of the proxy; for programs that need the caller's own way to the network. */
export const withoutSettings = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !/^PRIVATEMODE_/i.test(name)));

/**
 * The environment for every program that tests and benchmarks start: the caller's, without anything that
 * would configure the proxy or change how connections are made, nor what matches `dropped`; and `extra`.
 */
export function cleanEnvironment(
  extra: Readonly<Record<string, string>> = {},
  dropped: RegExp = /^$/,
): Record<string, string> {
  const always =
    /^(PRIVATEMODE_|SSL_CERT_|NODE_EXTRA_CA_CERTS|NODE_TLS_|LISTEN_|NOTIFY_|WATCHDOG_|npm_config_(port|once)$)|_proxy$/i;
  const kept = Object.entries(process.env).filter(
    ([name, value]) => value !== undefined && !always.test(name) && !dropped.test(name),
  );
  return { ...(Object.fromEntries(kept) as Record<string, string>), ...extra };
}

/** Pids of the processes that a running one has started. */
export function childrenOf(pid: number | undefined): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return text.split(' ').filter(Boolean).map(Number);
}

/**
 * Starts the proxy; resolves once it listens, rejects where it ends before that or takes too long. Signals go
 * to it alone; `signalsToGroup`: to its process group, as the keys of a terminal send them. `socket`: the
 * descriptor of one that it gets as a service manager hands it over (sd_listen_fds(3)).
 */
export async function startProgram(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
  { signalsToGroup = false, socket }: { readonly signalsToGroup?: boolean; readonly socket?: number } = {},
): Promise<Program> {
  const shell = ['sh', '-c', 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', 'sh'];
  const [program, ...args] = (socket === undefined ? command : [...shell, ...command]) as [
    string,
    ...string[],
  ];
  const child = spawn(program, args, {
    env: cleanEnvironment(env),
    stdio: ['ignore', 'ignore', 'pipe', ...(socket === undefined ? [] : [socket])],
    detached: signalsToGroup,
  });
  let told = false;
  const kill = child.kill.bind(child);
  child.kill = (signal) => {
    told ||= signal === 'SIGTERM';
    return signalsToGroup ? process.kill(-(child.pid as number), signal) : kill(signal);
  };
  let log = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  child.once('close', () => searchLog(log, 'the program'));
  const closed = once(child, 'close'); // gone, and all it wrote has been read
  const endpoint = (): string | undefined => {
    if (child.exitCode !== null) throw new Error(`the proxy did not start (${child.exitCode}):\n${log}`);
    return /server.*endpoint="?((?:https?:\/\/|unix:)[^\s"]+)/.exec(log)?.[1];
  };
  const starts = (): string => `the start of the proxy:\n${log}`;
  const url = await eventually(starts, endpoint).catch((error) => {
    if (child.exitCode === null) child.kill('SIGKILL');
    throw error;
  });
  return {
    process: child,
    url,
    log: () => log,
    async stop(signal = 'SIGTERM') {
      const runs = child.exitCode === null && child.signalCode === null;
      // A second SIGTERM would end it at once: whoever was told already is waited for.
      if (runs && (signal === 'SIGKILL' || !told)) child.kill(signal);
      const [code] = (await closed) as [number | null];
      return code;
    },
  };
}

/**
 * That of the sources. `limits` is what the shell does to itself before it becomes the program, such as
 * `ulimit -n 64`. `times`: waits in ms that differ from those of the product, beside QUICK_PAUSES.
 */
export function startProxyProcess(
  flags: readonly string[],
  env: Readonly<Record<string, string>>,
  { limits = ':', times }: { readonly limits?: string; readonly times?: Partial<Times> } = {},
): Promise<Program> {
  const command = ['/bin/sh', '-c', `${limits}; exec "$@"`, 'sh', process.execPath, SCALED, ...flags];
  return startProgram(command, { ...env, TEST_TIMES: JSON.stringify({ ...QUICK_PAUSES, ...times }) });
}
