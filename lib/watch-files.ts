import { isDeepStrictEqual } from 'node:util';
import { asPrivatemodeError, type PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

/**
 * Follows what files hold: `read` is called every `interval` ms and on `reload()`. File watching would miss the renames and
 * turned links by which mounted secrets and certificates are replaced. `changed` gets what was read where it is not what is
 * `known`; `failed` the reason why that stays, once per reason. Neither is called after `close`.
 */
export function watchFiles<T>(options: {
  readonly known: T;
  readonly read: () => T | Promise<T>;
  readonly changed: (next: T) => void;
  readonly failed: (error: PrivatemodeError) => void;
  readonly interval: number;
}) {
  const { read, changed, failed, interval } = options;
  let { known } = options;
  let lastFailure: string | undefined;
  let closed = false;

  function take(next: T): void {
    lastFailure = undefined;
    if (closed || isDeepStrictEqual(next, known)) return;
    known = next;
    changed(next);
  }

  function keep(thrown: unknown): void {
    const error = asPrivatemodeError(thrown);
    if (!closed && error.message !== lastFailure) failed(error);
    lastFailure = error.message;
  }

  /** What `read` gives at once is taken at once. */
  function reload(): Promise<void> | undefined {
    try {
      const next = read();
      if (next instanceof Promise) return next.then(take).catch(keep);
      take(next);
    } catch (thrown) {
      keep(thrown);
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
