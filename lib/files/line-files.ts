/** Files that grow by whole lines: written in batches, so that no request waits for the disk, and read. */
import type { FileHandle } from 'node:fs/promises';
import type { Clock } from '../clock.ts';
import { inTime, openOwnToAppend, openToRead, writeAll } from './durable-file.ts';

/** The longest line that is read, in characters. A longer one gets an empty text, to fit into memory. */
const LONGEST_LINE = 1024 * 1024;

/** Yields the lines of a file, numbered from 1. `isWhole`: false for a last line that a crash cut off. */
export async function* linesOf(path: string) {
  const handle = await openToRead(path);
  let [rest, number, isTooLong] = ['', 0, false];
  for await (const chunk of handle.createReadStream({ encoding: 'utf8' })) {
    const texts = (rest + chunk).split('\n');
    rest = texts.pop() as string;
    for (const text of texts) {
      yield { number: ++number, text: isTooLong ? '' : text, isWhole: true };
      isTooLong = false;
    }
    if (rest.length > LONGEST_LINE) [rest, isTooLong] = ['', true];
  }
  if (rest !== '' || isTooLong) yield { number: ++number, text: rest, isWhole: false };
}

/**
 * Appends lines to files that nobody else writes, in batches. `write` appends all that waits, and is called
 * again after it threw. `onFailure` is called once for a reason in a row, also if a batch takes longer than
 * 10 s.
 */
export function lineLog(deps: {
  readonly clock: Clock;
  readonly write: () => Promise<void>;
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: () => void;
}) {
  const { clock } = deps;
  let file: { readonly path: string; readonly handle: FileHandle; size: number } | undefined;
  let isTorn = false; // behind `size` there may be a part of what a failed write wrote
  let failure: string | undefined;
  let writing = Promise.resolve();
  let cancel: (() => void) | undefined;

  /** Cuts off what a failed write left: it is written again, and no part of it may stand between lines. */
  async function mend(): Promise<void> {
    if (isTorn) await file?.handle.truncate(file.size);
    isTorn = false;
  }
  function fail(reason: Error): void {
    // Not the message, which may name another file each time.
    const { code = reason.message } = reason as NodeJS.ErrnoException;
    if (code !== failure) deps.onFailure(reason);
    failure = code;
  }
  async function writeBatch(): Promise<void> {
    const written = deps.write();
    await inTime(written, clock).catch(fail); // the first reason counts: a dying disk would have two
    await written.then(recover, later);
  }
  function recover(): void {
    if (failure !== undefined) deps.onRecovery();
    failure = undefined;
  }
  function later(): void {
    cancel ??= clock.after(clock.times.batchPause, flush);
  }
  /** Resolves when all that waits is written, or could not be. */
  function flush(): Promise<void> {
    cancel?.();
    cancel = undefined;
    writing = writing.then(writeBatch);
    return writing;
  }
  return {
    later,
    /** Resolves once the text is on disk, or throws. Goes on to another file once the last one is whole. */
    async append(path: string, text: string): Promise<void> {
      await mend();
      if (file?.path !== path) {
        const before = file;
        file = undefined;
        await before?.handle.close();
        const handle = await openOwnToAppend(path);
        file = { path, handle, size: (await handle.stat()).size };
      }
      const bytes = Buffer.from(text);
      isTorn = true;
      await writeAll(file.handle, bytes);
      await file.handle.datasync();
      isTorn = false;
      file.size += bytes.length;
    },
    /** Writes what waits; what cannot be written now is given up. */
    async close(): Promise<void> {
      await flush();
      cancel?.();
      await mend().catch(() => {});
      await file?.handle.close();
    },
  };
}
