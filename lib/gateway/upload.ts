import type { IncomingMessage } from 'node:http';
import { releaseMemory } from '../crypto/release-memory.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { PreparedBody, RequestBodyStage } from '../pipeline/request-body.ts';
import type { Tally } from './tally.ts';

/** The client went away while it was sending; nobody is left to answer. */
export class ClientGone extends Error {}

export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** Bytes per second, averaged since the upload began. */
  readonly minUploadRate: number;
  /** ms before the rate is judged for the first time. */
  readonly uploadRateGrace: number;
}

/** A body that has arrived. */
export interface ReceivedBody extends PreparedBody {
  /** To be called when it has been sealed for the last time: frees its memory. */
  release(): void;
}

const RATE_INTERVAL_MS = 1_000;

/**
 * Feeds the request body to its stage while it arrives. Rejects as soon as something is wrong with it (body_too_large,
 * upload_too_slow, the stage's own codes) and then swallows what still comes, so that the error can be answered on
 * the same connection. Rejects with ClientGone where the client left, and with the reason where `signal` aborts.
 */
export function receiveBody(
  req: IncomingMessage,
  stage: RequestBodyStage,
  limits: UploadLimits,
  { tally, signal }: { readonly tally: Tally; readonly signal: AbortSignal },
): Promise<ReceivedBody> {
  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody>();
  const { maxBodyBytes, minUploadRate, uploadRateGrace } = limits;
  const startedAt = performance.now();
  const chunks: Uint8Array[] = []; // the parser makes a buffer for each
  let failed = false;

  const settle = (): void => {
    clearInterval(rateCheck);
    signal.removeEventListener('abort', interrupted);
  };
  const fail = (error: Error): void => {
    failed = true;
    settle();
    reject(error);
  };
  const interrupted = (): void => fail(signal.reason);
  signal.addEventListener('abort', interrupted);
  const rateCheck = setInterval(() => {
    const elapsed = performance.now() - startedAt;
    if (elapsed < uploadRateGrace || tally.bytes.fromClient >= (minUploadRate * elapsed) / 1000) return;
    const words = `the body arrives slower than ${minUploadRate} bytes/s`;
    fail(new PrivatemodeError('upload_too_slow', words));
  }, RATE_INTERVAL_MS);
  rateCheck.unref();

  const take = (chunk: Uint8Array): void => {
    tally.bytes.fromClient += chunk.length;
    if (failed) return;
    if (tally.bytes.fromClient > maxBodyBytes) fail(tooLarge(maxBodyBytes));
    else {
      try {
        chunks.push(chunk);
        stage.feed(chunk);
      } catch (thrown) {
        fail(asPrivatemodeError(thrown));
      }
    }
  };
  req.on('data', take);

  if (Number(req.headers['content-length'] ?? 0) > maxBodyBytes) fail(tooLarge(maxBodyBytes));
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  // Node undoes chunking and nothing else: what is compressed below it would be sealed as if it were the body.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    fail(new PrivatemodeError('unsupported_encoding', 'the request body is compressed'));
  }
  const gone = (): void => {
    if (!failed) fail(new ClientGone());
  };
  req.once('error', gone);
  req.once('close', gone);
  req.once('end', () => {
    // Or the prompt would stay in memory for as long as its answer takes.
    req.off('close', gone);
    req.off('error', gone);
    req.off('data', take);
    settle();
    if (failed) return;
    const release = (): void => chunks.splice(0).forEach(releaseMemory);
    new Promise<PreparedBody>((done) => done(stage.finish())).then(
      (prepared) => resolve({ ...prepared, release }),
      reject,
    );
  });
  return promise;
}

const tooLarge = (maxBodyBytes: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${maxBodyBytes} bytes`);
