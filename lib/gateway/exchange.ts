/** One exchange: a request of an application with its whole response. */
import type { IncomingMessage } from 'node:http';
import type { Client } from '../access/authenticate-client.ts';
import { newRequestId } from '../api/error-response.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { Deadline } from '../clock.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import { AUDIT_HEADERS } from '../http-rules/headers.ts';
import { ForeignError } from '../http-rules/response-kind.ts';
import type { Permit } from '../limits/limits.ts';
import { UpstreamFailure } from '../network/transport-errors.ts';
import { count, RequestStats, UNDECRYPTABLE } from '../observe/counters.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses-api/translator.ts';
import type { Epoch } from '../session/session.ts';
import { type Admission, admit } from './admission.ts';
import type { GatewayDeps } from './deps.ts';
import { Room } from './memory.ts';
import { type AppResponse, BodyHash } from './observed-response.ts';

/** The application has left, so nobody is there to respond to. */
export class ClientGone extends Error {}

export interface SentAttempt {
  readonly epoch: Epoch;
  /** The cipher of the attempt, or undefined if the endpoint has no encryption. */
  readonly cipher: RequestCipher | undefined;
  /** Whether to tell the session of an authentic response: this shows that the service knows the secret. */
  isTrial: boolean;
  /** The body of the response, if it was read to decide about a retry. */
  errorBody: Buffer | undefined;
}

export type ForwardedExchange = Exchange & { readonly match: EndpointMatch };

/** An id that can neither end a header or log line nor hold a prompt. Two ids in one header do not match. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/** The state that several steps share. Steps write its mutable members, and end-of-request.ts reads them. */
export class Exchange {
  readonly deps: GatewayDeps;
  readonly req: IncomingMessage;
  readonly res: AppResponse;
  readonly decision: Admission;
  /** The endpoint and the target of the request; undefined if the proxy responds by itself. */
  readonly match: EndpointMatch | undefined;
  readonly client: Client | undefined;
  readonly format: Admission['format'];
  readonly requestId = newRequestId('proxy');
  readonly ids: Readonly<Record<'requestId' | 'clientRequestId' | 'client', string | undefined>>;
  /** Headers of each response: CORS, the application's own id, the receipt, the tools that were left out. */
  readonly headers: Record<string, string>;
  readonly stats = new RequestStats();
  /** Whether the proxy breaks the connection on purpose, before the response is complete. */
  broken = false;
  /** The time limit of the current wait: first for the client, then for the service. */
  readonly deadline: Deadline;
  permit: Permit | undefined;
  readonly requestRoom: Room;
  readonly responseRoom: Room;
  /** The Authorization header with the key for the service; undefined if no key is sent. */
  authorization: string | undefined;
  /** The operator's key, if it is sent. `of`: the client whose entry has it; undefined for --api-key. */
  operatorKey: { readonly value: string; readonly of: string | undefined } | undefined;
  attempt: SentAttempt | undefined;
  alias: string | undefined;
  toolsLeftOut: string | undefined;
  /** Translates the response; if undefined, the application gets the decrypted response unchanged. */
  translator: Translator | undefined;
  decrypter: Decrypter | undefined;
  /** Hashes of both bodies for the receipt; undefined if the exchange gets no receipt. */
  readonly bodies: { readonly request: BodyHash; readonly response: BodyHash } | undefined;
  /** Why the exchange ended early; undefined if it did not. */
  #endedBy: Error | undefined;
  #stop: ((reason: Error) => void) | undefined;
  #ending: AbortController | undefined;

  /**
   * Decides whether the request is admitted; never throws. The response repeats the application's own id from
   * `x-request-id`. The id never goes to the service, because it may name a person or a session.
   */
  constructor(deps: GatewayDeps, req: IncomingMessage, res: AppResponse) {
    this.deps = deps;
    this.req = req;
    this.res = res;
    const { decision, client, cors } = admit(deps, req);
    this.decision = decision;
    this.client = client;
    this.match = decision.kind === 'endpoint' ? decision : undefined;
    this.format = decision.format;
    const sent = req.headers['x-request-id'];
    const clientRequestId = typeof sent === 'string' && CLIENT_ID.test(sent) ? sent : undefined;
    this.ids = { requestId: this.requestId, clientRequestId, client: client?.name };
    this.headers = { ...cors };
    if (clientRequestId !== undefined) {
      this.headers['x-request-id'] = clientRequestId;
      this.headers[AUDIT_HEADERS.requestId] = this.requestId;
    }
    const isAdmitted = this.match !== undefined || ('id' in decision && decision.id === 'count_tokens');
    if (deps.receipts && isAdmitted) {
      this.bodies = { request: new BodyHash(), response: new BodyHash() };
      res.observers.push(this.bodies.response);
      this.headers[AUDIT_HEADERS.receipt] = `${deps.receipts.instance}/${this.requestId}`;
    }
    this.deadline = new Deadline(deps.clock);
    this.requestRoom = new Room(deps.memory.uploads);
    this.responseRoom = new Room(deps.memory.responses);
  }

  /** Called once the response is complete, or its connection is gone. */
  closed(): void {
    this.deadline.cancel();
    this.requestRoom.release();
    this.responseRoom.release();
    if (!this.res.writableFinished) this.abort(new ClientGone());
  }

  /** Aborted when the application has left, or when the grace period of a shutdown is over. */
  get signal(): AbortSignal {
    this.#ending ??= new AbortController();
    if (this.#endedBy !== undefined) this.#ending.abort(this.#endedBy);
    return this.#ending.signal;
  }

  /**
   * Sets the function to call if the exchange ends early. This function replaces that of the step before. If
   * the exchange has ended, it is called at once. A listener on `signal` would cost a short request more
   * time.
   */
  interruptBy(stop: ((reason: Error) => void) | undefined): void {
    this.#stop = stop;
    if (this.#endedBy !== undefined) stop?.(this.#endedBy);
  }

  /** Makes the current step fail with this reason, while the exchange goes on. */
  interrupt(reason: Error): void {
    this.#stop?.(reason);
  }

  abort(reason: Error): void {
    this.#endedBy ??= reason; // later reasons are ignored: the application may leave during a shutdown
    this.interrupt(reason);
    this.#ending?.abort(reason);
  }

  log(level: 'debug' | 'info' | 'warn' | 'error', fields: object, message: string): void {
    this.deps.log[level]({ ...this.ids, ...fields }, message);
  }

  decrypted(bytes: number): void {
    this.stats.firstChunkAt ??= performance.now();
    const attempt = this.attempt as SentAttempt;
    if (attempt.isTrial && attempt.cipher?.hasOpened) {
      attempt.isTrial = false; // the service may deny the secret again while the response runs
      this.deps.session.authenticated(attempt.epoch.secretId);
    }
    this.stats.bytes.toClient += bytes;
  }

  /**
   * Notes the error of the request. Logs the error unless the client is at fault. The log has the error's
   * cause only for a fault of the program. `status`: the status that the client gets.
   */
  failed(error: PrivatemodeError, status = error.status): void {
    this.stats.error = error;
    // Nothing could be decrypted: the attempt failed before its response, or a gateway responded.
    const hadNothing = error instanceof UpstreamFailure || (error instanceof ForeignError && !error.opened);
    if (UNDECRYPTABLE.has(error.code) && !hadNothing)
      count(this.deps.metrics.counters.decryptFailures, error.code);
    if (error.blame === 'client') return;
    const { code, message, remedy } = error;
    const err = code === 'internal' ? error.cause : undefined;
    this.log('error', { code, status, reason: message, remedy, err }, 'Request failed');
  }

  /** Called at the end of a response. An encrypted response shows that the service accepted the key. */
  authentic(): void {
    const { deps, operatorKey } = this;
    const { cipher } = this.attempt as SentAttempt;
    if (!cipher?.hasOpened) return;
    if (operatorKey !== undefined) deps.ownKeys?.answered(operatorKey.of, operatorKey.value);
  }
}
