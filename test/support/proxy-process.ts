import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { searchLog } from './canaries.ts';

const ROOT = join(import.meta.dirname, '../..');

export interface ProxyProcess {
  readonly process: ChildProcess;
  readonly url: string;
  /** Everything written to stderr so far. */
  readonly log: () => string;
  /** Pids of the processes it has started. */
  readonly children: () => number[];
  /** Sends SIGTERM and resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** `env` without the settings of the proxy; for programs that need the caller's own way to the network. */
export const withoutSettings = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !/^PRIVATEMODE_/i.test(name)));

/**
 * The environment for every program that tests and benchmarks start: the caller's, without anything that would configure
 * the proxy or change how connections are made, nor what matches `dropped`; and `extra`.
 */
export function cleanEnvironment(
  extra: Record<string, string> = {},
  dropped: RegExp = /^$/,
): Record<string, string> {
  const always =
    /^(PRIVATEMODE_|SSL_CERT_|NODE_EXTRA_CA_CERTS|NODE_TLS_|LISTEN_|NOTIFY_|WATCHDOG_|npm_config_(port|once)$)|_proxy$/i;
  const kept = Object.entries(process.env).filter(
    ([name, value]) => value !== undefined && !always.test(name) && !dropped.test(name),
  );
  return { ...(Object.fromEntries(kept) as Record<string, string>), ...extra };
}

/**
 * The real program in a process of its own, listening; rejects where it ends before that. `limits` is what the shell does
 * to itself before it becomes the program, such as `ulimit -n 64`.
 */
export async function startProxyProcess(
  flags: readonly string[],
  env: Record<string, string>,
  limits = ':',
): Promise<ProxyProcess> {
  const program = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts'), ...flags];
  const child = spawn('/bin/sh', ['-c', `${limits}; exec "$@"`, 'sh', ...program], {
    env: cleanEnvironment(env),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  let told = false;
  const kill = child.kill.bind(child);
  child.kill = (signal) => {
    told ||= signal === 'SIGTERM';
    return kill(signal);
  };
  child.once('close', () => searchLog(log, 'the program'));
  const exited = once(child, 'exit');
  const deadline = Date.now() + 20_000;
  let url: string | undefined;
  while (url === undefined) {
    url = /server.*endpoint="?((?:https?:\/\/|unix:)[^\s"]+)/.exec(log)?.[1];
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`the proxy did not start (${child.exitCode}):\n${log}`);
    }
    await delay(20);
  }
  return {
    process: child,
    url,
    log: () => log,
    children() {
      const text = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
      return text.split(' ').filter(Boolean).map(Number);
    },
    async stop(signal = 'SIGTERM') {
      // A second SIGTERM would end it at once: whoever was told already is waited for.
      if (child.exitCode === null && (signal === 'SIGKILL' || !told)) child.kill(signal);
      const [code] = (await exited) as [number | null];
      return code;
    },
  };
}
