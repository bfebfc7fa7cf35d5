/** The last step of a client's chain: decrypts the upstream response and makes a Response of it. */
import { errorEvent } from '../api/error-response.ts';
import { PROTOCOL_VERSION, type RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { leftOutHeader, responseHeaders } from '../http-rules/headers.ts';
import { ForeignError, plainContentType, responseKind } from '../http-rules/response-kind.ts';
import { clientTooOld } from '../network/transport-errors.ts';
import { overflowBody } from '../pipeline/context-overflow.ts';
import { decryptBody, MAX_BODY_BYTES } from '../pipeline/decrypt-body.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import type { Decrypter, RequestFacts } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses-api/translator.ts';
import { toApplication } from './errors.ts';
import { ResponseBody } from './response-body.ts';
import type { Asked, FetchAttempt } from './send.ts';

/** The most bytes of an unencrypted body. Errors and the list of models have such a body. */
export const LONGEST_PLAIN = 1024 * 1024;

interface Asking extends Asked {
  /** The kind of response that the request asked for. */
  readonly facts: RequestFacts;
  /** Set only in an exchange of the Responses API. */
  readonly translator: Translator | undefined;
  /** Called whenever a part of the response has been decrypted, and at the end of the response. */
  readonly onAuthentic: () => void;
  /** Makes a response that reports an error, with status and rate limits of the `replaced` response. */
  readonly refuse: (error: PrivatemodeError, replaced?: Response) => Response;
}

/** Whether the runtime itself asks for compressed responses and decompresses them, as browsers do. */
const CHOOSES_ENCODING = !new Request('https://privatemode.invalid', {
  headers: { 'accept-encoding': 'identity' },
}).headers.has('accept-encoding');

/**
 * Makes the response that the application gets. A stream is passed on event by event. If a stream proves to
 * be wrong, it ends with an error event in the format of the endpoint, and then fails. Rejects with the error
 * that the application gets in place of a response.
 */
export async function respond(attempt: FetchAttempt, asking: Asking): Promise<Response> {
  const { response, epoch, errorBody } = attempt;
  const { config, requestId, facts, translator, onAuthentic, refuse } = asking;
  const { endpoint, format } = asking.match;
  const status = response.status || 302; // a browser shows a redirect as status 0
  const isError = status >= 400;
  const head = Object.fromEntries(response.headers);
  if (CHOOSES_ENCODING) delete head['content-encoding'];
  const encrypted = attempt.cipher !== undefined;
  const kind = responseKind(status, head, encrypted, facts.streaming);
  if (kind instanceof PrivatemodeError) {
    attempt.abort();
    if (kind instanceof ForeignError) return refuse(kind, response);
    throw kind;
  }
  const shown = (body: Uint8Array | ReadableStream, contentType: string): Response => {
    const own = leftOutHeader(translator?.leftOut());
    const authentic = kind === 'plain' ? undefined : epoch;
    const known = { format, requestId, headers: head, contentType, own, encrypted, epoch: authentic };
    const content = body instanceof Uint8Array ? Uint8Array.from(body) : body;
    return new Response(content, { status, headers: responseHeaders(known) });
  };
  const refuseTooOld = (text: Buffer): void => {
    const tooOld = isError ? clientTooOld(text, PROTOCOL_VERSION) : undefined;
    if (tooOld !== undefined) throw tooOld;
  };

  const wire = new ResponseBody(attempt, config);
  const cipher = attempt.cipher as RequestCipher; // every response that is not plain has a cipher
  if (kind === 'encrypted-stream') {
    const decrypter = new EventDecrypter(endpoint, cipher, facts);
    const farewell = (error: PrivatemodeError): Uint8Array =>
      translator?.fail(error) ?? errorEvent(error, { format, requestId });
    decrypter.sink = translator?.stream();
    const opened = streamOf(wire, decrypter, onAuthentic, farewell);
    return shown(opened, 'text/event-stream');
  }
  const text = errorBody ?? (await wire.all(kind === 'plain' ? LONGEST_PLAIN : MAX_BODY_BYTES));
  if (kind === 'plain') {
    refuseTooOld(text);
    return shown(text, plainContentType(head['content-type']));
  }
  let body: Buffer;
  try {
    ({ body } = await decryptBody(endpoint, cipher, isError ? undefined : facts, text));
  } catch (thrown) {
    const failure = asPrivatemodeError(thrown);
    if (!isError) throw failure;
    if (!cipher.hasReceived) refuseTooOld(text);
    return refuse(new ForeignError(failure, status, cipher.hasReceived), response);
  }
  onAuthentic();
  if (isError) body = overflowBody(body, status, format) ?? body;
  else body = translator?.body(body) ?? body;
  return shown(body, 'application/json');
}

/**
 * The plaintext of a stream. It is made on demand. If the stream fails, its reader gets first what came
 * before the failure, then the bytes of `farewell`, then the error. If the application aborts, the stream
 * fails with the reason of the abort.
 */
function streamOf(
  wire: ResponseBody,
  decrypter: Decrypter,
  onAuthentic: () => void,
  farewell: (failure: PrivatemodeError) => Uint8Array,
): ReadableStream<Uint8Array> {
  let failure: PrivatemodeError | undefined;
  async function pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    if (failure !== undefined) return controller.error(failure);
    try {
      while (!decrypter.finished) {
        const chunk = await wire.next();
        if (chunk === undefined) {
          decrypter.end();
          break;
        }
        const bytes = decrypter.feed(chunk);
        if (bytes.length === 0) continue;
        onAuthentic();
        return controller.enqueue(bytes);
      }
      failure = decrypter.failure;
    } catch (thrown) {
      if (!(thrown instanceof PrivatemodeError)) throw thrown;
      // The stream needs no terminal event after an error of the model, which was passed on.
      if (!decrypter.modelError) failure = thrown;
    }
    if (failure !== undefined) {
      wire.leave();
      failure = toApplication(failure);
      return controller.enqueue(farewell(failure));
    }
    onAuthentic();
    wire.drain();
    controller.close();
  }
  return new ReadableStream({ pull, cancel: () => wire.leave() }, { highWaterMark: 0 });
}
