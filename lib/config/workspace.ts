import { accessSync, constants, existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { PrivatemodeError } from '../errors.ts';

/**
 * A workspace that cannot be made, or cannot be written while nothing is logged in it, would let every attestation fail
 * at its last step. One that is read-only but holds a log may do: a manifest logged already needs no new line.
 * Throws config_invalid.
 */
export function prepareWorkspace(workspace: string): void {
  const refuse = (words: string, cause: unknown): PrivatemodeError =>
    new PrivatemodeError('config_invalid', `--workspace: ${words}; name a directory that can be written`, {
      cause,
    });
  const name = JSON.stringify(workspace);
  try {
    makeDirectory(workspace);
  } catch (thrown) {
    const code = codeOf(thrown);
    throw refuse(
      code === 'EEXIST' ? `${name} is no directory` : `the directory ${name} cannot be created (${code})`,
      thrown,
    );
  }
  if (existsSync(join(workspace, 'manifests', 'log.txt'))) return;
  try {
    accessSync(workspace, constants.W_OK);
  } catch (thrown) {
    throw refuse(`the directory ${name} cannot be written (${codeOf(thrown)})`, thrown);
  }
}

/**
 * As `mkdir -p`, with `mode` for what it makes. Node's own `recursive` never returns where a directory exists and mkdir in
 * it says ENOENT, as below /proc. Throws what the file system throws; EEXIST where `path` is no directory.
 */
export function makeDirectory(path: string, mode?: number): void {
  const whole = resolve(path);
  if (isDirectory(whole)) return;
  const parent = dirname(whole);
  if (parent !== whole && !existsSync(parent)) makeDirectory(parent, mode);
  try {
    mkdirSync(whole, { mode });
  } catch (thrown) {
    if (codeOf(thrown) !== 'EEXIST' || !isDirectory(whole)) throw thrown;
  }
}

const isDirectory = (path: string): boolean =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

const codeOf = (thrown: unknown): string => (thrown as NodeJS.ErrnoException).code ?? 'unknown cause';
