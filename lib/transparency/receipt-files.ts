/** The files of a directory of receipts, and their lines, whatever else lies there. */
import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { openToRead } from './own-files.ts';
import { type ReceiptLine, readLine } from './receipt.ts';

/** A line of a file. */
export interface PlacedLine {
  readonly file: string;
  /** From 1, as editors count; 0 where it was not counted. */
  readonly number: number;
  readonly text: string;
  /** False: it has no line feed, because a crash cut it off. */
  readonly complete: boolean;
}

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

/** Characters, or bytes; `opened` lines grow with the number of chains they found, all others are far shorter. */
const LONGEST_LINE = 1024 * 1024;

/** The lines of files, one after the other. One that is longer than any receipt has an empty text, so that it fits into memory. */
export async function* linesOf(directory: string, files: readonly string[]): AsyncGenerator<PlacedLine> {
  for (const file of files) {
    let number = 0;
    let rest = '';
    let isTooLong = false;
    const handle = await openToRead(join(directory, file));
    for await (const chunk of handle.createReadStream({ encoding: 'utf8' })) {
      const texts = (rest + chunk).split('\n');
      rest = texts.pop() as string;
      for (const text of texts) {
        yield { file, number: ++number, text: isTooLong ? '' : text, complete: true };
        isTooLong = false;
      }
      if (rest.length <= LONGEST_LINE) continue;
      isTooLong = true;
      rest = '';
    }
    if (rest !== '' || isTooLong) yield { file, number: ++number, text: rest, complete: false };
  }
}

const BLOCK = 64 * 1024;
const LINE_FEED = 10;

/** The complete lines of a file from its end, read as far as they are asked for; those that are longer than any receipt are left out. */
async function* linesFromEnd(directory: string, file: string): AsyncGenerator<string> {
  await using handle = await openToRead(join(directory, file));
  let rest: Buffer = Buffer.alloc(0); // the end of a line whose beginning has not been read
  let isLine = false; // what stands behind the last line feed is none
  for (let end = (await handle.stat()).size; end > 0; end -= Math.min(BLOCK, end)) {
    const position = Math.max(0, end - BLOCK);
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(end - position), position });
    rest = Buffer.concat([buffer.subarray(0, bytesRead), rest]);
    for (let feed = rest.lastIndexOf(LINE_FEED); feed !== -1; feed = rest.lastIndexOf(LINE_FEED)) {
      if (isLine) yield rest.toString('utf8', feed + 1);
      isLine = true;
      rest = rest.subarray(0, feed);
    }
    if (rest.length <= LONGEST_LINE) continue;
    isLine = false;
    rest = Buffer.alloc(0);
  }
  if (isLine) yield rest.toString('utf8');
}

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
