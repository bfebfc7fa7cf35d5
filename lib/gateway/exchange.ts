/** One exchange: a request of an application with its whole response. */
import type { IncomingMessage } from 'node:http';
import type { Client } from '../access/authenticate.ts';
import type { Offered } from '../api/endpoints.ts';
import { type ErrorFormat, newRequestId } from '../api/error-response.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { Deadline } from '../clock.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { AUDIT_HEADERS, leftOutHeader } from '../http-rules/headers.ts';
import { ForeignError } from '../http-rules/response-kind.ts';
import type { Permit } from '../limits/limits.ts';
import { UpstreamFailure } from '../network/failures.ts';
import { count, RequestStats, UNDECRYPTABLE } from '../observe/counters.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { Epoch } from '../session/session.ts';
import { type Admission, admit } from './admission.ts';
import { type AppResponse, BodyHash } from './app-response.ts';
import { corsHeaders } from './cors.ts';
import type { GatewayDeps } from './deps.ts';
import { Room } from './memory.ts';

/** The application has left, so nobody is there to respond to. */
export class ClientGone extends Error {}

/** How far the response has come. */
export type Phase = 'before_headers' | 'before_first_token' | 'mid_stream';

/** What admission decided; `fault`: it threw, so the program has a fault. */
type Decided = Admission | { readonly kind: 'fault'; readonly thrown: unknown };

/** What a response to an attempt is read with, and what it says of the secret and the key. */
export interface SentAttempt {
  readonly epoch: Epoch;
  /** Undefined: nothing is encrypted. */
  readonly cipher: RequestCipher | undefined;
  /**
   * Whether the request went out under a suspended secret. An authentic response then shows that the service
   * knows the secret.
   */
  readonly isTrial: boolean;
  /** Whether the request went out with a key at all. */
  readonly hasKey: boolean;
  /** The key of the operator with which it went out; undefined: a key of the application, or none. */
  readonly ownKey: string | undefined;
}

/** An exchange whose request is forwarded to the service. */
export type ForwardedExchange = Exchange & { readonly match: EndpointMatch };

/** An id that can neither end a header or a line of the log, nor hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/**
 * Everything about one exchange that more than one step needs. The steps write the public members that are
 * not `readonly`, each when its time has come; the end of the exchange (end-of-request.ts) reads them all.
 */
export class Exchange {
  readonly deps: GatewayDeps;
  readonly req: IncomingMessage;
  readonly res: AppResponse;
  readonly decision: Decided;
  /** The endpoint that the request is forwarded to; undefined: the proxy responds by itself. */
  readonly match: EndpointMatch | undefined;
  /** The client that was identified; undefined without --clients. */
  readonly client: Client | undefined;
  /** The error format that the application understands. */
  readonly format: ErrorFormat;
  readonly requestId = newRequestId('proxy');
  /** In each line of the log that is about this request. */
  readonly ids: Readonly<Record<'requestId' | 'clientRequestId' | 'client', string | undefined>>;
  /** Go into each response: for CORS, the application's own id, the receipt, the tools that were left out. */
  readonly headers: Record<string, string>;

  readonly stats = new RequestStats();
  phase: Phase = 'before_headers';
  /** Whether we break the connection on purpose, before the response is complete. */
  broken = false;
  /** Whether the response is complete, or its connection gone. */
  closed = false;
  /** Whether the gateway has done its part, and nothing more is written. */
  concluded = false;
  /** Waits for the client, then for the service: one wait at a time. */
  readonly deadline: Deadline;
  /** The permit of the gate, which the end of the exchange gives back. */
  permit: Permit | undefined;
  /** Memory for the body of the request, and for a response that is kept whole or translated. */
  readonly requestRoom: Room;
  readonly responseRoom: Room;
  /** The last attempt to send the request. */
  attempt: SentAttempt | undefined;
  /** The alias that gave the request its model: its name as it was configured. */
  alias: string | undefined;
  /** Kinds of hosted tools that a translation left out. */
  toolsLeftOut: string | undefined;
  /** Decrypts the response. Its events and its usage count even if the response is cut off. */
  decrypter: Decrypter | undefined;
  /** Undefined: the exchange gets no receipt. */
  readonly receipt: ReceiptNotes | undefined;

  /** Why the exchange ended early; undefined: it has not. */
  #endedBy: Error | undefined;
  /** Stops the step that runs. */
  #stop: ((reason: Error) => void) | undefined;
  #ending: AbortController | undefined;

  /**
   * Decides whether the request is admitted. The request has two ids: ours and, if the application gave it
   * one in `x-request-id`, that one. Responses show the application's id where the application looks for it,
   * with ours beside it. It never goes to the service, because it may name a person or a session. An
   * `x-request-id` that was sent more than once counts as none. `offered`: the optional paths that are
   * served. `onClose`: called once the response is complete, or its connection gone. Never throws.
   */
  constructor(
    deps: GatewayDeps,
    req: IncomingMessage,
    res: AppResponse,
    offered: readonly Offered[],
    onClose: (exchange: Exchange) => void,
  ) {
    this.deps = deps;
    this.req = req;
    this.res = res;
    const { decision, client, cors } = decide(deps, req, offered);
    this.decision = decision;
    this.client = client;
    this.match = decision.kind === 'endpoint' ? decision : undefined;
    this.format = decision.kind === 'fault' ? 'plain' : decision.format;
    const sent = req.headers['x-request-id'];
    const clientRequestId = typeof sent === 'string' && CLIENT_ID.test(sent) ? sent : undefined;
    this.ids = { requestId: this.requestId, clientRequestId, client: client?.name };
    this.headers = { ...cors };
    if (clientRequestId !== undefined) {
      this.headers['x-request-id'] = clientRequestId;
      this.headers[AUDIT_HEADERS.requestId] = this.requestId;
    }
    const endpoint = deps.receipts && endpointOfReceipt(decision);
    if (endpoint !== undefined) this.receipt = notesFor(endpoint, res);
    if (endpoint) this.headers[AUDIT_HEADERS.receipt] = `${deps.receipts?.instance}/${this.requestId}`;
    this.deadline = new Deadline(deps.clock);
    this.requestRoom = new Room(deps.memory.uploads);
    this.responseRoom = new Room(deps.memory.responses);
    res.once('close', () => {
      this.closed = true;
      this.deadline.cancel();
      this.requestRoom.release();
      this.responseRoom.release();
      if (!res.writableFinished) this.abort(new ClientGone());
      onClose(this);
    });
  }

  /** Aborted when the application has left, or when the grace period of a shutdown is over. */
  get signal(): AbortSignal {
    this.#ending ??= new AbortController();
    if (this.#endedBy !== undefined) this.#ending.abort(this.#endedBy);
    return this.#ending.signal;
  }

  /**
   * Has `stop` called when the exchange ends early, at once if it has, in place of what was given before: one
   * step runs at a time. `signal` says the same to those who need one; a listener on it costs a short request
   * more.
   */
  interruptBy(stop: ((reason: Error) => void) | undefined): void {
    this.#stop = stop;
    if (this.#endedBy !== undefined) stop?.(this.#endedBy);
  }

  /** Ends everything that still runs for the exchange. `reason`: the error that it ends with. */
  abort(reason: Error): void {
    this.#endedBy ??= reason; // the application may leave after a shutdown has begun
    this.#stop?.(reason);
    this.#ending?.abort(reason);
  }

  log(level: 'debug' | 'info' | 'warn' | 'error', fields: object, message: string): void {
    this.deps.log[level]({ ...this.ids, ...fields }, message);
  }

  /** Counts a chunk of the body that came from the application. */
  received(chunk: Uint8Array): void {
    this.stats.bytes.fromClient += chunk.length;
    this.receipt?.request.update(chunk);
  }

  /** Counts bytes that came from the service. */
  heard(bytes: number): void {
    this.stats.bytes.fromRemote += bytes;
  }

  /** Counts decrypted bytes of the response, which go to the application. */
  decrypted(bytes: number): void {
    this.stats.firstChunkAt ??= performance.now();
    this.stats.bytes.toClient += bytes;
  }

  /** Counts, by its status, a response that was handed over whole. */
  done(status: number): void {
    count(this.deps.metrics.counters.responses, status);
  }

  /**
   * Notes the error of the request, which its log line at the end names. An error that is the client's fault
   * has that line only. Every other error is logged now. It is named by its code, never by the text of its
   * cause. `status`: what the client gets; default: the status of the error.
   */
  failed(error: PrivatemodeError, status = error.status): void {
    this.stats.error = error;
    if (isUndecryptable(error)) count(this.deps.metrics.counters.decryptFailures, error.code);
    if (error.blame === 'client') return;
    const { code, message, remedy } = error;
    const err = code === 'internal' ? error.cause : undefined;
    this.log('error', { code, status, reason: message, remedy, err }, 'Request failed');
  }

  /** Notes and logs a fault of the program that shows in this request. */
  faulty(thrown: unknown): void {
    this.stats.error = asPrivatemodeError(thrown);
    this.log('error', { err: thrown }, 'A request could not be treated');
  }

  /** Notes, for the response and the log, which kinds of hosted tools a translation left out. */
  leavesOut(kinds: string | undefined): void {
    this.toolsLeftOut = kinds;
    Object.assign(this.headers, leftOutHeader(kinds));
  }

  /** The client whose entry has the key of the operator that the request left with; undefined: none. */
  get keyOwner(): string | undefined {
    return this.client?.apiKey === undefined ? undefined : this.client.name;
  }

  /**
   * Called when a whole response was read: it proves that the service knows the secret and accepts the key. A
   * response that holds nothing encrypted proves nothing.
   */
  authentic(): void {
    const { cipher, epoch, isTrial, ownKey } = this.attempt as SentAttempt;
    if (!cipher?.hasOpened()) return;
    if (isTrial) this.deps.session.authenticated(epoch.secretId);
    if (ownKey !== undefined) this.deps.ownKeys?.answered(this.keyOwner, ownKey);
  }

  /** Tokens in and out, as far as the service has reported them. */
  get tokens(): number {
    const { prompt = 0, completion = 0 } = this.stats.usage ?? this.decrypter?.usage ?? {};
    return prompt + completion;
  }
}

/** The part of a receipt that is known before the end. `endpoint`: null if the request was not admitted. */
interface ReceiptNotes {
  readonly endpoint: string | null;
  readonly request: BodyHash;
  readonly response: BodyHash;
}

function notesFor(endpoint: string | null, res: AppResponse): ReceiptNotes {
  const response = new BodyHash();
  res.observe({ responseBody: (chunk) => response.update(chunk) });
  return { endpoint, request: new BodyHash(), response };
}

/**
 * Whether the error says that a response could not be decrypted. An attempt that failed before the head of
 * its response had nothing to decrypt, and neither had an error of a gateway, so they do not count.
 */
export const isUndecryptable = (error: PrivatemodeError): boolean =>
  UNDECRYPTABLE.has(error.code) &&
  !(error instanceof UpstreamFailure || (error instanceof ForeignError && !error.opened));

function decide(deps: GatewayDeps, req: IncomingMessage, offered: readonly Offered[]) {
  try {
    const policy = deps.cors();
    const { admission: decision, client } = admit(req, policy, {
      offered,
      clients: deps.clients,
      configuredKey: deps.key.value,
      fallback: deps.settings.apiKeyFallback,
    });
    return { decision, client, cors: corsHeaders(req.headers.origin, policy) };
  } catch (thrown) {
    return { decision: { kind: 'fault', thrown } as const, client: undefined, cors: {} };
  }
}

/**
 * The endpoint that the receipt of a request names; undefined: the request gets no receipt. Null for a
 * request that is not admitted: such requests are only counted (lib/receipts/receipt-log.ts), so there is no
 * receipt that a header could name.
 */
function endpointOfReceipt(decision: Decided): string | null | undefined {
  if (decision.kind === 'endpoint') return decision.endpoint.id;
  if (decision.kind === 'refusal') return null;
  return decision.kind === 'local' && decision.id === 'count_tokens' ? decision.id : undefined;
}
