/**
 * Counts and notes of one exchange, for its log line, the metrics and its receipt. Only the methods of this
 * class change them.
 */
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { ForeignError } from '../http-rules/unauthenticated.ts';
import type { Permit } from '../limits/limits.ts';
import { UpstreamFailure } from '../network/failures.ts';
import { type Counters, count, RequestStats, UNDECRYPTABLE } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { Epoch } from '../session/session.ts';
import { type AppResponse, BodyHash } from './app-response.ts';

/**
 * The stages of a request, in this order; a retry returns to `sealed`. `queued`: its head has been read.
 * `received`: its body has arrived. `epoch`: a verified secret is ready. `sealed`: a fresh key stream is
 * ready, with which the body is encrypted as it leaves. `sent`: all of it has left. `head`: the head of the
 * response has arrived. `first_event`: the first bytes of a stream go to the client. `done`: all of the
 * response was handed over.
 */
export type Stage = 'queued' | 'received' | 'epoch' | 'sealed' | 'sent' | 'head' | 'first_event' | 'done';

/**
 * Whether the error says that a response could not be decrypted. An attempt that failed before the head of
 * its response had nothing to decrypt, and neither had an error of a gateway, so they do not count.
 */
export const isUndecryptable = (error: PrivatemodeError): boolean =>
  UNDECRYPTABLE.has(error.code) && !(error instanceof UpstreamFailure || error instanceof ForeignError);

/** Facts about a request for log, metrics and receipts. */
interface Noted {
  /** The alias that gave the request its model: its name as it was configured. */
  readonly alias?: string | undefined;
  /** Kinds of hosted tools that a translation left out. */
  readonly toolsLeftOut?: string | undefined;
}

/**
 * The part of a receipt that is known before the end. `epoch`: of the last attempt, if its body was
 * encrypted.
 */
interface ReceiptNotes {
  /** Id of the endpoint; null where the request was not admitted. */
  readonly endpoint: string | null;
  readonly request: BodyHash;
  readonly response: BodyHash;
  epoch: Epoch | undefined;
}

export class Accounts {
  readonly #stats = new RequestStats();
  readonly #log: Logger;
  readonly #counters: Counters;
  /** Whether stages are logged: at level debug only. */
  readonly traced: boolean;
  readonly #receipt: ReceiptNotes | undefined;
  #noted: Noted = {};
  #permit: Permit | undefined;
  #isClosed = false;
  /** Decrypts the response. Its events and its usage count even if the response is cut off. */
  #decrypter: Decrypter | undefined;

  /**
   * `receipt`: the response, and the endpoint that the receipt names, which is null if the request is not
   * admitted. Undefined: the request gets no receipt.
   */
  constructor(
    { log, counters }: { readonly log: Logger; readonly counters: Counters },
    receipt?: { readonly endpoint: string | null; readonly res: AppResponse },
  ) {
    this.#log = log;
    this.#counters = counters;
    this.traced = log.isLevelEnabled('debug');
    if (receipt === undefined) return;
    const { endpoint, res } = receipt;
    const response = new BodyHash();
    res.observe({ responseBody: (chunk) => response.update(chunk) });
    this.#receipt = { endpoint, request: new BodyHash(), response, epoch: undefined };
  }

  get stats(): Readonly<RequestStats> & { readonly bytes: Readonly<RequestStats['bytes']> } {
    return this.#stats;
  }

  get noted(): Noted {
    return this.#noted;
  }

  /** Each of its two digests can be taken only once. */
  get receipt(): Readonly<ReceiptNotes> | undefined {
    return this.#receipt;
  }

  /** Tokens in and out, as far as the service has reported them. */
  get tokens(): number {
    const { prompt = 0, completion = 0 } = this.#stats.usage ?? this.#decrypter?.usage ?? {};
    return prompt + completion;
  }

  /** Events that the stream of a running exchange has so far. */
  get events(): number {
    return this.#decrypter?.events ?? 0;
  }

  /** Logs, at level debug, that the request has reached this stage. */
  stage(stage: Stage, fields?: Readonly<Record<string, number>>): void {
    if (!this.traced) return;
    const ms = Math.round(10 * (performance.now() - this.#stats.startedAt)) / 10;
    this.#log.debug({ stage, ms, ...fields }, 'Request stage');
  }

  /** Keeps the permit of the gate, which `close` gives back. */
  permit(permit: Permit): void {
    this.#permit = permit;
  }

  /**
   * Counts a chunk of the body that came from the application. The rest of a refused body may come after the
   * exchange is closed and its digest taken. It counts nowhere.
   */
  received(chunk: Uint8Array): void {
    if (this.#isClosed) return;
    this.#stats.bytes.fromClient += chunk.length;
    this.#receipt?.request.update(chunk);
  }

  /** Notes the time: the last byte of the body has arrived. */
  uploaded(): void {
    this.#stats.uploadedAt = performance.now();
  }

  /** Adds facts about the request; a later fact of the same name replaces the earlier one. */
  note(noted: Noted): void {
    this.#noted = { ...this.#noted, ...noted };
  }

  /** Notes the model that the request asks for, after aliases. */
  asksFor(model: string | undefined): void {
    this.#stats.model = model;
  }

  /**
   * Notes that an attempt begins. `bytes`: the length of its encrypted body. `epoch`: protects the body;
   * undefined if nothing is encrypted.
   */
  sends(bytes: number, epoch: Epoch | undefined): void {
    this.#stats.bytes.toRemote += bytes;
    if (this.#receipt !== undefined && epoch !== undefined) this.#receipt.epoch = epoch;
  }

  /** Notes that all of the encrypted body has left. Only the first time counts, not that of a retry. */
  sent(attempt: number): void {
    this.#stats.sentAt ??= performance.now();
    this.stage('sent', { attempt });
  }

  /** Notes what decrypts the response. */
  opened(decrypter: Decrypter): void {
    this.#decrypter = decrypter;
  }

  /** Counts bytes that came from the service. */
  heard(bytes: number): void {
    this.#stats.bytes.fromRemote += bytes;
  }

  /** Counts a decrypted chunk of the response, which goes to the application as `bytes` bytes. */
  decrypted(bytes: number): void {
    this.#stats.firstChunkAt ??= performance.now();
    this.#stats.bytes.toClient += bytes;
  }

  /** Counts by how many bytes a translation made a whole response longer. */
  lengthened(bytes: number): void {
    this.#stats.bytes.toClient += bytes;
  }

  /** Notes counts that the service reported in the response, or that its decrypter made. */
  delivered(told: Partial<Pick<RequestStats, 'events' | 'usage' | 'modelError'>>): void {
    Object.assign(this.#stats, told);
  }

  /** Counts, by its status, a response that was handed over whole. */
  done(status: number): void {
    count(this.#counters.responses, status);
    this.stage('done');
  }

  /**
   * Notes the error of the request, which its log line at the end names. An error that is the client's fault
   * has that line only. Every other error is logged now, at level error. It is named by its code, never by
   * the text of its cause. `status`: what the client gets; default: the status of the error.
   */
  failed(error: PrivatemodeError, status = error.status): void {
    this.#stats.error = error;
    if (isUndecryptable(error)) count(this.#counters.decryptFailures, error.code);
    if (error.blame === 'client') return;
    const { code, message, remedy } = error;
    const err = code === 'internal' ? error.cause : undefined;
    this.#log.error({ code, status, reason: message, remedy, err }, 'Request failed');
  }

  /** Notes and logs a fault of the program that shows in this request. */
  faulty(thrown: unknown): void {
    this.#stats.error = asPrivatemodeError(thrown);
    this.#log.error({ err: thrown }, 'A request could not be treated');
  }

  /**
   * Notes the end of the exchange, and gives its permit back. Called once, when the response has been closed.
   */
  close(): void {
    this.#isClosed = true;
    this.#stats.endedAt = performance.now();
    this.#permit?.release(this.tokens);
  }
}
