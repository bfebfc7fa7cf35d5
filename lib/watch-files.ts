/** Follows what files hold: reads them again and again, and reports changes and failures. */
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
