/** Reads a response of the service whole, within its limits. */
import type { IncomingMessage } from 'node:http';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/failures.ts';
import type { Exchange } from './exchange.ts';
import { CollectedBody } from './memory.ts';

/** Bytes of the longest response that nothing authenticates: an error, or a list of models. */
export const LONGEST_PLAIN = 1024 * 1024;

/**
 * Resolves with the body of the response when all of it has arrived. Rejects with response_too_large if it is
 * longer than `most` bytes, the codes of the memory of responses, the errors of a response that stalls or
 * breaks off, and the reason for which the exchange ends early. The response is destroyed then.
 */
export function readWhole(exchange: Exchange, response: IncomingMessage, most: number): Promise<Buffer> {
  const { deps, deadline } = exchange;
  return new Promise((resolve, reject) => {
    const settle = (failure?: Error): void => {
      deadline.rest();
      response.off('data', take);
      response.off('end', settle);
      response.off('close', broken);
      exchange.interruptBy(undefined);
      if (failure === undefined) {
        resolve(body.bytes());
        return;
      }
      response.destroy();
      reject(failure);
    };
    const take = (chunk: Uint8Array): void => {
      deadline.refresh();
      exchange.heard(chunk.length);
      try {
        if (body.length + chunk.length > most) throw tooLarge(most);
        body.push(chunk);
      } catch (thrown) {
        settle(asPrivatemodeError(thrown));
      }
    };
    const broken = (): void => settle(brokenOff());
    const announced = Number(response.headers['content-length'] ?? most);
    const body = new CollectedBody(exchange.responseRoom, Math.min(announced, most));
    deadline.wait(deps.settings.streamIdleTimeout, () => settle(stalled()));
    response.on('data', take);
    response.once('end', settle);
    response.once('close', broken);
    exchange.interruptBy(settle);
  });
}

const tooLarge = (most: number): PrivatemodeError =>
  new PrivatemodeError('response_too_large', `the response is longer than ${most} bytes`);
