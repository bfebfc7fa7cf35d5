/**
 * Keeps a silent event stream open through programs between the proxy and the client that close silent
 * connections.
 */
import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { Clock } from '../clock.ts';

/** Clients skip lines that begin with a colon. The blank line separates the comment from the next event. */
const COMMENT = ': keepalive\n\n';
const LINE_FEED = 0x0a;
const RETRY = 'retry: ';

interface Keepalive {
  /** ms */
  readonly interval: number;
  readonly clock: Clock;
}

/**
 * Writes an SSE comment to `res` whenever `events` was silent for `interval` ms. The head of `res` is out
 * already. A comment comes only between whole events, and not while the client is behind with reading.
 */
export function keepStreamAlive(events: Readable, res: ServerResponse, { interval, clock }: Keepalive): void {
  let wroteAt = clock.monotonic();
  let whole = true; // whether what was written ends between two events

  function look(): void {
    const left = wroteAt + interval - clock.monotonic();
    if (left <= 0) {
      if (whole && !res.writableNeedDrain) res.write(COMMENT);
      wroteAt = clock.monotonic();
    }
    cancel = clock.after(left > 0 ? left : interval, look);
  }
  let cancel = clock.after(interval, look);
  events.on('data', (bytes: Buffer) => {
    wroteAt = clock.monotonic();
    whole = bytes.at(-1) === LINE_FEED && (bytes.at(-2) === LINE_FEED || endsWithRetry(bytes));
  });
  const stop = (): void => cancel();
  events.once('end', stop);
  events.once('close', stop);
}

/** Whether the last line is a `retry`. Such a line is passed on at once, before the event that it came in. */
function endsWithRetry(bytes: Buffer): boolean {
  const line = bytes.lastIndexOf(LINE_FEED, -2) + 1;
  return bytes.toString('latin1', line, line + RETRY.length) === RETRY;
}
