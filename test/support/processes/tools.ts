/** Runs programs to their end. */
import { execFile, type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { withoutSettings } from './program.ts';

export const ROOT = join(import.meta.dirname, '../../..');

/** Runs a program to its end, bounded in time; the environment is our own unless given. */
export function run(
  program: string,
  args: readonly string[],
  options: { input?: string; env?: NodeJS.ProcessEnv; cwd?: string; timeoutMs?: number } = {},
): SpawnSyncReturns<string> {
  const result = spawnSync(program, args, {
    encoding: 'utf8',
    input: options.input ?? '',
    env: options.env ?? withoutSettings(process.env),
    cwd: options.cwd ?? ROOT,
    timeout: options.timeoutMs ?? 60_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (result.error !== undefined) throw result.error;
  return result;
}

/** The same beside the test, for programs that talk to a server in it. */
export function runAside(
  program: string,
  args: readonly string[],
  { input = '', timeoutMs = 60_000 } = {},
): Promise<{ status: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(program, args, { timeout: timeoutMs }, (error, stdout, stderr) => {
      resolve({ status: error === null ? 0 : Number(error.code ?? 1), stdout, stderr });
    });
    child.stdin?.on('error', () => {}); // of a program that has ended without reading
    child.stdin?.end(input);
  });
}
