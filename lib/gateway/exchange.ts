/** One request of an application and its response, whole: what the gateway knows of it, and what it is given to work with. */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import type { GpuPolicy } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import type { Asked } from '../pipeline/decrypter.ts';
import type { FallbackMode } from '../pipeline/rewrite-auth.ts';
import type { TokenUsage } from '../pipeline/token-usage.ts';
import type { Upstream } from '../pipeline/upstream.ts';
import type { Session } from '../session/session.ts';
import { RECEIPT_HEADERS } from '../transparency/receipt.ts';
import type { CorsPolicy } from './cors.ts';
import type { createDumper } from './request-dump.ts';
import type { UploadBudget } from './upload-budget.ts';

export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** Bytes per second, over the last `uploadRateGrace` ms. */
  readonly minUploadRate: number;
  /** ms before the rate is judged for the first time, and over which it is taken. */
  readonly uploadRateGrace: number;
}

/** What all exchanges share; made once. */
export interface GatewayDeps {
  readonly session: Session;
  readonly upstream: Upstream;
  readonly counters: Counters;
  readonly log: Logger;
  /** Once per request, when it is over. */
  readonly observe: (observation: RequestObservation) => void;
  /** The configured key as it is now (a key file may change). */
  readonly configuredKey: () => string | undefined;
  readonly apiKeyFallback: FallbackMode;
  /** The salt that all requests share; undefined: each request gets one of its own. */
  readonly sharedSalt: string | undefined;
  readonly gpuPolicy: GpuPolicy;
  readonly cors: () => CorsPolicy;
  readonly limits: UploadLimits;
  /** The memory that all uploads share. */
  readonly uploadBudget: UploadBudget;
  /** ms a request waits for the remote to be verified. */
  readonly epochTimeout: number;
  /** ms between two chunks of a response. */
  readonly streamIdleTimeout: number;
  /** ms of silence of a stream after which the application gets a comment; 0: none. */
  readonly streamKeepalive: number;
  /** With --dump-requests. */
  readonly dumper: ReturnType<typeof createDumper> | undefined;
  /** Aborted when the grace period of a shutdown is over; its reason is the error to tell. */
  readonly terminate: AbortSignal;
}

export interface Exchange {
  readonly deps: GatewayDeps;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly match: EndpointMatch;
  readonly requestId: string;
  readonly log: Logger;
  /** For whatever response: CORS headers, and the id that the application gave its request. */
  readonly extraHeaders: Readonly<Record<string, string>>;
  /** Fires when the application goes away, or a shutdown ends its patience. */
  readonly signal: AbortSignal;
  /** How far the response has come, for the count of aborts. */
  phase: 'before_headers' | 'before_first_token' | 'mid_stream';
  /** Whether the stages are logged (level debug). */
  readonly debug: boolean;
  /** Set where we end the connection before the response is complete, on purpose. */
  broken?: true;
  /** What the request asked for, known once its body is complete. The response must be of that kind. */
  asked?: Asked;
  readonly stats: RequestStats;
}

/** What is counted along one exchange; times by performance.now(). */
export interface RequestStats {
  readonly startedAt: number;
  uploadedAt: number | undefined;
  sentAt: number | undefined;
  firstChunkAt: number | undefined;
  chunks: number;
  model: string | undefined;
  /** What the service says it counted. */
  usage: TokenUsage | undefined;
  /** The model reported an error of its own inside a stream. */
  modelError: boolean;
  error: PrivatemodeError | undefined;
  readonly bytes: { fromClient: number; toRemote: number; fromRemote: number; toClient: number };
}

export function newRequestStats(): RequestStats {
  return {
    startedAt: performance.now(),
    uploadedAt: undefined,
    sentAt: undefined,
    firstChunkAt: undefined,
    chunks: 0,
    model: undefined,
    usage: undefined,
    modelError: false,
    error: undefined,
    bytes: { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 },
  };
}

/**
 * Notes what the request failed with for the line at its end. Mistakes of applications have that line only; everything else is an
 * error, named by code, never by the text of its cause.
 */
export function noteFailure({ stats, log }: Exchange, error: PrivatemodeError): void {
  stats.error = error;
  if (error.blame === 'client') return;
  const { code, status, message, remedy } = error;
  const reason = error.blame === 'network' ? `${message}. ${remedy}` : message; // the operator's to mend
  log.error({ code, status, reason, err: code === 'internal' ? error.cause : undefined }, 'Request failed');
}

/**
 * What a request goes through, in this order; a retry comes back to `sealed`. `queued`: its head has been read. `received`: its body has
 * arrived. `epoch`: a verified secret is at hand. `sealed`: a fresh key stream is ready, with which the body is encrypted as it
 * leaves. `sent`: all of it has left. `head`: the head of the response has arrived. `first_event`: the first bytes of a stream
 * go to the client. `done`: all of the response was handed over.
 */
export type Stage = 'queued' | 'received' | 'epoch' | 'sealed' | 'sent' | 'head' | 'first_event' | 'done';

/** Logs that the request has reached that stage, at level debug only. */
export function logStage(
  { debug, log, stats }: Exchange,
  stage: Stage,
  fields?: Readonly<Record<string, number>>,
): void {
  if (!debug) return;
  const ms = Math.round(10 * (performance.now() - stats.startedAt)) / 10;
  log.debug({ stage, ms, ...fields }, 'Request stage');
}

/** The promise; with level debug, one that has logged the stage when it is fulfilled. */
export function staged<T>(exchange: Exchange, stage: Stage, promise: Promise<T>): Promise<T> {
  if (!exchange.debug) return promise;
  return promise.then((value) => {
    logStage(exchange, stage);
    return value;
  });
}

/** `proxy_<UUIDv7>` (RFC 9562 5.7; docs/protocol/inference.md 2): ids sort by the time they were given, in ms since 1970. */
export function newRequestId(now: number = Date.now()): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `proxy_${[hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')}`;
}

/** Nothing that could end a header or a line of a log, or hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/** The id that the application gave its request in `x-request-id`, where it is one. Sent more than once, it is none. */
export function clientIdOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && CLIENT_ID.test(header) ? header : undefined;
}

/**
 * Response headers that tell an application its own id where it looks for it, and ours beside it. Empty where it gave none. The id
 * never goes to the remote: it may name a person or a session.
 */
export function echoOf(clientId: string | undefined, requestId: string): Record<string, string> {
  if (clientId === undefined) return {};
  return { 'x-request-id': clientId, [RECEIPT_HEADERS.requestId]: requestId };
}
