import type { IncomingMessage } from 'node:http';
import { releaseMemory } from '../crypto/release-memory.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { PreparedBody, RequestBodyStage } from '../pipeline/request-body.ts';
import type { Tally } from './request-stats.ts';
import type { UploadReservation } from './upload-budget.ts';
import { countPieces } from './upload-turns.ts';

/** The client went away while it was sending; nobody is left to answer. */
export class ClientGone extends Error {}

export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** Bytes per second, over the last `uploadRateGrace` ms. */
  readonly minUploadRate: number;
  /** ms before the rate is judged for the first time, and over which it is taken. */
  readonly uploadRateGrace: number;
}

/** A body that has arrived, as its stage prepared it. */
export type ReceivedBody<T = PreparedBody> = T & {
  /** To be called when it has been sealed for the last time: frees its memory. */
  release(): void;
};

export interface UploadScene {
  readonly tally: Tally;
  readonly signal: AbortSignal;
  /** Its memory, of which nothing is reserved yet. The caller releases it when the request is over. */
  readonly reservation: UploadReservation;
}

/**
 * Feeds the request body to its stage while it arrives. Rejects as soon as something is wrong with it (body_too_large,
 * upload_too_slow, too_many_uploads, the stage's own codes) and then swallows what still comes, so that the error can be
 * answered on the same connection. Rejects with ClientGone where the client left, and with the reason where `signal` aborts.
 */
export async function receiveBody<T extends object>(
  req: IncomingMessage,
  stage: RequestBodyStage<T>,
  limits: UploadLimits,
  scene: UploadScene,
): Promise<ReceivedBody<T>> {
  const length = Number(req.headers['content-length'] ?? 0);
  if (length > limits.maxBodyBytes) throw tooLarge(limits.maxBodyBytes);
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  // Node undoes chunking and nothing else: what is compressed below it would be sealed as if it were the body.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  if (length > 0) await scene.reservation.reserve(length, scene.signal); // nothing is read while it waits
  if (req.destroyed && !req.readableEnded) throw new ClientGone();
  return takeIn(req, stage, limits, scene);
}

/** Node gives a piece of one byte an object of hundreds: pieces shorter than this are joined with what comes at the same time. */
const SHORT_PIECE = 4 * 1024;
/** Most pieces that are joined, and most bytes. */
const JOINED_PIECES = 1024;
const JOINED_BYTES = 64 * 1024;

function takeIn<T extends object>(
  req: IncomingMessage,
  stage: RequestBodyStage<T>,
  { maxBodyBytes, minUploadRate, uploadRateGrace }: UploadLimits,
  { tally, signal, reservation }: UploadScene,
): Promise<ReceivedBody<T>> {
  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody<T>>();
  const announced = req.headers['content-length'] !== undefined;
  const counted = countPieces(req);
  const chunks: Uint8Array[] = []; // what is worth releasing: the parser makes a buffer for each piece
  let short: Uint8Array[] = [];
  let shortBytes = 0;
  let joining: NodeJS.Immediate | undefined;
  let failed = false;

  const settle = (): void => {
    clearInterval(rateCheck);
    clearImmediate(joining);
    short = [];
    signal.removeEventListener('abort', interrupted);
  };
  const fail = (error: Error): void => {
    if (failed) return;
    failed = true;
    settle();
    reservation.release();
    reject(error);
  };
  const interrupted = (): void => fail(signal.reason);
  const isTooSlow = watchRate(() => tally.bytes.fromClient, minUploadRate, uploadRateGrace);
  const rateCheck = setInterval(() => {
    if (!isTooSlow()) return;
    const words = `the body arrives slower than ${minUploadRate} bytes/s`;
    fail(new PrivatemodeError('upload_too_slow', words));
  }, RATE_INTERVAL_MS);
  rateCheck.unref();
  if (signal.aborted) interrupted();
  else signal.addEventListener('abort', interrupted);

  const feed = (chunk: Uint8Array): void => {
    chunks.push(chunk);
    stage.feed(chunk);
  };
  const feedShort = (): void => {
    const [first] = short;
    if (first === undefined) return;
    clearImmediate(joining);
    const joined = short.length === 1 ? first : Buffer.concat(short, shortBytes);
    short = [];
    shortBytes = 0;
    feed(joined);
  };
  const endOfTurn = (): void => {
    try {
      feedShort();
    } catch (thrown) {
      fail(asPrivatemodeError(thrown));
    }
  };
  const accept = (chunk: Uint8Array): void => {
    if (tally.bytes.fromClient > maxBodyBytes) throw tooLarge(maxBodyBytes);
    if (!announced) reservation.grow(chunk.length);
    if (chunk.length >= SHORT_PIECE) {
      feedShort();
      feed(chunk);
      return;
    }
    short.push(chunk);
    shortBytes += chunk.length;
    if (short.length === 1) joining = setImmediate(endOfTurn);
    else if (short.length === JOINED_PIECES || shortBytes >= JOINED_BYTES) feedShort();
  };
  const take = (chunk: Uint8Array): void => {
    counted();
    tally.bytes.fromClient += chunk.length;
    if (failed) return;
    try {
      accept(chunk);
    } catch (thrown) {
      fail(asPrivatemodeError(thrown));
    }
  };
  req.on('data', take);

  const gone = (): void => fail(new ClientGone());
  req.once('error', gone);
  req.once('close', gone);
  req.once('end', () => {
    // Or the prompt would stay in memory for as long as its answer takes.
    req.off('close', gone);
    req.off('error', gone);
    req.off('data', take);
    endOfTurn();
    settle();
    if (failed) return;
    const release = (): void => {
      for (const chunk of chunks.splice(0)) releaseMemory(chunk);
      reservation.release();
    };
    new Promise<T>((done) => done(stage.finish())).then(
      (prepared) => resolve({ ...prepared, release }),
      reject,
    );
  });
  return promise;
}

const RATE_INTERVAL_MS = 1_000;

/**
 * Whether fewer than `rate` bytes per second have come during the last `span` ms, to be asked at intervals; false during the first
 * `span`. Not the average since the start, by which a fast beginning would buy an hour of trickling.
 */
function watchRate(received: () => number, rate: number, span: number): () => boolean {
  const samples = [{ at: performance.now(), bytes: received() }];
  return () => {
    const now = performance.now();
    const bytes = received();
    samples.push({ at: now, bytes });
    while (samples.length > 1 && samples[1]!.at <= now - span) samples.shift();
    const { at, bytes: before } = samples[0]!;
    return now - at >= span && bytes - before < (rate * (now - at)) / 1000;
  };
}

const tooLarge = (maxBodyBytes: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${maxBodyBytes} bytes (--max-body-bytes)`);
