/**
 * The exchanges that are recorded: what applications send and how the service answers, sealed under a fixed
 * secret. All literal, so that the same bytes go in every time.
 */
import { PrivatemodeError } from '../../../lib/errors.ts';
import { EXCHANGE } from '../remote/exchange-fixture.ts';
import { formBody } from '../remote/forms.ts';
import { type HonestExchange, honestExchanges, PLAIN } from '../remote/honest-exchanges.ts';
import { PLAIN_MEMBERS } from '../remote/plain-members.ts';
import type { Script } from '../remote/scripted-upstream.ts';
import {
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../remote/sealed-answers.ts';
import { standing } from '../remote/standing.ts';
import { PATHS } from '../remote/transcripts/transcript.ts';
import { fakeSession, NEXT_SECRET } from './gateway.ts';
import { chatBody, get, post } from './gateway-fixture.ts';
import { type PlannedExchange, UPSTREAM_DATE } from './recording.ts';

const HONEST: ReadonlyMap<string, HonestExchange> = new Map(
  honestExchanges().map((exchange) => [exchange.name, exchange]),
);

function honest(name: string): HonestExchange {
  const found = HONEST.get(name);
  if (found === undefined) throw new Error(`no exchange ${name}`);
  return found;
}

type Json = Readonly<Record<string, unknown>>;
const JSON_TYPE = { 'Content-Type': 'application/json' };

/** The service's answer to a sealed request. */
function answered({ api, events, body, status = 200 }: HonestExchange, request: Buffer): string {
  if (events !== undefined) {
    const pieces = sealedEvents({ api, events }, request);
    return STREAM_HEAD + pieces.map(chunked).join('') + LAST_CHUNK;
  }
  const sealed = sealedAnswers(request, PLAIN[api].response);
  return http(status, Array.isArray(body) ? sealed.array(body) : sealed.object(body as Json), JSON_TYPE);
}

function sealedEvents(
  { api, events = [] }: Pick<HonestExchange, 'api' | 'events'>,
  request: Buffer,
): string[] {
  const sealed = sealedAnswers(request, PLAIN[api].response);
  const named = api === 'messages';
  const failed = events.some((event) => (event['error'] ?? null) !== null);
  return [
    ...events.map((event) => sealed.event(event, named ? (event['type'] as string) : undefined)),
    ...(named || failed ? [] : [DONE]),
  ];
}

const answering =
  (make: (request: Buffer) => string): Script =>
  async (scripted) =>
    scripted.write(make(await scripted.body()));

const completing = answering((request) => completion(request));
const saying = (text: string): Script => answering(() => text);
const resetting: Script = async (scripted) => {
  await scripted.body();
  scripted.reset();
};

const CONTENT_TYPE_OF_FORM = 'multipart/form-data; boundary=clients-own';
const FORM = (fields: Json): Buffer =>
  formBody('clients-own', [
    {
      name: 'file',
      filename: 'speech.wav',
      contentType: 'audio/wav',
      body: Buffer.from('RIFF\0\xff', 'latin1'),
    },
    ...Object.entries(fields).map(([name, value]) => ({ name, body: Buffer.from(String(value)) })),
  ]);

/** The request of an honest exchange as its application sends it. */
function requestOf(
  { api, request }: HonestExchange,
  more: Json = {},
  headers: readonly string[] = [],
): Buffer {
  const path = PATHS[api];
  const members = { ...request, ...more };
  if (api === 'transcription') return form(path, FORM(members), headers);
  if (api === 'unstructured') return form(path, FORM(members), headers);
  return post(JSON.stringify(members), { path, headers });
}

function form(path: string, body: Buffer, headers: readonly string[] = []): Buffer {
  const request = post(body, { path, headers });
  const type = Buffer.from('Content-Type: application/json');
  const at = request.indexOf(type);
  return Buffer.concat([
    request.subarray(0, at),
    Buffer.from(`Content-Type: ${CONTENT_TYPE_OF_FORM}`),
    request.subarray(at + type.length),
  ]);
}

/** An honest exchange from end to end; `asks` are further members of its request. */
const through = (
  name: string,
  { asks = {}, ...rest }: Partial<PlannedExchange> & { readonly asks?: Json } = {},
): PlannedExchange => {
  const exchange = honest(name);
  return {
    name,
    upstream: [answering((request) => answered(exchange, request))],
    requests: [requestOf(exchange, asks)],
    ...rest,
  };
};

/** A chat request that gets a whole completion; `lines` are headers of the application. */
const chat = (
  name: string,
  lines: readonly string[],
  rest: Omit<Partial<PlannedExchange>, 'name'> = {},
): PlannedExchange => ({
  name,
  upstream: [completing],
  requests: [post(chatBody(), { headers: lines })],
  ...rest,
});

/** A request that must not leave. */
const local = (
  name: string,
  request: string | Buffer | readonly Buffer[],
  gateway: PlannedExchange['gateway'] = {},
): PlannedExchange => ({
  name,
  gateway,
  requests: [typeof request === 'string' ? Buffer.from(request, 'latin1') : request],
});

const options = (headers: readonly string[]): string =>
  get('/v1/chat/completions', headers).replace('GET', 'OPTIONS');
const head = (path: string): Buffer => Buffer.from(get(path).replace('GET', 'HEAD'));

/** Bytes in so many pieces. */
function pieces(bytes: Buffer, count: number): Buffer[] {
  const size = Math.ceil(bytes.length / count);
  return Array.from({ length: count }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
}

/** A chat request in chunked framing, with its body cut into so many chunks. */
function chunkedUpload(body: string, count: number, path?: string): Buffer[] {
  const whole = post('', {
    headers: ['Transfer-Encoding: chunked'],
    ...(path === undefined ? {} : { path }),
  });
  const parts = pieces(Buffer.from(body), count).map((part) =>
    Buffer.from(chunked(part.toString('latin1')), 'latin1'),
  );
  return [whole, ...parts, Buffer.from(LAST_CHUNK)];
}

const STREAM = { stream: true };
const OWN_SALT = { cache_salt: 'a salt of the request, 32 bytes or more' };
const SHARED_SALT = 'a salt of the operator, for all requests';
const LONG_PROMPT = { messages: [{ role: 'user', content: 'words and more words. '.repeat(20) }] };
const KEY = ['Authorization: Bearer client-key'];
const PLACEHOLDER = ['Authorization: Bearer placeholder'];
const X_API_KEY = ['x-api-key: client-key'];
const keys = (apiKeyFallback: 'never' | 'always' | 'if-placeholder') => ({ settings: { apiKeyFallback } });
const NO_KEY = { deps: { key: { value: () => undefined } } };
const CORS = { cors: { allowedOrigins: ['https://app.example'], ownNames: ['proxy.internal'] } };
const ANY_ORIGIN = { cors: { allowedOrigins: ['*'], ownNames: [] } };
const APP = 'Origin: https://app.example';
const EVIL = 'Origin: https://evil.example';
const AS_EVENTS = ['Accept: text/event-stream'];
const USAGE = { include_usage: true };
const USAGE_ALWAYS = { include_usage: true, continuous_usage_stats: true };
const MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}';
const LARGE = { maxBodyBytes: 8 * 1024 * 1024 };
const COUNT_TOKENS = '/v1/messages/count_tokens';

/** A sealed error of the service. */
const sealedError = (status: number, api: 'chat' | 'messages'): Script =>
  answering((request) => {
    const { body } = honest(`${api}-error`);
    return http(status, sealedAnswers(request, PLAIN[api].response).object(body as Json), {
      ...JSON_TYPE,
      'Retry-After': '7',
    });
  });

/** All that comes before that event of a stream, then what `make` makes of it. */
const upToEvent = (name: string, count: number, make: (event: string) => string): Script =>
  answering((request) => {
    const events = sealedEvents(honest(name), request);
    return STREAM_HEAD + events.slice(0, count).map(chunked).join('') + make(events[count]!);
  });

const forgetting = saying(plainError(500, `no secret for ID "${EXCHANGE.id}"`));
const knowingNext = answering((request) =>
  http(
    200,
    sealedAnswers(request, PLAIN_MEMBERS.R, NEXT_SECRET).object(honest('chat-whole').body as Json),
    JSON_TYPE,
  ),
);

/** Headers that may not pass, and some that may. */
const MANY_HEADERS = [
  'Accept: application/json',
  'Accept: text/plain',
  'Accept-Encoding: gzip, br',
  'Anthropic-Version: 2023-06-01',
  'anthropic-beta: one',
  'Anthropic-Beta: two',
  'OpenAI-Beta: assistants=v2',
  'OpenAI-Organization: org-1',
  'User-Agent: an-agent/1.0',
  'Cookie: a=b',
  'X-Forwarded-For: 192.0.2.1',
  'Privatemode-Secret-ID: forged',
  'Privatemode-Shard-Key: forged',
  'Accept-Language: de',
  'X-Request-Id: client-id-1',
  'Connection: keep-alive, OpenAI-Beta',
];

const SERVICE_HEADERS = {
  ...JSON_TYPE,
  Date: UPSTREAM_DATE,
  'X-Request-Id': 'service-id',
  'Request-Id': 'service-id-2',
  'X-RateLimit-Remaining-Requests': '9',
  'anthropic-ratelimit-tokens-remaining': '8',
  'Retry-After': '1',
  'Cache-Control': 'private',
  'Set-Cookie': 'a=b',
  Server: 'service',
  'Access-Control-Allow-Origin': '*',
  'Openai-Organization': 'org-1',
};

export const PLANNED: readonly PlannedExchange[] = [
  // Every endpoint, whole and as a stream.
  through('chat-whole'),
  through('chat-whole-2'),
  through('chat-stream'),
  through('chat-stream-2'),
  through('chat-stream-tools'),
  through('chat-stream-error'),
  through('completions-whole'),
  through('completions-whole-batch'),
  through('completions-stream'),
  through('messages-whole'),
  through('messages-stream'),
  through('messages-stream-tool'),
  through('messages-stream-error'),
  through('embeddings-whole'),
  through('transcription-whole'),
  through('transcription-verbose'),
  through('transcription-stream'),
  through('unstructured-whole'),
  through('unstructured-empty'),
  {
    name: 'messages with ?beta=true and parameters that are dropped',
    upstream: [answering((request) => answered(honest('messages-whole'), request))],
    requests: [
      post(JSON.stringify(honest('messages-whole').request), { path: '/v1/messages?beta=true&key=secret' }),
    ],
  },
  {
    name: 'models',
    upstream: [saying(http(200, MODELS, JSON_TYPE))],
    requests: [Buffer.from(get('/v1/models?limit=2&api_key=x&after=m', KEY))],
  },
  {
    name: 'models, chunked by the service',
    upstream: [
      saying(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunked(MODELS)}${LAST_CHUNK}`,
      ),
    ],
    requests: [Buffer.from(get('/v1/models'))],
  },
  {
    name: 'one model',
    upstream: [saying(http(200, '{"id":"org/m","object":"model"}', JSON_TYPE))],
    requests: [Buffer.from(get('/v1/models/org/m'))],
  },
  {
    name: 'a model that the service does not have, in HTML',
    upstream: [saying(http(404, '<h1>not found</h1>', { 'Content-Type': 'text/html' }))],
    requests: [Buffer.from(get('/v1/models/none'))],
  },

  // The salt, and the shard key that goes with it.
  through('chat-whole', { name: "chat with the request's own salt", asks: { ...OWN_SALT, ...LONG_PROMPT } }),
  through('chat-whole', {
    name: 'chat with a shared salt',
    gateway: { deps: { salt: { shared: SHARED_SALT } } },
    asks: LONG_PROMPT,
  }),
  through('chat-whole', {
    name: "chat with the request's own salt and a shared one",
    gateway: { deps: { salt: { shared: SHARED_SALT } } },
    asks: { ...OWN_SALT, ...LONG_PROMPT },
  }),
  through('messages-stream', {
    name: 'messages with an empty salt and a shared one',
    gateway: { deps: { salt: { shared: SHARED_SALT } } },
    asks: { ...LONG_PROMPT, system: 'be brief', cache_salt: '' },
  }),
  local('a salt that is too short', post(chatBody({ cache_salt: 'short' }))),

  // Whose key.
  chat('key configured, always: a client with a key', KEY),
  chat('key configured, never: a client with a key', KEY, { gateway: keys('never') }),
  chat('key configured, never: a client without a key', [], { gateway: keys('never') }),
  chat('key configured, never: x-api-key', X_API_KEY, { gateway: keys('never') }),
  chat('key configured, if-placeholder: the placeholder', PLACEHOLDER, { gateway: keys('if-placeholder') }),
  chat('key configured, if-placeholder: a key', KEY, { gateway: keys('if-placeholder') }),
  chat('no key configured: a bearer', KEY, { gateway: NO_KEY }),
  chat('no key configured: x-api-key and a bearer', [...X_API_KEY, ...KEY], { gateway: NO_KEY }),
  chat('no key configured: x-api-key', X_API_KEY, { gateway: NO_KEY }),

  // Headers both ways.
  chat('many headers of a client', MANY_HEADERS),
  chat('many headers of the service', [], {
    upstream: [answering((request) => completion(request, SERVICE_HEADERS))],
  }),
  through('messages-stream', {
    name: 'a stream with ids of the client and the service',
    upstream: [
      answering((request) =>
        answered(honest('messages-stream'), request).replace(
          '\r\n\r\n',
          '\r\nRequest-Id: service-id\r\n\r\n',
        ),
      ),
    ],
    requests: [requestOf(honest('messages-stream'), {}, ['X-Request-Id: client-id-1'])],
  }),

  // Web pages.
  local(
    'a preflight of an origin that is allowed',
    options([
      APP,
      'Access-Control-Request-Method: POST',
      'Access-Control-Request-Headers: authorization, content-type',
      'Access-Control-Request-Private-Network: true',
    ]),
    CORS,
  ),
  local(
    'a preflight where any origin is allowed',
    options([EVIL, 'Access-Control-Request-Method: POST']),
    ANY_ORIGIN,
  ),
  local('a preflight of a foreign origin', options([EVIL, 'Access-Control-Request-Method: POST']), CORS),
  local('OPTIONS that is no preflight', options([]), CORS),
  local(
    'a page of a foreign origin',
    post(chatBody(), { headers: [EVIL, 'Sec-Fetch-Site: cross-site'] }),
    CORS,
  ),
  local(
    'a page under a name that is not ours',
    get('/v1', ['Sec-Fetch-Site: same-origin']).replace('localhost:8080', 'evil.example'),
  ),
  chat('a page that is allowed', [APP, 'Sec-Fetch-Site: cross-site'], { gateway: CORS }),
  local('an error for a page that is allowed', post('{', { headers: [APP] }), CORS),
  through('chat-stream', { name: 'a stream where any origin is allowed', gateway: ANY_ORIGIN }),

  // Methods and paths.
  {
    name: 'HEAD of the models',
    upstream: [saying(http(200, MODELS, JSON_TYPE))],
    requests: [head('/v1/models')],
  },
  local('HEAD of healthz', head('/healthz')),
  local('HEAD of chat', head('/v1/chat/completions')),
  local('GET of messages', get('/v1/messages')),
  {
    name: 'paths with a slash at the end and without a version',
    upstream: [completing, saying(http(200, MODELS, JSON_TYPE)), completing],
    requests: [
      post(chatBody(), { path: '/v1/chat/completions/' }),
      Buffer.from(get('/models/')),
      post(chatBody(), { path: '/chat/completions?x=1' }),
    ],
  },
  local('a path that does not exist', get('/v1/engines')),
  local('a path of the message style that does not exist', get('/v1/messages/batches')),
  local('a path that leaves the tree', get('/v1/../v1/models')),
  local('the responses API', post('{}', { path: '/v1/responses' })),
  local('/', get('/')),
  local('/v1', get('/v1')),
  local('/healthz', get('/healthz')),
  local('/readyz, ready', get('/readyz')),
  local('/readyz, awaiting a key', get('/readyz'), {
    session: fakeSession({ standing: () => standing('awaiting-key') }),
  }),
  local('/readyz, starting', get('/readyz'), {
    session: fakeSession({ standing: () => standing('starting') }),
  }),
  local(
    'count_tokens',
    post(JSON.stringify({ model: 'm', system: 'be brief', ...LONG_PROMPT }), {
      path: COUNT_TOKENS,
      headers: ['X-Request-Id: client-id-1'],
    }),
  ),
  local('count_tokens of what is no JSON', post('{"model":', { path: `/messages/count_tokens` })),

  // Requests that are wrong.
  local('no JSON', post('{"model":"m"')),
  local('no JSON, in the message style', post('[]', { path: '/v1/messages' })),
  local('no model', post('{"messages":[]}')),
  local('a body that is too large', post(chatBody({ user: 'x'.repeat(2_000) })), {
    settings: { maxBodyBytes: 1_000 },
  }),
  local('a chunked body that is too large', chunkedUpload(chatBody({ user: 'x'.repeat(2_000) }), 4), {
    settings: { maxBodyBytes: 1_000 },
  }),
  local('a transcription that is no form', post('{"model":"m"}', { path: PATHS.transcription })),
  local('a transcription as text', form(PATHS.transcription, FORM({ model: 'm', response_format: 'text' }))),
  local('a compressed body', post(chatBody(), { headers: ['Content-Encoding: gzip'] })),
  local('a plain member of the wrong kind', post(chatBody({ max_tokens: { a: 1 } }))),
  local('a repeated member', post('{"model":"m","messages":[],"messages":[]}')),
  local('a header that came twice', post(chatBody(), { headers: [...KEY, ...KEY] })),
  local('no Host', Buffer.from('GET /v1/models HTTP/1.1\r\n\r\n')),
  local('an error where events are accepted', post('{', { headers: AS_EVENTS })),
  local(
    'an error where events are accepted, in the message style',
    post('{', { path: '/v1/messages', headers: AS_EVENTS }),
  ),
  local('a session that fails', post(chatBody()), {
    session: fakeSession({ acquire: () => Promise.reject(new Error('a fault of the program')) }),
  }),

  // Errors of the service.
  through('chat-error', { name: 'a sealed error' }),
  chat('a sealed error with a hint when to retry', [], { upstream: [sealedError(429, 'chat')] }),
  through('messages-error', {
    name: 'a sealed error in the message style',
    upstream: [sealedError(529, 'messages')],
  }),
  chat('a plain error', [], { upstream: [saying(plainError(429, 'slow down', { 'Retry-After': '3' }))] }),
  chat('a plain error 500', [], { upstream: [saying(plainError(500, 'it broke'))] }),
  chat('an error that says neither', [], {
    upstream: [saying(http(503, 'overloaded', { 'Retry-After': '3' }))],
  }),
  chat('a success that is not encrypted', [], {
    upstream: [saying(http(200, '{}', { ...JSON_TYPE, 'Privatemode-Encrypted': 'false' }))],
  }),
  chat('a redirect', [], { upstream: [saying(http(307, '', { Location: 'https://elsewhere.example/' }))] }),
  chat('a stream that nobody asked for', [], {
    upstream: [answering((request) => answered(honest('chat-stream'), request))],
  }),
  chat('an answer that breaks off', [], {
    upstream: [
      async (scripted) => {
        await scripted.write(completion(await scripted.body()).slice(0, -30));
        scripted.end();
      },
    ],
  }),
  chat('no answer in time', [], { upstream: [() => {}], gateway: { settings: { firstByteTimeout: 300 } } }),
  chat('a tampered answer', [], { upstream: [answering((request) => tampered(completion(request)))] }),

  // Second attempts.
  chat('a secret that the service has forgotten', KEY, { upstream: [forgetting, knowingNext] }),
  chat('a secret that cannot be replaced', KEY, {
    upstream: [forgetting],
    gateway: {
      session: fakeSession({
        renewAfterDenial: () => Promise.reject(new PrivatemodeError('not_ready', 'was not verified')),
      }),
    },
  }),
  chat('a reset', [], { upstream: [resetting, completing] }),
  chat('two resets', [], { upstream: [resetting, resetting] }),
  chat('a connection that idled too long', [], {
    upstream: [completing, (scripted) => scripted.end(), completing],
    requests: [post(), post()],
  }),

  // Streams that end badly.
  through('chat-stream', {
    name: 'a tampered event of a chat',
    upstream: [upToEvent('chat-stream', 2, (event) => chunked(tampered(event)))],
  }),
  through('messages-stream', {
    name: 'a tampered event of a message',
    upstream: [upToEvent('messages-stream', 4, (event) => chunked(tampered(event)))],
  }),
  through('chat-stream', {
    name: 'a tampered first event',
    upstream: [upToEvent('chat-stream', 0, (event) => chunked(tampered(event)))],
  }),
  through('chat-stream', {
    name: 'a chat that ends without its last event',
    upstream: [upToEvent('chat-stream', 3, (event) => chunked(event) + LAST_CHUNK)],
  }),
  through('messages-stream', {
    name: 'a message that ends without its last event',
    upstream: [upToEvent('messages-stream', 5, (event) => chunked(event) + LAST_CHUNK)],
  }),
  through('chat-stream', {
    name: 'a chat whose connection closes',
    upstream: [
      async (scripted) => {
        const events = sealedEvents(honest('chat-stream'), await scripted.body());
        await scripted.write(STREAM_HEAD + chunked(events[0]!) + chunked(events[1]!));
        scripted.end();
      },
    ],
  }),
  through('chat-stream', { name: 'a stream without events', upstream: [saying(STREAM_HEAD + LAST_CHUNK)] }),
  through('chat-stream', {
    name: 'a stream to an HTTP/1.0 client',
    requests: [post(JSON.stringify(honest('chat-stream').request), { version: '1.0' })],
  }),
  through('chat-stream', {
    name: 'a stream with comments, ids and other line ends',
    upstream: [
      answering((request) => {
        const [first = '', ...events] = sealedEvents(honest('chat-stream'), request);
        const crlf = `: hello\r\n\r\n${first.replaceAll('\n', '\r\n')}`;
        return STREAM_HEAD + [crlf, 'id: 7\nretry: 10\n', ...events].map(chunked).join('') + LAST_CHUNK;
      }),
    ],
  }),

  through('chat-stream', {
    name: 'events that the service cut anywhere',
    upstream: [
      answering((request) => {
        const bytes = Buffer.from(sealedEvents(honest('chat-stream'), request).join(''));
        const cut = pieces(bytes, 70).map((piece) => chunked(piece.toString('latin1')));
        return STREAM_HEAD + cut.join('') + LAST_CHUNK;
      }),
    ],
  }),
  through('chat-stream', {
    name: 'an event of 100 kB',
    upstream: [
      answering((request) => {
        const sealed = sealedAnswers(request);
        const events = [
          sealed.chunk('one'),
          sealed.chunk('x'.repeat(100_000)),
          sealed.chunk('', 'stop'),
          DONE,
        ];
        return STREAM_HEAD + events.map(chunked).join('') + LAST_CHUNK;
      }),
    ],
  }),
  through('chat-stream', {
    name: 'a tampered event to an HTTP/1.0 client',
    upstream: [upToEvent('chat-stream', 2, (event) => chunked(tampered(event)))],
    requests: [post(JSON.stringify(honest('chat-stream').request), { version: '1.0' })],
  }),

  // Usage that was asked for, and that was not.
  through('chat-stream', { name: 'a chat that wants its usage at the end', asks: { stream_options: USAGE } }),
  through('chat-stream', {
    name: 'a chat that wants its usage in every event',
    asks: { stream_options: USAGE_ALWAYS },
  }),
  through('completions-stream', {
    name: 'a completion that wants its usage at the end',
    asks: { stream_options: USAGE },
  }),
  through('transcription-stream', {
    name: 'a transcription that wants its usage',
    asks: { stream_include_usage: 'true' },
  }),

  // How bodies arrive.
  {
    name: 'a prompt of 3 MB',
    gateway: { settings: LARGE },
    upstream: [completing],
    requests: [post(chatBody({ user: 'x'.repeat(3_000_000), ...OWN_SALT }))],
  },
  {
    name: 'an answer of 300 kB',
    upstream: [
      answering((request) => {
        const message = { role: 'assistant', content: 'long '.repeat(60_000) };
        const body = honest('chat-whole').body as Json;
        const choices = [{ index: 0, message, finish_reason: 'stop' }];
        return http(200, sealedAnswers(request).object({ ...body, choices }), JSON_TYPE);
      }),
    ],
    requests: [post()],
  },
  {
    name: 'a body in many pieces',
    upstream: [completing],
    requests: [pieces(post(chatBody({ temperature: 0.5, ...OWN_SALT, ...LONG_PROMPT })), 40)],
  },
  {
    name: 'a chunked body',
    upstream: [completing],
    requests: [chunkedUpload(chatBody({ n: 1, user: 'somebody' }), 5)],
  },
  {
    name: 'a chunked form in many pieces',
    upstream: [answering((request) => answered(honest('transcription-whole'), request))],
    requests: [pieces(requestOf(honest('transcription-whole')), 9)],
  },
  {
    name: 'a body after 100 Continue',
    upstream: [completing],
    requests: [pieces(post(chatBody(), { headers: ['Expect: 100-continue'] }), 2)],
  },
  {
    name: 'two streams on one connection',
    upstream: [
      answering((request) => answered(honest('chat-stream'), request)),
      answering((request) => answered(honest('messages-stream'), request)),
    ],
    requests: [post(chatBody({ ...STREAM, model: 'grüße-ß' })), requestOf(honest('messages-stream'))],
  },
  {
    name: 'names and numbers as they were written',
    upstream: [completing],
    requests: [
      post(
        ' {"mo\\u0064el" : "m", "a.b":1.50e+10 ,"a":"\\ud800","aZ":[ 1, 2 ],\n"messages":[] ,"n":null, "x*":12345678901234567890} ',
      ),
    ],
  },
];
