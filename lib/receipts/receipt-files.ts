/** The files of receipts in a directory. */
import type { KeyObject } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { linesOf, openToRead } from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { readLine, sha256 } from './receipt.ts';

const FILE_NAME = /^\d{4}-\d\d-\d\d\.([a-z0-9]{12})\.jsonl$/;

/** The instance that wrote `YYYY-MM-DD.<instance>.jsonl`. The day is that of UTC. */
export const instanceOf = (file: string): string => FILE_NAME.exec(file)?.[1] ?? '';

/** The names of the files of receipts, in the order of their days. A link is none, whatever its name. */
export async function receiptFiles(directory: string): Promise<readonly string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && FILE_NAME.test(entry.name));
  return files.map(({ name }) => name).sort();
}

/** The first line of a file; undefined if that has no whole line. */
export async function firstLineOf(path: string): Promise<string | undefined> {
  for await (const { text, isWhole } of linesOf(path)) return isWhole ? text : undefined;
  return undefined;
}

/** The last whole line of a file; empty if it is longer than 1 MiB, as `linesOf` has it. */
async function lastLineOf(path: string): Promise<string> {
  await using handle = await openToRead(path);
  const { size } = await handle.stat();
  for (let length = 16 * 1024; length <= 1024 * 1024; length *= 8) {
    const position = Math.max(0, size - length);
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(size - position), position });
    const lines = buffer.toString('utf8', 0, bytesRead).split('\n');
    if (position === 0 || lines.length > 2) return lines.at(-2) ?? '';
  }
  return '';
}

/**
 * The SHA-256 of the last line of each file, unless a first line that `key` (public) has signed names it
 * already. So first lines do not grow with the number of starts.
 */
export async function endsOfFiles(directory: string, key: KeyObject): Promise<Record<string, string>> {
  const ends = new Map<string, string>();
  const named: [file: string, sha256: string][] = [];
  for (const file of await receiptFiles(directory)) {
    const text = await firstLineOf(join(directory, file));
    if (text === undefined) continue;
    ends.set(file, sha256(await lastLineOf(join(directory, file))));
    const first = readLine(text, key);
    if (first?.type === 'opened') named.push(...Object.entries(first.found));
  }
  for (const [file, end] of named) if (ends.get(file) === end) ends.delete(file);
  return Object.fromEntries(ends);
}

/** The directory of receipts that `directory` stands for: itself, or `receipts` in it, as in a workspace. */
export function receiptsDirectory(directory: string): string {
  const inWorkspace = join(directory, 'receipts');
  return existsSync(inWorkspace) ? inWorkspace : directory;
}

/** The error receipts_unreadable about a directory, from what was thrown while it was read. */
export function receiptsUnreadable(directory: string, cause: unknown): PrivatemodeError {
  const { path = directory } = cause as NodeJS.ErrnoException;
  const why = path === directory ? reasonOf(cause) : `${path}: ${reasonOf(cause)}`;
  const message = `the receipts in ${directory} cannot be read (${why})`;
  return new PrivatemodeError('receipts_unreadable', message, { cause });
}
