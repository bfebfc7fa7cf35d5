/** What a fault leads to, as values: one cell of the matrix says everything that its test asserts. */
import { ERRORS, type ErrorCode } from '../../lib/errors.ts';

/** Counters as plain objects: names of lib/observe/counters.ts, a map as an object of its counts. */
type Counted = Readonly<Record<string, number | Readonly<Record<string, number>>>>;

export interface Cell {
  readonly status: number;
  /** `clean`: the framing says that this is all of it, and the connection may be used again. */
  readonly ended: 'clean' | 'broken';
  /**
   * `answer`: every word and the API style's end. `error`: an error object in place of the answer. `error
   * event`: the words so far, then an error in the API style's form and no end.
   */
  readonly shows: 'answer' | 'error' | 'error event';
  /** Our own error; undefined where there is none, or it is the service's and shown in its words. */
  readonly code: ErrorCode | undefined;
  /** Answer headers that must be as they are here. */
  readonly headers: Readonly<Record<string, string>>;
  /** Every line above level info: its code, or what else it tells. */
  readonly log: readonly string[];
  /** What the request adds to the counters, those of bytes and errors aside. */
  readonly counters: Counted;
  /** Inference requests that reach the service. */
  readonly upstream: number;
}

export const summary = ({ status, shows, code, ended }: Cell): string =>
  `${status} ${shows}${code === undefined ? '' : ` ${code}`}, ${ended}`;

type More = Partial<Pick<Cell, 'headers' | 'log' | 'counters' | 'upstream'>>;

/** The whole answer, as if nothing had happened; `more` is added to it. */
export const complete = ({ log = [], ...more }: More = {}): Cell => ({
  ...{ status: 200, ended: 'clean', shows: 'answer', code: undefined, headers: {}, upstream: 1 },
  ...{ counters: {}, ...more, log },
});

/** An error of ours in place of an answer; with `status`, the service's own status is kept. */
export const refused = (code: ErrorCode, more: More & { readonly status?: number } = {}): Cell => ({
  ...complete(more),
  ...{ status: more.status ?? ERRORS[code].status, shows: 'error', code },
  log: [...(more.log ?? []), code],
  counters: { ...unopened(code), ...more.counters },
});

/** An error of the service that says of itself that it is not encrypted: shown as it is. */
export const serviceError = (status: number, more: More = {}): Cell => ({
  ...complete({ headers: { 'privatemode-encrypted': 'false' }, log: [`status ${status}`], ...more }),
  ...{ status, shows: 'error' },
});

/**
 * A stream that had begun: an error event in the API style's form, then a connection that is visibly broken.
 */
export const brokenOff = (code: ErrorCode): Cell => ({
  ...complete({ log: [code] }),
  ...{ ended: 'broken', shows: 'error event', code },
  counters: code.startsWith('response_') ? unopened(code) : { truncatedStreams: 1 },
});

/** The model server's own error event, which authenticated: passed on, and the stream ends well after it. */
export const modelError = (): Cell => ({ ...complete(), shows: 'error event' });

/** Failures of opening are counted by their code; an answer that was cut off, or never came, is none. */
function unopened(code: ErrorCode): Counted {
  return code.startsWith('response_') ? { decryptFailures: { [code]: 1 } } : {};
}
