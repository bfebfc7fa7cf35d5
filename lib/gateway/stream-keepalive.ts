/**
 * Keeps a silent event stream open through programs between the proxy and the client that close silent
 * connections.
 */
import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';

/** Clients skip lines that begin with a colon. The blank line separates the comment from the next event. */
const COMMENT = ': keepalive\n\n';
const LINE_FEED = 0x0a;
const RETRY = 'retry: ';

/**
 * Writes an SSE comment to `res` whenever `events` was silent for `interval` ms. The head of `res` is out
 * already. A comment comes only between whole events, and not while the client is behind with reading.
 */
export function keepStreamAlive(events: Readable, res: ServerResponse, interval: number): void {
  let wroteAt = performance.now();
  let whole = true; // whether what was written ends between two events

  function look(): void {
    const left = wroteAt + interval - performance.now();
    if (left <= 0) {
      if (whole && !res.writableNeedDrain) res.write(COMMENT);
      wroteAt = performance.now();
    }
    timer = setTimeout(look, left > 0 ? left : interval);
  }
  let timer = setTimeout(look, interval);
  events.on('data', (bytes: Buffer) => {
    wroteAt = performance.now();
    whole = bytes.at(-1) === LINE_FEED && (bytes.at(-2) === LINE_FEED || endsWithRetry(bytes));
  });
  const stop = (): void => clearTimeout(timer);
  events.once('end', stop);
  events.once('close', stop);
}

/** Whether the last line is a `retry`. Such a line is passed on at once, before the event that it came in. */
function endsWithRetry(bytes: Buffer): boolean {
  const line = bytes.lastIndexOf(LINE_FEED, -2) + 1;
  return bytes.toString('latin1', line, line + RETRY.length) === RETRY;
}
