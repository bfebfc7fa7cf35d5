/**
 * The exchanges that are recorded: what applications send and how the service answers, sealed under a fixed
 * secret. All literal, so that the same bytes go in every time. One for each kind of bytes: of endpoint, of
 * framing, of headers, of refusal and of end.
 */
import { ENDPOINTS, PLAIN_MEMBERS, plainOf } from '../remote/endpoints.ts';
import { EXCHANGE } from '../remote/exchange-fixture.ts';
import { formBody } from '../remote/forms.ts';
import { type HonestExchange, honestExchanges } from '../remote/honest-exchanges.ts';
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
import { NEXT_SECRET } from './gateway.ts';
import { chatBody, get, post } from './gateway-fixture.ts';
import { type PlannedExchange, UPSTREAM_DATE } from './recording.ts';

const HONEST = new Map(honestExchanges().map((exchange) => [exchange.name, exchange]));
const honest = (name: string): HonestExchange => HONEST.get(name)!;

type Json = Readonly<Record<string, unknown>>;
const JSON_TYPE = { 'Content-Type': 'application/json' };

/** The service's answer to a sealed request. */
function answered({ api, events, body, status = 200 }: HonestExchange, request: Buffer): string {
  if (events !== undefined) {
    const pieces = sealedEvents({ api, events }, request);
    return STREAM_HEAD + pieces.map(chunked).join('') + LAST_CHUNK;
  }
  const sealed = sealedAnswers(request, plainOf(api).response);
  return http(status, Array.isArray(body) ? sealed.array(body) : sealed.object(body as Json), JSON_TYPE);
}

function sealedEvents(
  { api, events = [] }: Pick<HonestExchange, 'api' | 'events'>,
  request: Buffer,
): string[] {
  const sealed = sealedAnswers(request, plainOf(api).response);
  const named = api === 'messages';
  return [
    ...events.map((event) => sealed.event(event, named ? (event['type'] as string) : undefined)),
    ...(named ? [] : [DONE]),
  ];
}

const answering =
  (make: (request: Buffer) => string): Script =>
  async (scripted) =>
    scripted.write(make(await scripted.body()));

const completing = answering((request) => completion(request));
const saying = (text: string): Script => answering(() => text);
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
function requestOf({ api, request }: HonestExchange, more: Json = {}, version?: '1.0'): Buffer {
  const { path } = ENDPOINTS[api];
  const members = { ...request, ...more };
  if (api !== 'transcription' && api !== 'unstructured') {
    return post(JSON.stringify(members), { path, ...(version && { version }) });
  }
  const form = post(FORM(members), { path });
  const type = Buffer.from('application/json');
  const at = form.indexOf(type);
  const ofForm = Buffer.from('multipart/form-data; boundary=clients-own');
  return Buffer.concat([form.subarray(0, at), ofForm, form.subarray(at + type.length)]);
}

type Rest = Omit<Partial<PlannedExchange>, 'name'>;

/** An honest exchange from end to end; `asks` are further members of its request. */
const through = (exchange: string, name = exchange, asks: Json = {}, rest: Rest = {}): PlannedExchange => ({
  name,
  upstream: [answering((request) => answered(honest(exchange), request))],
  request: requestOf(honest(exchange), asks),
  ...rest,
});

/** A chat request that gets a whole completion; `lines` are headers of the application. */
const chat = (name: string, lines: readonly string[], rest: Rest = {}): PlannedExchange => ({
  name,
  upstream: [completing],
  request: post(chatBody(), { headers: lines }),
  ...rest,
});

/** A request that must not leave. */
const local = (
  name: string,
  request: string | Buffer,
  gateway: PlannedExchange['gateway'] = {},
): PlannedExchange => ({
  name,
  gateway,
  request: typeof request === 'string' ? Buffer.from(request, 'latin1') : request,
});

const withMethod = (method: string, path: string, headers: readonly string[] = []): Buffer =>
  Buffer.from(get(path, headers).replace('GET', method));

/** Bytes in so many pieces. */
function pieces(bytes: Buffer, count: number): Buffer[] {
  const size = Math.ceil(bytes.length / count);
  return Array.from({ length: count }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
}

/** A chat request in chunked framing, with its body cut into so many chunks. */
const chunkedUpload = (body: string, count: number): Buffer[] => [
  post('', { headers: ['Transfer-Encoding: chunked'] }),
  ...pieces(Buffer.from(body), count).map((part) => Buffer.from(chunked(part.toString('latin1')), 'latin1')),
  Buffer.from(LAST_CHUNK),
];

const OWN_SALT = { cache_salt: 'a salt of the request, 32 bytes or more' };
const SHARED_SALT = 'a salt of the operator, for all requests';
const LONG_PROMPT = { messages: [{ role: 'user', content: 'words and more words. '.repeat(20) }] };
const KEY = ['Authorization: Bearer client-key'];
const CORS = { cors: { allowedOrigins: ['https://app.example'], ownNames: ['proxy.internal'] } };
const APP = 'Origin: https://app.example';
const MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}';

/** All that comes before that event of a stream, then what `make` makes of it. */
const upToEvent = (name: string, count: number, make: (event: string) => string): Script =>
  answering((request) => {
    const events = sealedEvents(honest(name), request);
    return STREAM_HEAD + events.slice(0, count).map(chunked).join('') + make(events[count]!);
  });
const alteredAt = (name: string, count: number): Script =>
  upToEvent(name, count, (event) => chunked(tampered(event)));

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
  // Each kind of body, whole and as a stream.
  through('chat-whole'),
  through('chat-stream'),
  through('messages-stream'),
  through('transcription-whole'),
  through('transcription-stream'),
  through('unstructured-whole'),
  {
    name: 'models',
    upstream: [saying(http(200, MODELS, JSON_TYPE))],
    request: Buffer.from(get('/v1/models?limit=2&api_key=x&after=m', KEY)),
  },
  through('chat-stream', 'a chat that wants its usage at the end', {
    stream_options: { include_usage: true },
  }),

  // The salt with its shard key, whose key, and headers both ways.
  through('chat-whole', 'chat with a shared salt', LONG_PROMPT, {
    gateway: { deps: { salt: { shared: SHARED_SALT } } },
  }),
  chat('many headers of a client', MANY_HEADERS),
  chat('many headers of the service', [], {
    upstream: [answering((request) => completion(request, SERVICE_HEADERS))],
  }),

  // Web pages, methods and paths.
  local(
    'a preflight of an origin that is allowed',
    withMethod('OPTIONS', '/v1/chat/completions', [
      APP,
      'Access-Control-Request-Method: POST',
      'Access-Control-Request-Headers: authorization, content-type',
      'Access-Control-Request-Private-Network: true',
    ]),
    CORS,
  ),
  local(
    'count_tokens',
    post(JSON.stringify({ model: 'm', system: 'be brief', ...LONG_PROMPT }), {
      path: '/v1/messages/count_tokens',
      headers: ['X-Request-Id: client-id-1'],
    }),
  ),

  // Refusals of ours, and errors of the service.
  local('no JSON, in the message style', post('[]', { path: '/v1/messages' })),
  through('chat-error', 'a sealed error'),
  chat('a tampered answer', [], { upstream: [answering((request) => tampered(completion(request)))] }),

  // Second attempts.
  chat('a secret that the service has forgotten', KEY, { upstream: [forgetting, knowingNext] }),

  // A stream that ends badly, and one without chunks.
  through('chat-stream', 'a tampered event of a chat', {}, { upstream: [alteredAt('chat-stream', 2)] }),
  through(
    'messages-stream',
    'a tampered event of a message',
    {},
    { upstream: [alteredAt('messages-stream', 4)] },
  ),
  through(
    'chat-stream',
    'a stream to an HTTP/1.0 client',
    {},
    { request: requestOf(honest('chat-stream'), {}, '1.0') },
  ),

  // How bodies arrive, and are written.
  {
    name: 'a prompt of 3 MB',
    gateway: { settings: { maxBodyBytes: 8 * 1024 * 1024 } },
    upstream: [completing],
    request: post(chatBody({ user: 'x'.repeat(3_000_000), ...OWN_SALT })),
  },
  {
    name: 'a chunked body',
    upstream: [completing],
    request: chunkedUpload(chatBody({ n: 1, user: 'somebody' }), 5),
  },
  {
    name: 'names and numbers as they were written',
    upstream: [completing],
    request: post(
      ' {"mo\\u0064el" : "m", "a.b":1.50e+10 ,"a":"\\ud800","aZ":[ 1, 2 ],\n"messages":[] ,"n":null, "x*":12345678901234567890} ',
    ),
  },
];
