/**
 * Writes a verified exchange to a directory (`verify --save DIR`), and finds the files of a saved one
 * (`verify --saved DIR`).
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { orRefuse } from '../config/files.ts';
import { invalid } from '../config/values.ts';
import { writeFiles } from '../files/directories.ts';
import { makeDirectorySync } from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { exchangeFiles, SAVED, type SavedExchange } from '../verdict/saved-exchange.ts';
import type { Verdict } from '../verdict/verdict.ts';

/** Creates the directory before the first request; refuses one that is not empty. Throws config_invalid. */
export function prepareSave(directory: string): void {
  const names = existsSync(directory) ? orRefuse(() => readdirSync(directory), unwritable(directory)) : [];
  // --saved takes every file in the directory for a part of the exchange, so there may be no other one.
  const [taken] = names;
  if (taken !== undefined) {
    throw invalid(
      `--save: ${directory} already holds ${taken}; name an empty directory${
        names.includes(SAVED.verdict) ? `, or verify the saved exchange: verify --saved ${directory}` : ''
      }`,
    );
  }
  orRefuse(() => makeDirectorySync(directory, 0o700), unwritable(directory));
}

/**
 * Writes every file whole or not at all, readable by the owner only; the verdict comes last. Throws
 * config_invalid.
 */
export async function saveExchange(
  directory: string,
  exchange: SavedExchange,
  verdict: Verdict,
  endpoint: string,
): Promise<void> {
  await writeFiles(directory, exchangeFiles(exchange, verdict, endpoint), 0o600).catch((cause: unknown) => {
    throw unwritable(directory)(cause);
  });
}

const unwritable = (directory: string) => (cause: unknown) =>
  invalid(`--save: ${directory} cannot be written: ${reasonOf(cause)}`, cause);

/**
 * The paths that the flags of verify would name for the exchange in this directory, and the time of its
 * verdict. Throws config_invalid.
 */
export function savedIn(directory: string) {
  const path = (name: keyof typeof SAVED): string => join(directory, SAVED[name]);
  const present = (name: keyof typeof SAVED): string | undefined =>
    existsSync(path(name)) ? path(name) : undefined;
  if (present('evidence') === undefined || present('verdict') === undefined) {
    const what = existsSync(directory)
      ? 'holds no exchange'
      : `is not there${isAbsolute(directory) ? '' : `, below ${process.cwd()}`}`;
    const below = ['exchanges', 'receipts/exchanges'].map((name) => join(directory, name)).find(existsSync);
    const instead =
      below === undefined
        ? 'name a directory that verify --save or --receipts has written'
        : `name one of the directories in ${below}`;
    throw invalid(`--saved: ${directory} ${what}; ${instead}`);
  }
  return {
    evidence: path('evidence'),
    nonce: path('nonce'),
    manifest: path('manifest'),
    secretRequest: present('secret-request'),
    secretResponse: present('secret-response'),
    collateral: present('collateral'),
    roots: present('roots'),
    at: timeIn(path('verdict')),
  };
}

function timeIn(path: string): Date {
  const at = orRefuse(
    () => new Date((JSON.parse(readFileSync(path, 'utf8')) as { readonly at: string }).at),
    (cause) =>
      invalid(
        `--saved: ${path} cannot be read: it is not the verdict.json that verify --save writes; give --at`,
        cause,
      ),
  );
  if (Number.isNaN(at.getTime())) throw invalid(`--saved: ${path} has no time; give --at`);
  return at;
}
