import type { ServerResponse } from 'node:http';
import { errorEvent, INERT_HEADERS, requestIdHeader } from '../api/error-format.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import type { ResponseOpener } from '../pipeline/response-opener.ts';
import { receiptHeaders } from '../transparency/receipt.ts';
import { answer, answerError } from './answers.ts';
import { breakConnection } from './break-connection.ts';
import { type Asked, bodyOpener, streamOpener } from './codecs.ts';
import { type Answered, type Call, logStage, noteFailure } from './exchange.ts';
import { plainContentType, responseHeaders } from './headers.ts';
import { interpretAnswer } from './interpret.ts';
import { identityOpener, type RelayOptions, relay } from './relay.ts';
import { keepStreamAlive, type StreamKeepalive } from './stream-keepalive.ts';
import { ClientGone } from './upload.ts';

type Headers = ReturnType<typeof responseHeaders>;

/**
 * Reads the upstream's answer the way its head asks for and gives it to the client. Rejects, with nothing written, where
 * it must not be shown; once the head is out, a failure becomes an error event and a visibly broken connection.
 */
export async function respond(call: Call, answered: Answered): Promise<void> {
  const { response } = answered;
  const status = response.statusCode as number;
  const { encrypted, terminal } = call.match.endpoint;
  const streaming = terminal !== undefined && call.asked?.streaming === true; // the others know no `stream`
  const how = interpretAnswer(status, response.headers, encrypted, streaming);
  if (status >= 400) {
    call.log[status >= 500 ? 'error' : 'warn']({ status }, 'The service answered with an error status');
  }
  switch (how.kind) {
    case 'refused':
      answered.request.destroy();
      countFailure(call, how.error);
      throw how.error;
    case 'plain':
      return respondPlain(call, answered);
    case 'sealed-body':
      return respondBody(call, answered);
    case 'sealed-stream': // an error as a stream, where the API has none, is no JSON either: only its status is shown
      return terminal === undefined ? respondBody(call, answered) : respondStream(call, answered);
  }
}

async function respondPlain(call: Call, answered: Answered): Promise<void> {
  const { req, res } = call;
  const { response, plainBody } = answered;
  const headers = headersFor(call, answered, 'plain');
  const status = response.statusCode as number;
  if (plainBody !== undefined) {
    answer(req, res, { status, headers, body: plainBody });
    finished(call);
    return;
  }
  const length = response.headers['content-length'];
  res.writeHead(status, { ...headers, ...(length === undefined ? {} : { 'content-length': length }) });
  const failure = await relayToClient(call, answered, identityOpener);
  if (failure === undefined) {
    res.end();
    finished(call);
  } else {
    noteFailure(call, failure);
    breakConnection(call);
  }
}

/** A whole JSON answer: nothing is shown before all of it has authenticated. */
async function respondBody(call: Call, answered: Answered): Promise<void> {
  const { req, res, world } = call;
  const status = answered.response.statusCode as number;
  const parts: Uint8Array[] = [];
  const opener = bodyOpener(call.match.endpoint, cipherOf(answered), status < 400, askedOf(call));
  const error = await relay(answered.response, opener, {
    ...relayOptions(call),
    write: (part) => parts.push(part) > 0,
  }).ended;
  call.tally.usage = opener.usage;

  const headers = headersFor(call, answered, 'json');
  if (error === undefined) {
    answer(req, res, { status, headers, body: Buffer.concat(parts) });
    finished(call);
    return;
  }
  countFailure(call, error);
  if (status < 400) throw error;
  // An error whose text does not authenticate keeps its status (and the hints for a retry), not its text.
  noteFailure(call, error);
  const words = `the service answered with status ${status}; its text did not authenticate and is not shown`;
  const shown = new PrivatemodeError(error.code, words, { cause: error });
  const retryAfter = answered.response.headers['retry-after'];
  answerError(
    req,
    res,
    shown,
    { dialect: call.match.endpoint.dialect, requestId: call.requestId },
    {
      status,
      headers: { ...call.extraHeaders, ...(retryAfter === undefined ? {} : { 'retry-after': retryAfter }) },
    },
  );
  count(world.counters.responses, status);
}

/** An event stream: every event goes on as soon as its chunk has been opened. */
async function respondStream(call: Call, answered: Answered): Promise<void> {
  const { res, world } = call;
  const opener = streamOpener(call.match.endpoint, cipherOf(answered), askedOf(call));
  res.writeHead(answered.response.statusCode as number, {
    ...headersFor(call, answered, 'events'),
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
  sendHead(res);
  call.phase = 'before_first_token';
  const onFirstBytes = (): void => {
    call.phase = 'mid_stream';
    logStage(call, 'first_event');
  };
  const { streamKeepalive } = world;
  const alive = streamKeepalive > 0 ? keepStreamAlive(res, streamKeepalive) : undefined;
  let error: PrivatemodeError | undefined;
  try {
    error = await relayToClient(call, answered, opener, onFirstBytes, alive);
  } finally {
    alive?.stop();
    world.counters.streamEvents += opener.events;
    call.tally.usage = opener.usage;
    call.tally.modelError = opener.modelError;
  }
  if (error === undefined) {
    res.end();
    finished(call);
    return;
  }
  countFailure(call, error);
  if (!UNOPENED.has(error.code)) world.counters.truncatedStreams += 1;
  noteFailure(call, error);
  const { dialect } = call.match.endpoint;
  res.write(errorEvent(error, { dialect, requestId: call.requestId }), () => breakConnection(call));
}

/** Now, and in one piece with the first events where these are there already. */
function sendHead(res: ServerResponse): void {
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}

/** What an answer can be that came but could not be opened; the others were cut off, by whomever. */
const UNOPENED: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'response_not_authentic',
  'response_not_encrypted',
  'response_malformed',
  'response_too_large',
]);

function countFailure({ world }: Call, { code }: PrivatemodeError): void {
  if (UNOPENED.has(code)) count(world.counters.decryptFailures, code);
}

const askedOf = ({ asked }: Call): Asked =>
  asked ?? { streaming: false, choices: 1, format: undefined, usage: 'every' };

function cipherOf({ cipher }: Answered): NonNullable<Answered['cipher']> {
  if (cipher === undefined) throw new PrivatemodeError('internal', 'an encrypted answer without a cipher');
  return cipher;
}

const relayOptions = ({ world, tally }: Call): Omit<RelayOptions, 'write'> => ({
  tally,
  idleTimeout: world.streamIdleTimeout,
  signal: world.terminate,
});

/**
 * The head towards the client. The type and the marks are ours; of the service's headers come those of the allow-list. Text
 * that nothing authenticates is marked, errors and the list of models alike (design decision 18).
 */
function headersFor(call: Call, { response, epoch }: Answered, body: 'json' | 'events' | 'plain'): Headers {
  const { requestId } = call;
  const { dialect, encrypted } = call.match.endpoint;
  return {
    ...requestIdHeader({ dialect, requestId }),
    ...responseHeaders(response.rawHeaders), // an id of the service wins over ours, one of the client over both
    ...INERT_HEADERS,
    'content-type':
      body === 'plain' ? plainContentType(response.headers['content-type']) : CONTENT_TYPES[body],
    ...call.extraHeaders,
    ...(body === 'plain'
      ? {
          'privatemode-proxy-unauthenticated': 'true',
          ...(encrypted ? { 'privatemode-encrypted': 'false' } : {}),
        }
      : receiptHeaders(epoch, requestId)),
  };
}

const CONTENT_TYPES = { json: 'application/json', events: 'text/event-stream' } as const;

/**
 * Gives the client what the opener makes of the answer; the response stays open. Resolves with what ended it early, or
 * undefined. Rejects with ClientGone where the client left.
 */
function relayToClient(
  call: Call,
  { response }: Answered,
  opener: ResponseOpener,
  onFirstBytes?: () => void,
  alive?: StreamKeepalive,
): Promise<PrivatemodeError | undefined> {
  const { res } = call;
  const { promise, resolve, reject } = Promise.withResolvers<PrivatemodeError | undefined>();
  const running = relay(response, opener, {
    ...relayOptions(call),
    write: (bytes) => {
      alive?.wrote(bytes);
      return res.write(bytes);
    },
    ...(onFirstBytes === undefined ? {} : { onFirstBytes }),
  });
  const gone = (): void => {
    reject(new ClientGone());
    running.stop();
  };
  if (res.destroyed) gone();
  res.once('close', gone);
  res.on('drain', running.resume);
  void running.ended.then((failure) => {
    res.off('close', gone);
    res.off('drain', running.resume);
    resolve(failure);
  });
  return promise;
}

function finished(call: Call): void {
  const { res, world } = call;
  count(world.counters.responses, res.statusCode);
  logStage(call, 'done');
}
