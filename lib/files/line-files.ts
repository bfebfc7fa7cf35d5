/**
 * Reads and writes files that grow by whole lines. A file may be larger than the memory, and no request waits
 * for a write.
 */
import { randomInt } from 'node:crypto';
import { type FileHandle, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { openToRead } from './own-files.ts';

/** A line of a file. */
export interface PlacedLine {
  readonly file: string;
  /** From 1, as editors count; 0 where it was not counted. */
  readonly number: number;
  readonly text: string;
  /** False if the line has no line feed, because a crash cut it off. */
  readonly complete: boolean;
}

/**
 * Longest line that is read: in characters if a file is read from its beginning, in bytes if from its end. A
 * line of type `opened` grows with the number of chains that it found; all others are far shorter.
 */
const LONGEST_LINE = 1024 * 1024;

/**
 * Yields the lines of files, one file after the other. A line that is longer than any receipt gets an empty
 * text, so that it fits into memory.
 */
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

/**
 * Yields the complete lines of a file, the last one first. Reads only as far as the caller asks for lines.
 * Leaves out lines that are longer than any receipt.
 */
export async function* linesFromEnd(directory: string, file: string): AsyncGenerator<string> {
  await using handle = await openToRead(join(directory, file));
  let rest: Buffer = Buffer.alloc(0); // the end of a line whose beginning has not been read
  let isLine = false; // the bytes after the last line feed are no complete line
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

/**
 * A new name for a writer, for use in the names of its files: 12 letters and digits, 62 random bits. Thus no
 * two writers write to one file.
 */
export const newInstance = (): string =>
  Array.from({ length: 12 }, () => LETTERS[randomInt(LETTERS.length)]).join('');

/**
 * Appends whole lines to files to which nobody else writes. Only the file that was used last is open. `open`
 * creates the file and its directory if they are missing.
 */
export function createLineWriter(open: (path: string) => Promise<FileHandle>) {
  let file: Awaited<ReturnType<typeof openLineFile>> | undefined;
  return {
    /**
     * Writes all of the text, or throws. Creates the file again if somebody has deleted it or moved it away.
     * Goes on to another file only once the last one has nothing of a failed write any more: its caller
     * writes that again.
     */
    async append(path: string, text: string): Promise<void> {
      if (file !== undefined && !(file.path === path && (await file.isInPlace()))) {
        await file.restore();
        await file.close();
        file = undefined;
      }
      file ??= await openLineFile(path, open);
      await file.append(text);
    },
    /** What a failed write left may stay if it cannot be cut off: nobody writes it again. */
    async close(): Promise<void> {
      await file?.restore().catch(() => {});
      await file?.close();
    },
  };
}

async function openLineFile(path: string, open: (path: string) => Promise<FileHandle>) {
  const handle = await open(path);
  const { size, dev, ino } = await handle.stat();
  let good = size;
  let clean = true;
  /** The number of links says nothing: a copy of a backup may be another link to a deleted file. */
  const isInPlace = async (): Promise<boolean> => {
    const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    return found?.ino === ino && found.dev === dev;
  };
  return {
    path,
    /** First cuts off what a failed write left, because no part of a line may stand between lines. */
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
    /**
     * Cuts off what a failed write left, for good. Throws if that fails, unless somebody has deleted the file
     * or moved it away.
     */
    async restore(): Promise<void> {
      if (clean) return;
      try {
        await handle.truncate(good);
        await handle.sync();
        clean = true;
      } catch (error) {
        if (await isInPlace()) throw error;
      }
    },
    /** Whether the path still names this file: text that is written to a deleted file is gone. */
    isInPlace,
    close: (): Promise<void> => handle.close(),
  };
}

/** After a failure the next batch waits this many pauses: a disk that failed is tried more rarely. */
const RETRY_FACTOR = 8;

/**
 * Writes records in batches, so that no request waits for the disk. `write` stores all waiting records.
 * It resolves with how many records were lost since its last success; with undefined if there was nothing to
 * write, which does not show that the disk works. After a failure it is called again later. `onFailure` is
 * called for a failure, and for a batch that takes longer than 10 s, but only once for the same reason in a
 * row. The next success calls `onRecovery` with the number of lost records.
 */
export function writeInBatches(deps: {
  readonly clock: Clock;
  readonly write: () => Promise<number | undefined>;
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: (lost: number) => void;
}) {
  /** Why records cannot be written, as reported last. */
  let failure: string | undefined;
  let writing: Promise<void> = Promise.resolve();
  const { clock } = deps;
  const { batchPause, diskPatience } = clock.times;
  let cancel: (() => void) | undefined;

  function later(): void {
    cancel ??= clock.after(failure === undefined ? batchPause : batchPause * RETRY_FACTOR, flush);
  }
  function fail(reason: Error): void {
    // The code, because a message may name another temporary file each time.
    const { code = reason.message } = reason as NodeJS.ErrnoException;
    if (code !== failure) deps.onFailure(reason);
    failure = code;
  }
  async function write(): Promise<void> {
    const slow = Object.assign(new Error('the disk does not take them in time'), { code: 'ETIMEDOUT' });
    let isSlow = false;
    const tooSlow = (): void => {
      isSlow = true;
      fail(slow);
    };
    const written = clock.after(diskPatience, tooSlow);
    try {
      const lost = await deps.write();
      if (lost === undefined) return;
      if (failure !== undefined) deps.onRecovery(lost);
      failure = undefined;
    } catch (error) {
      if (!isSlow) fail(error as Error); // else each batch of a dying disk would have two reasons
      later();
    } finally {
      written();
    }
  }
  function flush(): Promise<void> {
    cancel?.();
    cancel = undefined;
    writing = writing.then(write);
    return writing;
  }
  return {
    /** Has a batch written soon; returns at once. */
    later,
    /** Writes a batch now. Resolves when all waiting records are written, or could not be. */
    flush,
    /** Cancels the next batch, and with it the attempts to write records that could not be written. */
    stop: (): void => cancel?.(),
  };
}
