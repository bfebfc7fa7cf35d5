/** The last step of a client's chain: the upstream response, decrypted, as a Response. */
import type { Endpoint } from '../api/endpoints.ts';
import { errorEvent } from '../api/error-response.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { ENCRYPTED_HEADER, PROTOCOL_VERSION, type RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { leftOutHeader, remoteHeaders, responseHeaders } from '../http-rules/headers.ts';
import { ForeignError, plainContentType, responseKind } from '../http-rules/response-kind.ts';
import { clientTooOld, MOST_SEARCHED } from '../network/failures.ts';
import { overflowBody } from '../pipeline/context-overflow.ts';
import { decryptBody, MAX_BODY_BYTES } from '../pipeline/decrypt-body.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import type { Decrypter, RequestFacts } from '../pipeline/decrypter.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { NOTHING_ASKED } from '../pipeline/request-body.ts';
import type { Translator } from '../responses-api/translator.ts';
import { isRedirect, pageOrigin } from './control-call.ts';
import type { ClientConfig } from './options.ts';
import { toApplication } from './remedies.ts';
import { collected, responseChunks } from './response-chunks.ts';
import type { FetchAttempt } from './send.ts';

/** An attempt with its response. `errorBody`: the body as it came, if it was read to decide about a retry. */
export interface FetchedAttempt extends FetchAttempt {
  readonly errorBody: Buffer | undefined;
}

interface Asking {
  readonly match: EndpointMatch;
  readonly body: SaltedBody | undefined;
  readonly requestId: string;
  /** Only in an exchange of the Responses API. */
  readonly translator: Translator | undefined;
  /** Called whenever a part of the response was decrypted, and at its end. */
  readonly onAuthentic: () => void;
}

/**
 * An error of the service whose text did not authenticate. It keeps the status, Retry-After and rate limits;
 * `cause` is the error that the application sees.
 */
export class UnreadError extends Error {
  override readonly cause: PrivatemodeError;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(shown: PrivatemodeError, { status, headers }: Response) {
    super(shown.message);
    this.cause = shown;
    this.status = status;
    this.headers = remoteHeaders(Object.fromEntries(headers), false);
  }
}

/** Whether the runtime asks for compression itself, as browsers do, and undoes it. */
const CHOOSES_ENCODING = !new Request('https://privatemode.invalid', {
  headers: { 'accept-encoding': 'identity' },
}).headers.has('accept-encoding');

/**
 * The response that the application gets. A stream is passed on event by event. If a stream turns out wrong,
 * it ends with an error event in the endpoint's format, and then fails. Rejects with the error that the
 * application gets in place of a response.
 */
export async function respond(
  config: ClientConfig,
  attempt: FetchedAttempt,
  { match: { endpoint, format }, body, requestId, translator, onAuthentic }: Asking,
): Promise<Response> {
  const { request, response, cipher, epoch, errorBody } = attempt;
  const status = isRedirect(response) ? 302 : response.status;
  const asked = body ?? NOTHING_ASKED;
  const head = Object.fromEntries(response.headers);
  if (CHOOSES_ENCODING) delete head['content-encoding'];
  const encrypted = cipher !== undefined;
  const kind = responseKind(status, head, encrypted, asked.streaming);
  if (kind instanceof PrivatemodeError) {
    attempt.abort();
    throw kind instanceof ForeignError ? new UnreadError(kind, response) : kind;
  }
  const authenticated = kind !== 'plain' && cipher !== undefined;
  const headers = (contentType: string): [string, string][] =>
    Object.entries(
      responseHeaders({
        format,
        requestId,
        headers: head,
        contentType,
        own: leftOutHeader(translator?.leftOut()),
        encrypted,
        epoch: authenticated ? epoch : undefined,
      }),
    );
  if (!authenticated) {
    const marked = headers(plainContentType(head['content-type']));
    const tooOld = errorBody && clientTooOld(errorBody, PROTOCOL_VERSION);
    if (tooOld) throw tooOld;
    if (errorBody !== undefined) return new Response(Uint8Array.from(errorBody), { status, headers: marked });
    if (request.method === 'HEAD' || response.body === null) {
      attempt.abort();
      return new Response(null, { status, headers: marked });
    }
    const { chunks } = responseChunks(attempt, config);
    const shown = status >= 400 ? await unlessTooOld(chunks) : chunks;
    return new Response(streamOf(shown, attempt.abort), { status, headers: marked });
  }
  const source =
    errorBody === undefined ? responseChunks(attempt, config) : { chunks: [errorBody], finish: () => {} };
  if (kind === 'encrypted-stream') {
    const decrypter = new EventDecrypter(endpoint, cipher, asked);
    decrypter.sink = translator?.stream();
    const farewell = (error: PrivatemodeError) =>
      translator?.fail(error) ?? errorEvent(error, { format, requestId });
    const events = decrypted(source, decrypter, onAuthentic, farewell);
    return new Response(streamOf(events, attempt.abort), {
      status,
      headers: headers('text/event-stream'),
    });
  }
  const wire =
    errorBody ?? (await collected(responseChunks(attempt, config).chunks, MAX_BODY_BYTES).catch(inItsWords));
  const opened = await whole(attempt, wire, { endpoint, asked: status < 400 ? asked : undefined });
  onAuthentic();
  const plain = opened.body;
  const shown =
    status < 400 ? (translator?.body(plain) ?? plain) : (overflowBody(plain, status, format) ?? plain);
  return new Response(Uint8Array.from(shown), {
    status,
    headers: headers('application/json'),
  });
}

/**
 * Decrypts a whole body. Throws its failure in the words for an application, and for an error of the service
 * the error that is shown in its place.
 */
async function whole(
  { response, cipher }: FetchedAttempt,
  wire: Buffer,
  { endpoint, asked }: { readonly endpoint: Endpoint; readonly asked: RequestFacts | undefined },
) {
  try {
    return await decryptBody(endpoint, cipher as RequestCipher, asked, wire);
  } catch (thrown) {
    const failure = asPrivatemodeError(thrown);
    if (asked !== undefined) throw toApplication(failure);
    if (cipher?.hasReceived)
      throw new UnreadError(new ForeignError(failure, response.status, true), response);
    throw clientTooOld(wire, PROTOCOL_VERSION) ?? new UnreadError(unmarkedError(failure, response), response);
  }
}

/**
 * The error to show in place of an error that holds nothing encrypted and is not marked as plain. In a page
 * the mark may be there, but hidden by CORS.
 */
function unmarkedError(failure: PrivatemodeError, { status, headers }: Response): PrivatemodeError {
  const foreign = new ForeignError(failure, status);
  const origin = pageOrigin();
  if (origin === undefined || headers.has(ENCRYPTED_HEADER)) return foreign;
  const message = `${foreign.message}; or the service marks it as unencrypted, in a header that pages of ${origin} do not see (CORS)`;
  const remedy = `${foreign.remedy} If it persists, expose the header Privatemode-Encrypted to pages, as "Runtimes" in the README of privatemode-ai says.`;
  return new PrivatemodeError(foreign.code, message, { cause: foreign, remedy });
}

/** Throws the error in the words for an application. */
function inItsWords(thrown: unknown): never {
  throw thrown instanceof PrivatemodeError ? toApplication(thrown) : thrown;
}

/** The body of a response: what responseChunks returns, or what was read already. */
interface Source {
  readonly chunks: AsyncIterable<Uint8Array> | readonly Uint8Array[];
  readonly finish: () => void;
}

/**
 * Yields the plaintext that each chunk of a stream completes, and calls `onAuthentic` then. If the stream
 * fails, it yields the bytes before the failure, then those that `farewell` makes of the failure, and throws
 * the failure. If the application left, it throws the application's own reason.
 */
async function* decrypted(
  { chunks, finish }: Source,
  decrypter: Decrypter,
  onAuthentic: () => void,
  farewell: (failure: PrivatemodeError) => Uint8Array,
): AsyncGenerator<Uint8Array> {
  let failure: PrivatemodeError | undefined;
  try {
    for await (const chunk of chunks) {
      const bytes = decrypter.feed(chunk);
      if (decrypter.failure === undefined && decrypter.finished) finish();
      if (bytes.length > 0) {
        onAuthentic();
        yield bytes;
      }
      if (decrypter.failure !== undefined || decrypter.finished) break;
    }
    if (decrypter.failure === undefined && !decrypter.finished) decrypter.end();
    failure = decrypter.failure;
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    if (!decrypter.modelError) failure = thrown;
  }
  if (failure === undefined) return onAuthentic();
  const error = toApplication(failure);
  yield farewell(error);
  throw error;
}

/**
 * Reads the first 4 KiB of a plain error, or all of a shorter one. Returns the chunks of the whole error,
 * those that were read included. Rejects
 * with client_too_old if the error asks for a newer client.
 */
async function unlessTooOld(chunks: AsyncGenerator<Uint8Array>): Promise<AsyncGenerator<Uint8Array>> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  let broken: { readonly by: unknown } | undefined;
  try {
    while (size <= MOST_SEARCHED) {
      const { value, done } = await chunks.next();
      if (done) break;
      pieces.push(value);
      size += value.length;
    }
  } catch (by) {
    broken = { by };
  }
  const tooOld = broken === undefined ? clientTooOld(Buffer.concat(pieces), PROTOCOL_VERSION) : undefined;
  if (tooOld !== undefined) {
    await chunks.return(undefined);
    throw tooOld;
  }
  return (async function* () {
    yield* pieces;
    if (broken !== undefined) throw broken.by;
    yield* chunks;
  })();
}

/**
 * A stream that pulls each chunk, so that its reader gets the chunks before a failure, and then the failure.
 * If the reader cancels the stream, the connection ends.
 */
function streamOf(chunks: AsyncGenerator<Uint8Array>, abort: () => void): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { value, done } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        abort();
        await chunks.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}
