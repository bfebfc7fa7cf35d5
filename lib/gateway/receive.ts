/** Collects the body of a request, or of a response that is read whole, within limits. */
import type { IncomingMessage } from 'node:http';
import { PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/transport-errors.ts';
import { Crumbs } from '../pipeline/crumbs.ts';
import type { BodyReader } from '../pipeline/request-body.ts';
import { ClientGone, type Exchange } from './exchange.ts';
import { CollectedBody } from './memory.ts';

/** Bytes per second; a slower upload would hold its memory and its permit for hours. */
const SLOWEST_UPLOAD = 1024;

/** The most bytes of a response that nothing authenticates. Errors and lists of models are such responses. */
export const LONGEST_PLAIN = 1024 * 1024;

/**
 * Collects the request body and reads it with `read`. Rejects with body_too_large, upload_too_slow,
 * too_many_uploads, unsupported_encoding, the codes of `read`, ClientGone, and the reason for which the
 * exchange ends early. `release` frees the memory of the body, and its share of the budget.
 */
export async function receive<T extends object>(exchange: Exchange, read: BodyReader<T>) {
  const { deps, req, res, stats, deadline, requestRoom } = exchange;
  const { maxBodyBytes } = deps.settings;
  if (Number(req.headers['content-length'] ?? 0) > maxBodyBytes) throw tooLarge(true, maxBodyBytes);
  // Node decodes only the chunked encoding. A compressed body would be sealed in its compressed form.
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  // Measures each span: with an average, a client could begin fast, and then trickle for an hour.
  let before = 0;
  const { uploadSpan } = deps.clock.times;
  const look = (): void => {
    const { fromClient } = stats.bytes;
    const isSlow = fromClient - before < (SLOWEST_UPLOAD * uploadSpan) / 1000;
    before = fromClient;
    const message = `the body arrives slower than ${SLOWEST_UPLOAD} bytes/s`;
    if (isSlow) exchange.interrupt(new PrivatemodeError('upload_too_slow', message));
    else deadline.wait(uploadSpan, look);
  };
  deadline.wait(uploadSpan, look);
  // Answers `Expect: 100-continue`. The listener refuses any other expectation, and HTTP/1.0 has none.
  if (req.headers.expect !== undefined && req.httpVersionMinor === 1) res.writeContinue();
  const body = await collect(exchange, req, maxBodyBytes);
  stats.uploadedAt = performance.now();
  try {
    const hold = (bytes: number): void => void requestRoom.grow(bytes);
    const result = read(body.bytes(), { hold, pause: turnsOf(exchange) });
    const facts = result instanceof Promise ? await result : result;
    return { ...facts, release: () => body.release() };
  } catch (thrown) {
    body.release();
    throw thrown;
  }
}

/**
 * Collects the body of the response. Rejects, and destroys the response, with response_too_large above `most`
 * bytes, too_many_responses, stalled(), brokenOff() and the reason for which the exchange ends early.
 */
export function readWhole(exchange: Exchange, response: IncomingMessage, most: number) {
  exchange.deadline.wait(exchange.deps.settings.streamIdleTimeout, () => exchange.interrupt(stalled()));
  return collect(exchange, response, most);
}

function collect(exchange: Exchange, source: IncomingMessage, most: number): Promise<CollectedBody> {
  const { deadline, stats, bodies, requestRoom, responseRoom } = exchange;
  const isRequest = source === exchange.req;
  const announced = Number(source.headers['content-length'] ?? most);
  const body = new CollectedBody(isRequest ? requestRoom : responseRoom, Math.min(announced, most));
  return new Promise((resolve, reject) => {
    const settle = (failure?: Error): void => {
      source.off('data', take);
      source.off('end', settle);
      source.off('close', gone);
      exchange.interruptBy(undefined);
      deadline.rest();
      if (failure === undefined) return void resolve(body);
      body.release();
      if (!isRequest) source.destroy();
      reject(failure);
    };
    const crumbs = new Crumbs(isRequest ? 'upload_too_slow' : undefined);
    const take = (chunk: Uint8Array): void => {
      stats.bytes[isRequest ? 'fromClient' : 'fromRemote'] += chunk.length;
      if (isRequest) bodies?.request.update(chunk);
      else deadline.refresh();
      try {
        crumbs.count(chunk);
        if (body.length + chunk.length > most) throw tooLarge(isRequest, most);
        body.push(chunk);
      } catch (thrown) {
        settle(thrown as Error);
      }
    };
    const gone = (): void => settle(isRequest ? new ClientGone() : brokenOff());
    source.on('data', take);
    source.once('end', settle);
    source.once('close', gone);
    if (source.destroyed && !source.readableEnded) gone();
    else exchange.interruptBy(settle);
  });
}

const tooLarge = (isRequest: boolean, most: number): PrivatemodeError =>
  isRequest
    ? new PrivatemodeError('body_too_large', `the body is larger than ${most} bytes (--max-body-bytes)`)
    : new PrivatemodeError('response_too_large', `the response is longer than ${most} bytes`);

/** Makes a pause for long work. The pause gives other exchanges a turn, and rejects if the exchange ends. */
function turnsOf(exchange: Exchange) {
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
