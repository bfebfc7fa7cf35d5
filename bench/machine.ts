/** What the figures were taken on: without it nobody can compare them. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { arch, availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly kernel: string;
  readonly node: string;
  readonly openssl: string;
  readonly httpProxy3: string;
  readonly commit: string;
  readonly pinned: boolean;
  /** Whether the benchmark's processes came before others that wanted the same core. */
  readonly raised: boolean;
  /** One-minute load average when the run began: above 1, somebody else was at work. */
  readonly loadBefore: number;
}

export function describeMachine(raised: boolean, pinned: boolean): Machine {
  const lock = JSON.parse(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8')) as {
    packages: Record<string, { version?: string }>;
  };
  return {
    processor: `${cpus()[0]?.model.trim() ?? 'unknown'} (${arch()})`,
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    node: process.version,
    openssl: process.versions.openssl,
    httpProxy3: lock.packages['node_modules/http-proxy-3']?.version ?? 'unknown',
    commit: commit(),
    pinned,
    raised,
    loadBefore: Number(loadavg()[0]!.toFixed(2)),
  };
}

function commit(): string {
  try {
    return execFileSync('git', ['describe', '--always', '--dirty'], {
      encoding: 'utf8',
      cwd: import.meta.dirname,
    }).trim();
  } catch {
    return 'unknown';
  }
}
