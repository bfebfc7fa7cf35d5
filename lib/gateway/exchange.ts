/** One request of an application and its response, whole: what the gateway knows of it and is given to work with. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ErrorFormat } from '../api/error-format.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import type { ModelAliases } from '../api/model-aliases.ts';
import { newRequestId } from '../api/request-id.ts';
import type { Client } from '../clients/authenticate.ts';
import type { Clients } from '../clients/clients.ts';
import type { GpuPolicy } from '../envelope/protection.ts';
import { AUDIT_HEADERS } from '../exchange/headers.ts';
import type { Permit } from '../limits/limits.ts';
import type { RequestGate } from '../limits/request-gate.ts';
import type { Upstream } from '../network/upstream.ts';
import { type Counters, RequestStats } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import { type Decrypter, NOTHING_ASKED } from '../pipeline/decrypter.ts';
import type { FallbackMode } from '../pipeline/rewrite-auth.ts';
import type { Translator } from '../responses/translator.ts';
import type { Epoch, Session } from '../session/session.ts';
import type { ReceiptLog } from '../transparency/receipt-log.ts';
import type { CorsPolicy } from './cors.ts';
import type { BodyHash } from './digested-response.ts';
import type { MemoryBudget } from './memory-budget.ts';
import type { createDumper } from './request-dump.ts';
import type { ReaderWatchOptions } from './slow-readers.ts';

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
  /** Its source, for the log. */
  readonly keyOrigin?: (() => string | undefined) | undefined;
  readonly apiKeyFallback: FallbackMode;
  /** The salt that all requests share; undefined: each request gets one of its own. */
  readonly sharedSalt: string | undefined;
  /** Called with the log of each request that spoils the shared cache (hasBillingLine). */
  readonly spoilsCache?: ((log: Logger) => void) | undefined;
  /** Who may use the gateway; undefined without --clients: everybody who reaches it. */
  readonly clients?: Pick<Clients, 'authenticate'> | undefined;
  /** Where requests get their permits before anything of their body is read; undefined without --clients and --max-in-flight: they need none. */
  readonly gate?: RequestGate | undefined;
  readonly gpuPolicy: GpuPolicy;
  readonly cors: () => CorsPolicy;
  /** The text of GET /verification as it is now; undefined: there is no such path (--expose-verification). */
  readonly verification?: (() => Promise<string>) | undefined;
  /** What translates an exchange of the Responses API; undefined without --responses-api. */
  readonly createTranslator?: ((requestId: string) => Translator) | undefined;
  /** Other names for models; undefined without --model-alias. */
  readonly aliases?: ModelAliases | undefined;
  readonly limits: {
    readonly maxBodyBytes: number;
    /** Bytes per second, over the last `uploadRateGrace` ms; judged for the first time after these. */
    readonly minUploadRate: number;
    readonly uploadRateGrace: number;
  };
  readonly uploadBudget: MemoryBudget;
  /** For responses that are kept whole until they have authenticated; undefined: without a bound for all together. */
  readonly responseBudget?: MemoryBudget | undefined;
  /** ms a request waits for the remote to be verified. */
  readonly epochTimeout: number;
  /** ms between two chunks of a response. */
  readonly streamIdleTimeout: number;
  /** How long a client may take nothing of its response. */
  readonly readers?: ReaderWatchOptions | undefined;
  /** ms of silence of a stream after which the application gets a comment; 0: none. */
  readonly streamKeepalive: number;
  /** Undefined without --receipts. The responses are of the class DigestedResponse with it. */
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add'> | undefined;
  /** Undefined without --dump-requests. The responses are of the class DumpedResponse with it. */
  readonly dumper: ReturnType<typeof createDumper> | undefined;
  /** Aborted when the grace period of a shutdown is over; its reason is the error to tell. */
  readonly terminate: AbortSignal;
}

export type Exchange = ReturnType<typeof newExchange>;

/** An exchange with the service. */
export interface ForwardedExchange extends Exchange {
  match: EndpointMatch;
}

/** Nothing that could end a header or a line of a log, or hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/**
 * Begins an exchange, of which nothing is known yet but its ids: its own, and the one that the application gave it in `x-request-id`,
 * if any. Responses show the latter where the application looks for it, with ours beside it; it never goes to the remote, because it may
 * name a person or a session. An `x-request-id` that was sent more than once counts as none.
 */
export function newExchange(deps: GatewayDeps, req: IncomingMessage, res: ServerResponse) {
  const requestId = newRequestId('proxy');
  const sent = req.headers['x-request-id'];
  const clientRequestId = typeof sent === 'string' && CLIENT_ID.test(sent) ? sent : undefined;
  const log = deps.log.child({ requestId, clientRequestId });
  const stats = new RequestStats();
  return {
    deps,
    req,
    res,
    requestId,
    log,
    /** Logs that the request has reached that stage; undefined: they are not logged (only at level debug). */
    stage: log.isLevelEnabled('debug') ? stageLog(log, stats) : undefined,
    /** Aborted when the application goes away, or a shutdown ends its patience. */
    control: new AbortController(),
    stats,
    /** Who asks, with --clients; set by setClient. */
    client: undefined as Client | undefined,
    /** For a body without a salt; undefined: it gets one of its own. */
    sharedSalt: deps.sharedSalt,
    /** What replaces the salt that a body brings, if anything. */
    mixSalt: undefined as Client['mixSalt'],
    /** For whatever response: CORS headers, the id that the application gave its request, what names its receipt; see addHeaders. */
    headers: (clientRequestId
      ? { 'x-request-id': clientRequestId, [AUDIT_HEADERS.requestId]: requestId }
      : {}) as Readonly<Record<string, string>>,
    /** How the application understands errors. */
    format: 'plain' as ErrorFormat,
    /** Of the gate, where there is one. */
    permit: undefined as Permit | undefined,
    /** The response is complete, or its connection gone: whatever comes now comes too late. */
    over: false,
    /** What decrypts the response, since what is known of its usage counts also where it is cut off. */
    decrypter: undefined as Decrypter | undefined,
    /** Where it is forwarded; undefined: answered here. */
    match: undefined as EndpointMatch | undefined,
    /** Where it is translated. */
    translator: undefined as Translator | undefined,
    /** The name, as it was configured, of the alias by which its model was found, for the log. */
    alias: undefined as string | undefined,
    /** The model that is asked about, where an alias covers it: the service is asked for its list, and the entry made of that. */
    aboutModel: undefined as string | undefined,
    /** Kinds of hosted tools that a translation left out, for the log. */
    toolsLeftOut: undefined as string | undefined,
    /** The notes for its receipt, if it gets one. `epoch`: of the last attempt, if its body was encrypted. */
    receipt: undefined as
      | { endpoint: string | null; request: BodyHash; epoch: Epoch | undefined }
      | undefined,
    /** How far the response has come, for the count of aborts. */
    phase: 'before_headers' as 'before_headers' | 'before_first_token' | 'mid_stream',
    /** Set where we end the connection before the response is complete, on purpose. */
    broken: false,
    /** The kind of response that the request asked for, known once its body is complete. */
    asked: NOTHING_ASKED,
  };
}

/** Adds to the headers of whatever response there will be, before those that are there or behind them. */
export function addHeaders(
  exchange: Exchange,
  { first, last }: { readonly first?: Exchange['headers']; readonly last?: Exchange['headers'] },
): void {
  exchange.headers = { ...first, ...exchange.headers, ...last };
}

/** Notes who asks: for its key and salts, and for its lines in the log. */
export function setClient(exchange: Exchange, client: Client): void {
  exchange.client = client;
  exchange.sharedSalt = client.sharedSalt;
  exchange.mixSalt = client.mixSalt;
  exchange.log = exchange.log.child({ client: client.name });
  if (exchange.stage !== undefined) exchange.stage = stageLog(exchange.log, exchange.stats);
}

/**
 * The stages of a request, in this order; a retry returns to `sealed`. `queued`: its head has been read. `received`: its body has
 * arrived. `epoch`: a verified secret is ready. `sealed`: a fresh key stream is ready, with which the body is encrypted as it
 * leaves. `sent`: all of it has left. `head`: the head of the response has arrived. `first_event`: the first bytes of a stream
 * go to the client. `done`: all of the response was handed over.
 */
export type Stage = 'queued' | 'received' | 'epoch' | 'sealed' | 'sent' | 'head' | 'first_event' | 'done';

const stageLog =
  (log: Logger, { startedAt }: RequestStats) =>
  (stage: Stage, fields?: Readonly<Record<string, number>>): void => {
    const ms = Math.round(10 * (performance.now() - startedAt)) / 10;
    log.debug({ stage, ms, ...fields }, 'Request stage');
  };
