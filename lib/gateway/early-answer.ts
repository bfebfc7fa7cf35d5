import type { IncomingMessage, ServerResponse } from 'node:http';

const DISCARD_BYTES = 1024 * 1024;
/** Pieces of one byte cost as much as large ones. */
const DISCARD_PIECES = 10_000;
const DISCARD_MS = 1_000;

/** Whether there is a body that has not arrived completely; a request without one is not complete at once either. */
export function isArriving(req: IncomingMessage): boolean {
  if (req.complete || req.destroyed) return false;
  const { 'content-length': length, 'transfer-encoding': encoding } = req.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

/**
 * Ends a complete answer that was written while the body is still arriving. The answer must survive the connection it
 * came on: closing with unread bytes turns the close into a reset, which takes the answer away under the client's eyes.
 * So the rest of the body is read and thrown away, at most 1 MiB, 10 000 pieces or one second of it, before the response ends and,
 * being marked `Connection: close`, takes the connection with it (trap 13).
 */
export function endAfterUpload(req: IncomingMessage, res: ServerResponse): void {
  if (!isArriving(req)) {
    res.end();
    return;
  }
  let discarded = 0;
  let pieces = 0;
  const end = (): void => {
    clearTimeout(timer);
    req.off('data', discard);
    req.off('end', end);
    res.end();
  };
  const discard = (chunk: Uint8Array): void => {
    discarded += chunk.length;
    pieces += 1;
    if (discarded > DISCARD_BYTES || pieces > DISCARD_PIECES) end();
  };
  const timer = setTimeout(end, DISCARD_MS);
  req.on('data', discard);
  req.once('end', end);
  res.once('close', () => clearTimeout(timer));
  req.resume();
}
