/** The last step of a client's chain: the upstream response, decrypted, as a Response. */
import { errorEvent, INERT_HEADERS, requestIdHeader } from '../api/error-format.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { PrivatemodeError } from '../errors.ts';
import { createBodyDecrypter } from '../pipeline/decrypt-body.ts';
import { createEventDecrypter } from '../pipeline/decrypt-events.ts';
import type { Asked, Decrypter } from '../pipeline/decrypter.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { plainContentType, receiptHeaders, remoteHeaders, responseKind } from '../pipeline/response-head.ts';
import { isRedirect } from './fetch-call.ts';
import type { ClientConfig } from './options.ts';
import type { Attempt } from './send.ts';

interface Answered {
  readonly match: EndpointMatch;
  readonly body: SaltedBody | undefined;
  readonly requestId: string;
}

const NOTHING_ASKED: Asked = { streaming: false, choices: 1, format: undefined, usage: 'every' };

/**
 * The response that the application gets. A stream goes on event by event; one that turns out wrong ends with an error event of the
 * endpoint's format and then fails. Rejects with the error that stands in place of a response.
 */
export async function respond(
  config: ClientConfig,
  attempt: Attempt,
  { match: { endpoint }, body, requestId }: Answered,
): Promise<Response> {
  const { response, failure, cipher, epoch, plainBody } = attempt;
  if (response === undefined) throw failure;
  const status = isRedirect(response) ? 302 : response.status;
  const asked = body ?? NOTHING_ASKED;
  const streaming = endpoint.terminal !== undefined && asked.streaming;
  const head = Object.fromEntries(response.headers);
  const kind = responseKind(status, head, endpoint.encrypted, streaming);
  if (kind instanceof PrivatemodeError) {
    attempt.abort();
    throw kind;
  }
  const headers = (contentType: string, marks: Record<string, string>): [string, string][] =>
    Object.entries({
      ...requestIdHeader({ format: endpoint.errorFormat, requestId }),
      ...remoteHeaders([...response.headers].flat()),
      ...INERT_HEADERS,
      'content-type': contentType,
      ...marks,
    }).map(([name, value]) => [name, String(value)]);
  const receipt = receiptHeaders(epoch, requestId);
  if (kind === 'plain' || cipher === undefined) {
    return new Response(plainBody ? Uint8Array.from(plainBody) : response.body, {
      status,
      headers: headers(plainContentType(head['content-type']), {
        'privatemode-proxy-unauthenticated': 'true',
        ...(endpoint.encrypted ? { 'privatemode-encrypted': 'false' } : {}),
      }),
    });
  }
  const source = chunksOf(response, config.streamIdleTimeout, attempt.abort);
  if (kind === 'encrypted-stream' && endpoint.terminal !== undefined) {
    const decrypter = createEventDecrypter(endpoint, cipher, asked);
    const events = decrypted(source, decrypter, (error) =>
      errorEvent(error, { format: endpoint.errorFormat, requestId }),
    );
    return new Response(streamOf(events, attempt.abort), {
      status,
      headers: headers('text/event-stream', receipt),
    });
  }
  const decrypter = createBodyDecrypter(endpoint, cipher, status < 400 ? asked : undefined);
  const pieces: Uint8Array[] = [];
  try {
    for await (const piece of decrypted(source, decrypter)) pieces.push(piece);
  } catch (thrown) {
    if (status < 400 || !(thrown instanceof PrivatemodeError)) throw thrown;
    // An error whose text does not authenticate keeps its status, not its text.
    throw new PrivatemodeError(
      thrown.code,
      `the service answered with status ${status}; its text did not authenticate and is not shown`,
      { cause: thrown },
    );
  }
  return new Response(Uint8Array.from(Buffer.concat(pieces)), {
    status,
    headers: headers('application/json', receipt),
  });
}

/** The network chunks of the response. Throws stream_unfinished where it breaks off, and stream_idle_timeout. */
async function* chunksOf(response: Response, idle: number, abort: () => void): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const { promise: late, reject } = Promise.withResolvers<never>();
      const message = 'the service stopped sending in the middle of the answer';
      const timer = setTimeout(() => reject(new PrivatemodeError('stream_idle_timeout', message)), idle);
      try {
        const read = await Promise.race([reader?.read(), late]);
        if (read === undefined || read.done) return;
        yield read.value;
      } finally {
        clearTimeout(timer);
      }
    }
  } catch (thrown) {
    if (thrown instanceof PrivatemodeError) throw thrown;
    const message = 'the connection to the service broke in the middle of the answer';
    throw new PrivatemodeError('stream_unfinished', message, { cause: thrown });
  } finally {
    abort(); // frees the connection of a response that was left early; harmless after its end
  }
}

/**
 * The plaintext of a response, as much as each chunk completes. Throws what the response failed with, after the bytes before it
 * and what `farewell` makes of the failure.
 */
async function* decrypted(
  chunks: AsyncIterable<Uint8Array>,
  decrypter: Decrypter,
  farewell?: (failure: PrivatemodeError) => Uint8Array,
): AsyncGenerator<Uint8Array> {
  let failure: PrivatemodeError | undefined;
  try {
    for await (const chunk of chunks) {
      const bytes = decrypter.feed(chunk);
      if (bytes.length > 0) yield bytes;
      if (decrypter.failure !== undefined || decrypter.finished) break;
    }
    while (decrypter.failure === undefined && !decrypter.finished) {
      const bytes = decrypter.flush();
      if (bytes.length > 0) yield bytes;
      if (!decrypter.pending) break;
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
    failure = decrypter.failure;
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    failure = thrown;
  }
  if (failure === undefined) return;
  if (farewell !== undefined) yield farewell(failure);
  throw failure;
}

/** A stream that pulls: what was given before a failure is read before the failure. Cancelled, it ends the connection. */
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
