import type { IncomingMessage } from 'node:http';
import { pipeline, Writable } from 'node:stream';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { PreparedBody, RequestBodyStage } from '../pipeline/request-body.ts';
import type { Tally } from './tally.ts';

/** The client went away while it was sending; nobody is left to answer. */
export class ClientGone extends Error {}

export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** Bytes per second, averaged since the upload began; judged after a first grace of ten seconds. */
  readonly minUploadRate: number;
}

const RATE_GRACE_MS = 10_000;
const RATE_INTERVAL_MS = 1_000;

/**
 * Feeds the request body to its stage while it arrives. Rejects as soon as something is wrong with it (body_too_large,
 * upload_too_slow, the stage's own codes) and then swallows what still comes, so that the error can be answered on
 * the same connection. Rejects with ClientGone where the client left.
 */
export function receiveBody(
  req: IncomingMessage,
  stage: RequestBodyStage,
  limits: UploadLimits,
  tally: Tally,
): Promise<PreparedBody> {
  const { promise, resolve, reject } = Promise.withResolvers<PreparedBody>();
  const startedAt = performance.now();
  let failed = false;

  const fail = (error: Error): void => {
    failed = true;
    clearInterval(rateCheck);
    reject(error);
  };
  const rateCheck = setInterval(() => {
    const elapsed = performance.now() - startedAt;
    if (elapsed > RATE_GRACE_MS && tally.bytes.fromClient < (limits.minUploadRate * elapsed) / 1000) {
      fail(
        new PrivatemodeError(
          'upload_too_slow',
          `the body arrives slower than ${limits.minUploadRate} bytes/s`,
        ),
      );
    }
  }, RATE_INTERVAL_MS);
  rateCheck.unref();

  const sink = new Writable({
    write(chunk: Uint8Array, _encoding, callback) {
      tally.bytes.fromClient += chunk.length;
      if (!failed) {
        if (tally.bytes.fromClient > limits.maxBodyBytes) fail(tooLarge(limits));
        else {
          try {
            stage.feed(chunk);
          } catch (thrown) {
            fail(asPrivatemodeError(thrown));
          }
        }
      }
      callback();
    },
  });

  if (Number(req.headers['content-length'] ?? 0) > limits.maxBodyBytes) fail(tooLarge(limits));
  const encoding = req.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    fail(new PrivatemodeError('unsupported_encoding', 'the request body is compressed'));
  }
  pipeline(req, sink, (error) => {
    clearInterval(rateCheck);
    if (failed) return;
    if (error) fail(new ClientGone());
    else
      Promise.resolve()
        .then(() => stage.finish())
        .then(resolve, reject);
  });
  return promise;
}

const tooLarge = (limits: UploadLimits): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${limits.maxBodyBytes} bytes`);
