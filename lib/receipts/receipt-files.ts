/** Finds the receipt files in a directory, whatever else lies there, and reads their first and last lines. */
import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { TEMPORARY } from '../files/directories.ts';
import { linesFromEnd, linesOf, type PlacedLine } from '../files/line-files.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { parseLine, type ReceiptLine, readLine } from './receipt.ts';

/** A signed line of the instance in whose file it stands. */
export type SoundLine = PlacedLine & { readonly members: ReceiptLine };

/** Says which lines count: those of `instance` that `key` (Ed25519, public) has signed. */
export interface Signer {
  readonly instance: string;
  readonly key: KeyObject;
}

/** Ed25519 public keys by `keySha256`. The first one is tried first. */
export type KeyRing = ReadonlyMap<string, KeyObject>;

/** Finds a key by its name; undefined: that key does not count. */
export type FindKey = (name: string) => Promise<KeyObject | undefined>;

/** Other names that belong in a directory of receipts: of keys, verdicts and exchanges. */
const EXPECTED = /^(?:key\.pem(?:\.lock)?|public\.pem|keys|verdicts|exchanges)$/;

const FILE_NAME = /^(\d{4}-\d\d-\d\d)\.([a-z0-9]{12})\.jsonl$/;

const isDay = (day: string): boolean =>
  !Number.isNaN(Date.parse(day)) && new Date(day).toISOString().startsWith(day);

/** The day (UTC) and the instance in the name of a receipt file; undefined for any other name. */
export function readFileName(name: string): { readonly day: string; readonly instance: string } | undefined {
  const [, day, instance] = FILE_NAME.exec(name) ?? [];
  return day !== undefined && instance !== undefined && isDay(day) ? { day, instance } : undefined;
}

/**
 * Lists the directory: the receipt files by instance, each in the order of their days, and the names of
 * entries that do not belong there. Links, directories, FIFOs and the like are no receipt files, whatever
 * their names.
 */
export async function listReceiptFiles(directory: string) {
  const entries = (await readdir(directory, { withFileTypes: true })).toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  );
  const isReceipts = new Set(entries.filter((e) => e.isFile() && readFileName(e.name) !== undefined));
  const grouped = Map.groupBy(isReceipts, ({ name }) => readFileName(name)?.instance as string);
  return {
    instances: new Map(Array.from(grouped, ([instance, files]) => [instance, files.map((e) => e.name)])),
    foreign: entries
      .filter((e) => !isReceipts.has(e) && !EXPECTED.test(e.name) && !TEMPORARY.test(e.name))
      .map(({ name }) => name),
  };
}

/**
 * The directory of receipts that `directory` stands for: itself, or `receipts` in it if it is the workspace
 * of a proxy and holds no receipts of its own. Never rejects: the caller that reads the directory then
 * reports what is wrong with it.
 */
export async function receiptsDirectory(directory: string): Promise<string> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  // Not by key.pem or keys: a workspace may have its own, such as a TLS key.
  const holdsReceipts = entries.some(({ name }) => name === 'public.pem' || readFileName(name) !== undefined);
  const isWorkspace = entries.some((entry) => entry.name === RECEIPTS && entry.isDirectory());
  return isWorkspace && !holdsReceipts ? join(directory, RECEIPTS) : directory;
}

/** Name of the directory of receipts in a workspace. */
const RECEIPTS = 'receipts';

/**
 * receipts_unreadable about a directory, from what was thrown while it was read. `remedy`: in place of that
 * of the code.
 */
export function receiptsUnreadable(directory: string, cause: unknown, remedy?: string): PrivatemodeError {
  const { code, path = directory } = cause as NodeJS.ErrnoException;
  const refused = `${path === directory ? '' : `${path}: `}${reasonOf(cause)}`;
  const why =
    cause instanceof PrivatemodeError ? cause.message : code === undefined ? 'not a public key' : refused;
  const message = `the receipts in ${directory} cannot be read (${why})`;
  return new PrivatemodeError('receipts_unreadable', message, { cause, ...(remedy && { remedy }) });
}

/**
 * The result of what a proxy reads before it writes receipts to the directory. Throws receipts_unavailable,
 * with the path that could not be read.
 */
export const beforeWriting = <T>(directory: string, reading: Promise<T>): Promise<T> =>
  reading.catch((cause: unknown) => {
    if (cause instanceof PrivatemodeError) throw cause;
    const { message } = receiptsUnreadable(directory, cause);
    const remedy = 'Make that readable for the user of the proxy, or start without --receipts.';
    throw new PrivatemodeError('receipts_unavailable', message, { cause, remedy });
  });

function soundLine(line: PlacedLine, { instance, key }: Signer): SoundLine | undefined {
  const members = readLine(line.text, key);
  return typeof members === 'string' || members.instance !== instance ? undefined : { ...line, members };
}

/** The first signed line of the files of an instance, whatever stands before it. */
export async function firstLine(
  directory: string,
  files: readonly string[],
  signer: Signer,
): Promise<SoundLine | undefined> {
  for await (const line of linesOf(directory, files)) {
    const sound = line.complete ? soundLine(line, signer) : undefined;
    if (sound !== undefined) return sound;
  }
  return undefined;
}

/**
 * The key of a chain, and its first signed line. `unknown`: the name of the key that the first line names, if
 * that key does not count.
 */
export interface ChainKey {
  readonly key: KeyObject;
  readonly first: SoundLine | undefined;
  readonly unknown: string | undefined;
}

/**
 * Finds the key of a chain: the one that its first line names, which `find` gives. Chains of older versions
 * name none, so each of `keys` is tried on their lines. If no key fits, returns the first key, so that the
 * caller can report the lines that it has not signed.
 */
export async function keyOfChain(
  directory: string,
  files: readonly string[],
  { instance, keys, find }: { readonly instance: string; readonly keys: KeyRing; readonly find: FindKey },
): Promise<ChainKey> {
  let unknown: string | undefined;
  for await (const line of linesOf(directory, files)) {
    const members = line.complete ? parseLine(line.text) : undefined;
    if (members?.instance !== instance) continue;
    const name = members.type === 'opened' ? members.key : undefined;
    const named = name === undefined ? undefined : await find(name);
    if (named === undefined) unknown ??= name;
    const candidates = name === undefined ? [...keys.values()] : named === undefined ? [] : [named];
    for (const key of candidates) {
      const first = soundLine(line, { instance, key });
      if (first !== undefined) return { key, first, unknown: undefined };
    }
  }
  const [key] = keys.values() as unknown as [KeyObject];
  return { key, first: undefined, unknown };
}

/** The last signed line of the files of an instance, whatever stands behind it. */
export async function lastLine(
  directory: string,
  files: readonly string[],
  signer: Signer,
): Promise<SoundLine | undefined> {
  for (const file of files.toReversed()) {
    for await (const text of linesFromEnd(directory, file)) {
      const sound = soundLine({ file, number: 0, text, complete: true }, signer);
      if (sound !== undefined) return sound;
    }
  }
  return undefined;
}
