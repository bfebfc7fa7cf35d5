import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';

/** Clients skip lines that begin with a colon; the blank line keeps it apart from the next event. */
const COMMENT = ': keepalive\n\n';
const LINE_FEED = 0x0a;

/**
 * Writes an SSE comment to `res` whenever `events` was silent for `interval` ms, for programs in between that close silent
 * connections. The head is out already. Only between whole events, and not while the client is behind with reading.
 */
export function keepStreamAlive(events: Readable, res: ServerResponse, interval: number): void {
  let wroteAt = performance.now();
  let whole = true; // what was written ends with a blank line

  function look(): void {
    const left = wroteAt + interval - performance.now();
    if (left <= 0) {
      if (whole && !res.writableNeedDrain) res.write(COMMENT);
      wroteAt = performance.now();
    }
    timer = setTimeout(look, left > 0 ? left : interval);
  }
  let timer = setTimeout(look, interval);
  events.on('data', (bytes: Uint8Array) => {
    wroteAt = performance.now();
    whole = bytes.at(-1) === LINE_FEED && bytes.at(-2) === LINE_FEED;
  });
  const stop = (): void => clearTimeout(timer);
  events.once('end', stop);
  events.once('close', stop);
}
