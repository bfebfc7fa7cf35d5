import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Match } from '../api/endpoints.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Logger } from '../observe/log.ts';
import type { UpstreamResponse } from '../pipeline/attempt.ts';
import type { Epoch } from '../session/session.ts';
import type { Asked } from './codecs.ts';
import type { Tally } from './request-stats.ts';
import type { World } from './world.ts';

/** One request of an application, from its head to the last byte of its answer. */
export interface Call {
  readonly world: World;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly match: Match;
  readonly requestId: string;
  readonly log: Logger;
  /** For whatever is answered: CORS headers, and the id that the client gave its request. */
  readonly extraHeaders: Readonly<Record<string, string>>;
  /** Fires when the client goes away, or a shutdown ends its patience. */
  readonly signal: AbortSignal;
  /** How far the answer has come, for the count of aborts. */
  phase: 'before_headers' | 'before_first_token' | 'mid_stream';
  /** Whether the stages are logged (level debug). */
  readonly debug: boolean;
  /** Set where we end the connection before its answer is complete, on purpose. */
  broken?: true;
  /** What the request asked for, known once its body is complete. The answer must be of that kind. */
  asked?: Asked;
  /** What is counted on the way, for the metrics. */
  readonly tally: Tally;
}

/** An answer of the upstream, with what is needed to read it. */
export interface Answered extends UpstreamResponse {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /** The body, where it was read already to decide about a retry. */
  readonly plainBody: Buffer | undefined;
}

/**
 * Notes what the request failed with for the line at its end. Mistakes of clients have that line only; everything else is an error, named
 * by code, never by the text of its cause.
 */
export function noteFailure(call: Call, error: PrivatemodeError): void {
  call.tally.error = error;
  if (error.blame === 'client') return;
  const { code, status, message: reason } = error;
  call.log.error(
    { code, status, reason, err: code === 'internal' ? error.cause : undefined },
    'Request failed',
  );
}

/**
 * What a request goes through, in this order; a retry comes back to `sealed`. `queued`: its head has been read. `received`: its body has
 * arrived. `epoch`: a verified secret is at hand. `sealed`: a fresh key stream is ready, with which the body is encrypted as it
 * leaves. `sent`: all of it has left. `head`: the head of the response has arrived. `first_event`: the first bytes of a stream
 * go to the client. `done`: all of the response was handed over.
 */
export type Stage = 'queued' | 'received' | 'epoch' | 'sealed' | 'sent' | 'head' | 'first_event' | 'done';

/** Logs that the request has reached that stage, at level debug only. */
export function logStage(call: Call, stage: Stage, fields?: Readonly<Record<string, number>>): void {
  if (!call.debug) return;
  const ms = Math.round(10 * (performance.now() - call.tally.startedAt)) / 10;
  call.log.debug({ stage, ms, ...fields }, 'Request stage');
}

/** The promise; with level debug, one that has logged the stage when it is fulfilled. */
export function staged<T>(call: Call, stage: Stage, promise: Promise<T>): Promise<T> {
  if (!call.debug) return promise;
  return promise.then((value) => {
    logStage(call, stage);
    return value;
  });
}
