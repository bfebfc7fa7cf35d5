/** Follows what files hold: reads them again and again, and reports changes and failures. */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { asPrivatemodeError, type PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

/**
 * Follows what files hold: calls `read` every `interval` ms and on `reload()`. File watching would miss the
 * renames and turned links by which mounted secrets and certificates are replaced. `changed` gets what was
 * read if it differs from `known`. `failed` gets the reason why a read failed, once per reason; `known` then
 * stays. `recovered` is called, before `changed`, when a read succeeds after one that failed. None of them is
 * called after `close`, nor for a read that a later one has overtaken: it may have found the old content.
 */
export function watchFiles<T>(options: {
  readonly known: T;
  readonly read: () => T | Promise<T>;
  readonly changed: (next: T) => void;
  readonly failed: (error: PrivatemodeError) => void;
  readonly recovered?: (() => void) | undefined;
  readonly interval: number;
}) {
  const { read, changed, failed, recovered = () => {}, interval } = options;
  let { known } = options;
  let lastFailure: string | undefined;
  let closed = false;
  let begun = 0;
  /** The number of the newest read that is done. */
  let done = 0;

  function take(turn: number, next: T): void {
    if (turn < done) return;
    done = turn;
    if (lastFailure !== undefined && !closed) recovered();
    lastFailure = undefined;
    if (closed || isDeepStrictEqual(next, known)) return;
    known = next;
    changed(next);
  }

  function keep(turn: number, thrown: unknown): void {
    if (turn < done) return;
    done = turn;
    const error = asPrivatemodeError(thrown);
    if (!closed && error.message !== lastFailure) failed(error);
    lastFailure = error.message;
  }

  /** Begins a read. If `read` returns no promise, its result is taken at once. */
  function reload(): Promise<void> | undefined {
    const turn = ++begun;
    try {
      const next = read();
      if (next instanceof Promise)
        return next.then((read) => take(turn, read)).catch((thrown: unknown) => keep(turn, thrown));
      take(turn, next);
    } catch (thrown) {
      keep(turn, thrown);
    }
    return undefined;
  }

  const timer = setInterval(reload, interval).unref();
  return {
    reload,
    close(): void {
      closed = true;
      clearInterval(timer);
    },
  };
}

/** Bytes of the largest file that is followed. */
export const MOST_BYTES = 1024 * 1024;
/** Without O_NONBLOCK, an open would wait for the other end of a pipe. */
const HOW = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Throws for a pipe, which holds its content only once and keeps one thread after the other waiting, until no
 * thread is left to look up a host name, and for a huge file, which would fill the memory at each read.
 */
function demandSmall(stat: Stats): void {
  // To read a directory fails by itself, with a code that has its own words.
  if (!stat.isFile() && !stat.isDirectory())
    throw new Error('it is not a regular file; name one, because it is read again and again');
  if (stat.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
}

/**
 * The bytes of a file that is followed. Throws if it is no regular file or a huge one, and what the file
 * system throws.
 */
export async function readSmall(path: string): Promise<Buffer> {
  await using file = await open(path, HOW);
  demandSmall(await file.stat());
  return await file.readFile();
}

/** As `readSmall`, for the start of the program, and for reads that nothing may overtake. */
export function readSmallSync(path: string): Buffer {
  const file = openSync(path, HOW);
  try {
    demandSmall(fstatSync(file));
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}
