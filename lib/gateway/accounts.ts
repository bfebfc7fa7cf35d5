/** Counts and notes of one exchange, for its log line, the metrics and its receipt. Only the methods of this class change them. */
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import type { Permit } from '../limits/limits.ts';
import { UpstreamFailure } from '../network/upstream-failure.ts';
import { type Counters, count, RequestStats, UNDECRYPTABLE } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { Epoch } from '../session/session.ts';
import { BodyHash, type ObservedResponse } from './observed-response.ts';

/**
 * The stages of a request, in this order; a retry returns to `sealed`. `queued`: its head has been read. `received`: its body has
 * arrived. `epoch`: a verified secret is ready. `sealed`: a fresh key stream is ready, with which the body is encrypted as it
 * leaves. `sent`: all of it has left. `head`: the head of the response has arrived. `first_event`: the first bytes of a stream
 * go to the client. `done`: all of the response was handed over.
 */
export type Stage = 'queued' | 'received' | 'epoch' | 'sealed' | 'sent' | 'head' | 'first_event' | 'done';

/** Of a response that came: an attempt that failed before its head had nothing to decrypt. */
export const isUndecryptable = (error: PrivatemodeError): boolean =>
  UNDECRYPTABLE.has(error.code) && !(error instanceof UpstreamFailure);

/** Facts about a request for log, metrics and receipts. */
interface Noted {
  /** The name, as it was configured, of the alias by which its model was found. */
  readonly alias?: string | undefined;
  /** Kinds of hosted tools that a translation left out. */
  readonly toolsLeftOut?: string | undefined;
}

/** The part of a receipt that is known before the end. `epoch`: of the last attempt, if its body was encrypted. */
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
  /** What decrypts the response: its usage counts also where the response is cut off. */
  #decrypter: Decrypter | undefined;

  /** `receipt`: the endpoint that it names, null for a request that is not admitted, and the response; undefined: the request gets none. */
  constructor(
    { log, counters }: { readonly log: Logger; readonly counters: Counters },
    receipt?: { readonly endpoint: string | null; readonly res: ObservedResponse },
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

  /** Its digests can be taken once. */
  get receipt(): Readonly<ReceiptNotes> | undefined {
    return this.#receipt;
  }

  /** Tokens in and out, as far as the service has told them. */
  get tokens(): number {
    const { prompt = 0, completion = 0 } = this.#stats.usage ?? this.#decrypter?.usage ?? {};
    return prompt + completion;
  }

  /** The request has reached that stage. */
  stage(stage: Stage, fields?: Readonly<Record<string, number>>): void {
    if (!this.traced) return;
    const ms = Math.round(10 * (performance.now() - this.#stats.startedAt)) / 10;
    this.#log.debug({ stage, ms, ...fields }, 'Request stage');
  }

  /** The permit of the gate, which close() gives back. */
  permit(permit: Permit): void {
    this.#permit = permit;
  }

  /** A chunk of the body came from the application. */
  received(chunk: Uint8Array): void {
    this.#stats.bytes.fromClient += chunk.length;
    this.#receipt?.request.update(chunk);
  }

  /** The body has arrived and a verified secret is ready. */
  uploaded(): void {
    this.#stats.uploadedAt = performance.now();
  }

  /** Adds facts about the request; a later fact of the same name replaces the earlier one. */
  note(noted: Noted): void {
    this.#noted = { ...this.#noted, ...noted };
  }

  /** The model that the request names, after aliases. */
  asksFor(model: string | undefined): void {
    this.#stats.model = model;
  }

  /** An attempt begins: `bytes` of encrypted body, and the epoch that protects it; undefined where nothing is encrypted. */
  sent(bytes: number, epoch: Epoch | undefined): void {
    this.#stats.bytes.toRemote += bytes;
    this.#stats.sentAt ??= performance.now();
    if (this.#receipt !== undefined && epoch !== undefined) this.#receipt.epoch = epoch;
  }

  /** The response is decrypted by this. */
  opened(decrypter: Decrypter): void {
    this.#decrypter = decrypter;
  }

  /** Bytes came from the service. */
  heard(bytes: number): void {
    this.#stats.bytes.fromRemote += bytes;
  }

  /** A chunk of the response was decrypted, and goes to the application as so many bytes. */
  decrypted(bytes: number): void {
    const stats = this.#stats;
    if (stats.chunks === 0) stats.firstChunkAt = performance.now();
    stats.chunks += 1;
    stats.bytes.toClient += bytes;
  }

  /** A whole response was translated, which made it so many bytes longer. */
  lengthened(bytes: number): void {
    this.#stats.bytes.toClient += bytes;
  }

  /** Notes counts that the response told or its decrypter made. */
  delivered(told: Partial<Pick<RequestStats, 'events' | 'usage' | 'modelError'>>): void {
    Object.assign(this.#stats, told);
  }

  /** The response was handed over, whole. */
  done(status: number): void {
    count(this.#counters.responses, status);
    this.stage('done');
  }

  /**
   * The request failed, which its line at the end says. Mistakes of applications have that line only; everything else is an error now,
   * named by code, never by the text of its cause.
   */
  failed(error: PrivatemodeError): void {
    this.#stats.error = error;
    if (isUndecryptable(error)) count(this.#counters.decryptFailures, error.code);
    if (error.blame === 'client') return;
    const { code, status, message, remedy } = error;
    const err = code === 'internal' ? error.cause : undefined;
    // The clients of the others get theirs.
    const mend = error.blame === 'network' ? { remedy } : undefined;
    this.#log.error({ code, status, reason: message, ...mend, err }, 'Request failed');
  }

  /** The program has a fault that shows in this request. */
  faulty(thrown: unknown): void {
    this.#stats.error = asPrivatemodeError(thrown);
    this.#log.error({ err: thrown }, 'A request could not be treated');
  }

  /** The response has been closed: the permit goes back. To be called once. */
  close(): void {
    this.#stats.endedAt = performance.now();
    this.#permit?.release(this.tokens);
  }
}
