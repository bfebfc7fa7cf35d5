import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestCipher } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Logger } from '../observe/log.ts';
import type { Epoch } from '../session/session.ts';
import type { UpstreamResponse } from './attempt.ts';
import type { Asked } from './codecs.ts';
import type { Match } from './endpoints.ts';
import type { Tally } from './tally.ts';
import type { World } from './world.ts';

/** One request of an application, from its head to the last byte of its answer. */
export interface Call {
  readonly world: World;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly match: Match;
  readonly requestId: string;
  readonly log: Logger;
  /** CORS headers for whatever is answered. */
  readonly corsHeaders: Readonly<Record<string, string>>;
  /** Fires when the client goes away, or a shutdown ends its patience. */
  readonly signal: AbortSignal;
  /** How far the answer has come, for the count of aborts. */
  phase: 'before_headers' | 'before_first_token' | 'mid_stream';
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

/** Client mistakes are information, everything else is an error; the cause is named by code, never by its text. */
export function logFailure(call: Call, error: PrivatemodeError): void {
  call.tally.error = error.code;
  const fields = { code: error.code, status: error.status, reason: error.message };
  if (error.blame === 'client') call.log.info(fields, 'Request refused');
  else
    call.log.error({ ...fields, err: error.code === 'internal' ? error.cause : undefined }, 'Request failed');
}
