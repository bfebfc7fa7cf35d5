/** Files that grow by whole lines: how they are read, whatever their size, and written, off the way of the requests. */
import { randomInt } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { openToRead } from './own-files.ts';

/** A line of a file. */
export interface PlacedLine {
  readonly file: string;
  /** From 1, as editors count; 0 where it was not counted. */
  readonly number: number;
  readonly text: string;
  /** False: it has no line feed, because a crash cut it off. */
  readonly complete: boolean;
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
export async function* linesFromEnd(directory: string, file: string): AsyncGenerator<string> {
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

const LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** The name of a writer in those of its files: 12 letters and digits, 62 random bits. No two write to one file. */
export const newInstance = (): string =>
  Array.from({ length: 12 }, () => LETTERS[randomInt(LETTERS.length)]).join('');

/**
 * Appends whole lines to files that nobody else writes to, of which one is open at a time: the last. `open` makes the file where it is
 * not there, and its directory.
 */
export function createLineWriter(open: (path: string) => Promise<FileHandle>) {
  let file: Awaited<ReturnType<typeof openLineFile>> | undefined;
  return {
    /** Writes all of the text, or throws. Makes the file anew where it was deleted. */
    async append(path: string, text: string): Promise<void> {
      if (file !== undefined && !(file.path === path && (await file.isOpen()))) {
        await file.close();
        file = undefined;
      }
      file ??= await openLineFile(path, open);
      await file.append(text);
    },
    close: async (): Promise<void> => file?.close(),
  };
}

async function openLineFile(path: string, open: (path: string) => Promise<FileHandle>) {
  const handle = await open(path);
  let good = (await handle.stat()).size;
  let clean = true;
  return {
    path,
    /** First cuts off what a failed write left: a part of a line must not stand between lines. */
    async append(text: string): Promise<void> {
      const bytes = Buffer.from(text);
      if (!clean) await handle.truncate(good);
      clean = false;
      const { bytesWritten } = await handle.write(bytes);
      if (bytesWritten < bytes.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' });
      await handle.datasync();
      clean = true;
      good += bytes.length;
    },
    /** Whether the file has a name still: what is written to a deleted one is gone. */
    isOpen: async (): Promise<boolean> => (await handle.stat()).nlink > 0,
    close: (): Promise<void> => handle.close(),
  };
}

/** ms for one batch. */
const PATIENCE = 10_000;

/** A disk that failed is tried more rarely. */
const RETRY_FACTOR = 8;

/**
 * Writes in batches, off the way of the requests. `write` stores all that waits, and resolves with the number of records that were lost
 * since it last did; where it fails it is called again, later. `onFailure` is called once until it succeeds, also where it takes longer
 * than `patience` ms (default 10 s), then `onRecovery` with the number of the lost. `interval`: ms between two batches.
 */
export function writeInBatches(deps: {
  readonly interval: number;
  readonly patience?: number;
  readonly write: () => Promise<number>;
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: (lost: number) => void;
}) {
  let failing = false;
  let writing: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;

  function later(): void {
    timer ??= setTimeout(flush, failing ? deps.interval * RETRY_FACTOR : deps.interval).unref();
  }
  function fail(reason: Error): void {
    if (!failing) deps.onFailure(reason);
    failing = true;
  }
  async function write(): Promise<void> {
    const slow = Object.assign(new Error('the disk does not take them in time'), { code: 'ETIMEDOUT' });
    const patience = setTimeout(fail, deps.patience ?? PATIENCE, slow).unref();
    try {
      const lost = await deps.write();
      if (failing) deps.onRecovery(lost);
      failing = false;
    } catch (error) {
      fail(error as Error);
      later();
    } finally {
      clearTimeout(patience);
    }
  }
  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    writing = writing.then(write);
    return writing;
  }
  return {
    /** Has a batch written soon; waits for nothing. */
    later,
    /** Resolves when all that waits is written, or could not be. */
    flush,
    /** Ends the attempts to write what could not be written. */
    stop: (): void => clearTimeout(timer),
  };
}
