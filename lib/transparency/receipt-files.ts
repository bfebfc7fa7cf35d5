/** The files of a directory of receipts, and their lines, whatever else lies there. */
import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { linesFromEnd, linesOf, type PlacedLine } from '../files/line-files.ts';
import { type ReceiptLine, readLine } from './receipt.ts';

/** A line that is signed, of the instance whose file it stands in. */
export type SoundLine = PlacedLine & { readonly members: ReceiptLine };

/** Whose lines count: those of an instance that `key` (Ed25519, public) has signed. */
export interface Signer {
  readonly instance: string;
  readonly key: KeyObject;
}

/** What else a directory of receipts holds: keys, verdicts, and what is on its way to its name. */
const EXPECTED = /^(?:key\.pem|public\.pem|verdicts|\.[0-9a-f-]{36}\.tmp)$/;

const FILE_NAME = /^(\d{4}-\d\d-\d\d)\.([a-z0-9]{12})\.jsonl$/;

const isDay = (day: string): boolean =>
  !Number.isNaN(Date.parse(day)) && new Date(day).toISOString().startsWith(day);

/** The day (UTC) and the instance that the name of a receipt file tells; undefined where it is none. */
export function readFileName(name: string): { readonly day: string; readonly instance: string } | undefined {
  const [, day, instance] = FILE_NAME.exec(name) ?? [];
  return day !== undefined && instance !== undefined && isDay(day) ? { day, instance } : undefined;
}

/**
 * What lies in the directory: the receipt files by instance, each in the order of their days, and the names of what does not belong there.
 * Links, directories, FIFOs and the like are no receipt files, whatever their names.
 */
export async function listReceiptFiles(directory: string) {
  const entries = (await readdir(directory, { withFileTypes: true })).toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  );
  const isReceipts = new Set(entries.filter((e) => e.isFile() && readFileName(e.name) !== undefined));
  const grouped = Map.groupBy(isReceipts, ({ name }) => readFileName(name)?.instance as string);
  return {
    instances: new Map(Array.from(grouped, ([instance, files]) => [instance, files.map((e) => e.name)])),
    foreign: entries.filter((e) => !isReceipts.has(e) && !EXPECTED.test(e.name)).map(({ name }) => name),
  };
}

/**
 * The directory of receipts that is meant by `directory`: itself, or `receipts` in it where it is the workspace of a proxy, which holds no
 * receipts of its own. Never rejects; whoever reads the directory says what is wrong with it.
 */
export async function receiptsDirectory(directory: string): Promise<string> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const holdsReceipts = entries.some(({ name }) => EXPECTED.test(name) || readFileName(name) !== undefined);
  const isWorkspace = entries.some((entry) => entry.name === RECEIPTS && entry.isDirectory());
  return isWorkspace && !holdsReceipts ? join(directory, RECEIPTS) : directory;
}

/** Name of the directory in a workspace. */
const RECEIPTS = 'receipts';

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

/** The last one, whatever stands behind it. */
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
