/** Files that grow by whole lines: written in batches, so that no request waits for the disk, and read. */
import type { FileHandle } from 'node:fs/promises';
import type { Clock } from '../clock.ts';
import { openOwnToAppend, openToRead } from './own-files.ts';

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

/** After a failure the next batch waits this many pauses: a disk that failed is tried more rarely. */
const RETRY_FACTOR = 8;

interface LineLogDeps {
  readonly clock: Clock;
  /** Appends all that waits. It is called again after it threw. */
  readonly write: () => Promise<void>;
  /** Called once for a reason in a row, also if a batch takes longer than 10 s. */
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: () => void;
}

/** Appends lines to files that nobody else writes, in batches. */
export function lineLog(deps: LineLogDeps) {
  const { batchPause, diskPatience } = deps.clock.times;
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
    const slow = Object.assign(new Error('the disk does not take them in time'), { code: 'ETIMEDOUT' });
    const written = deps.clock.after(diskPatience, () => fail(slow));
    await deps.write().catch((error: Error) => {
      if (failure !== slow.code) fail(error); // else a dying disk would have two reasons in each batch
      later();
    });
    written();
  }
  function later(): void {
    cancel ??= deps.clock.after(failure === undefined ? batchPause : batchPause * RETRY_FACTOR, flush);
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
      const { bytesWritten } = await file.handle.write(bytes);
      if (bytesWritten < bytes.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' });
      await file.handle.datasync();
      isTorn = false;
      file.size += bytes.length;
      if (failure !== undefined) deps.onRecovery();
      failure = undefined;
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
