/** Receives the body of a request within its limits. */
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { BodyReader, Pause } from '../pipeline/request-body.ts';
import { ClientGone, type Exchange } from './exchange.ts';
import { CollectedBody } from './memory.ts';

/**
 * Collects the request body of the exchange and, once it is complete, reads it with `read`. Rejects with
 * body_too_large, upload_too_slow, too_many_uploads, unsupported_encoding, the codes of `read`, ClientGone if
 * the client has left, and the reason for which the exchange ends early. `release` frees the memory of the body and
 * gives its room back; the room is given back at the latest when the response is closed.
 */
export async function receive<T extends object>(
  exchange: Exchange,
  read: BodyReader<T>,
): Promise<T & { release(): void }> {
  const { deps, req } = exchange;
  const { maxBodyBytes } = deps.settings;
  const { 'content-length': length, 'content-encoding': encoding = 'identity' } = req.headers;
  const announced = length === undefined ? maxBodyBytes : Number(length);
  if (announced > maxBodyBytes) throw tooLarge(maxBodyBytes);
  // Node undoes chunking and no other encoding. A compressed body would be sealed as if it were the body
  // itself.
  const transfer = req.headers['transfer-encoding'] ?? 'chunked';
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  const { requestRoom: room } = exchange;
  const body = new CollectedBody(room, announced);
  try {
    await collect(exchange, body);
    exchange.stats.uploadedAt = performance.now();
    const hold = (bytes: number): void => void room.grow(bytes);
    const result = read(body.bytes(), { hold, pause: turnsOf(exchange) });
    const facts = result instanceof Promise ? await result : result;
    return { ...facts, release: () => body.release() };
  } catch (thrown) {
    body.release();
    throw thrown;
  }
}

/** Resolves when all of the body has arrived. Rejects as `receive` does, and reads no further then. */
function collect(exchange: Exchange, body: CollectedBody): Promise<void> {
  const { deps, req, res, deadline, stats } = exchange;
  const { maxBodyBytes, minUploadRate } = deps.settings;
  return new Promise((resolve, reject) => {
    const settle = (failure?: Error): void => {
      req.off('data', take);
      req.off('end', settle);
      req.off('close', gone);
      exchange.interruptBy(undefined);
      deadline.rest();
      if (failure === undefined) resolve();
      else reject(failure);
    };
    const take = (chunk: Uint8Array): void => {
      exchange.received(chunk);
      try {
        if (stats.bytes.fromClient > maxBodyBytes) throw tooLarge(maxBodyBytes);
        body.push(chunk);
      } catch (thrown) {
        settle(asPrivatemodeError(thrown));
      }
    };
    const gone = (): void => settle(new ClientGone());
    // Not the average since the start: a client with a fast beginning could then trickle for an hour.
    let before = 0;
    const { uploadSpan } = deps.clock.times;
    const look = (): void => {
      const { fromClient } = stats.bytes;
      const isSlow = fromClient - before < (minUploadRate * uploadSpan) / 1000;
      before = fromClient;
      if (isSlow) settle(tooSlow(minUploadRate));
      else deadline.wait(uploadSpan, look);
    };
    deadline.wait(uploadSpan, look);
    // Answers `Expect: 100-continue`. The listener refuses any other expectation, and HTTP/1.0 has none.
    if (req.headers.expect !== undefined && req.httpVersionMinor === 1) res.writeContinue();
    req.on('data', take);
    req.once('end', settle);
    req.once('close', gone);
    if (req.destroyed && !req.readableEnded) gone();
    else exchange.interruptBy(settle);
  });
}

/**
 * Makes a function to call between the parts of long work. It returns undefined if the work may go on.
 * Otherwise it returns a promise that resolves when others have had their turn, and rejects if the exchange
 * is over.
 */
function turnsOf(exchange: Exchange): Pause {
  const { clock } = exchange.deps;
  let since = clock.monotonic();
  return () => {
    if (clock.monotonic() - since < clock.times.turn) return undefined;
    return new Promise(setImmediate).then(() => {
      exchange.signal.throwIfAborted();
      since = clock.monotonic();
    });
  };
}

const tooLarge = (most: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${most} bytes (--max-body-bytes)`);

const tooSlow = (least: number): PrivatemodeError =>
  new PrivatemodeError('upload_too_slow', `the body arrives slower than ${least} bytes/s`);
