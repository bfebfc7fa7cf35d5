/**
 * The service's own gateway, turned hostile: it terminates TLS between the proxy and the attested worker, has
 * no key, and edits what it likes. Attestation passes through it untouched.
 */
import { writeFileSync } from 'node:fs';
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Agent, createServer, request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import type { Simulator } from '../../../simulator/simulator.ts';
import { startStack } from '../doors/stack.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { ENDPOINTS } from './endpoints.ts';
import type { HonestExchange } from './honest-exchanges.ts';
import { opened } from './loopback.ts';
import { createTestAuthority } from './tls-authority.ts';
import { parseBody, parseEvents, type WireBody, type WireEvent, writeBody, writeEvent } from './wire-text.ts';

export interface WireRequest {
  readonly method: string;
  readonly path: string;
  /** As they came, names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** latin1 text: one character a byte. */
  readonly body: string;
}

/** A response as wire text: a stream as events, JSON as members, anything else as text. */
export interface WireResponse {
  readonly status: number;
  /** Names in lower case; the framing is made anew. */
  readonly headers: Readonly<Record<string, string>>;
  readonly content:
    | { readonly events: readonly WireEvent[] }
    | { readonly body: WireBody }
    | { readonly text: string };
}

/** Asks the worker. */
export type Ask = (request: WireRequest) => Promise<WireResponse>;

/** What is done to one exchange. */
export interface Attack {
  /**
   * The request to go on with, or a response with which the worker never hears of it. May ask as often as it
   * likes.
   */
  readonly onRequest?: (request: WireRequest, ask: Ask) => Promise<WireRequest | WireResponse>;
  /** `request` is the one that the proxy sent. */
  readonly onResponse?: (response: WireResponse, request: WireRequest) => WireResponse;
}

export interface HostileStack {
  /** http://127.0.0.1:PORT of the proxy, or the URL of the library's door. */
  readonly url: string;
  /** What is done to every inference request from now on; undefined: nothing. */
  attack: Attack | undefined;
  close(): Promise<void>;
}

const INFERENCE: ReadonlySet<string> = new Set(Object.values(ENDPOINTS).map(({ path }) => path));
const isInference = (path: string): boolean => INFERENCE.has(path.split('?', 1)[0] as string);

/** Headers of the hop, which are made anew. */
const FRAMING = /^(?:connection|content-length|date|keep-alive|transfer-encoding)$/;

const withoutFraming = (headers: NodeJS.Dict<string | string[]>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !FRAMING.test(name))
      .map(([name, value]) => [name, String(value)]),
  );

async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function contentOf(contentType: string, text: string): WireResponse['content'] {
  if (contentType.includes('event-stream')) return { events: parseEvents(text) };
  return contentType.includes('json') && text !== '' ? { body: parseBody(text) } : { text };
}

/** Asks the server at that port of localhost. */
function asker(port: number, ca: string): { readonly ask: Ask; close(): void } {
  const agent = new Agent({ keepAlive: true, ca });
  const ask: Ask = async ({ method, path, headers, body }) => {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const bytes = Buffer.from(body, 'latin1');
    const outgoing: OutgoingHttpHeaders = { ...withoutFraming(headers), 'content-length': bytes.length };
    httpsRequest({ agent, host: 'localhost', port, method, path, headers: outgoing })
      .on('response', resolve)
      .on('error', reject)
      .end(bytes);
    const response = await promise;
    const text = (await bytesOf(response)).toString('latin1');
    const answered = withoutFraming(response.headers);
    const content = isInference(path) ? contentOf(answered['content-type'] ?? '', text) : { text };
    return { status: response.statusCode as number, headers: answered, content };
  };
  return { ask, close: () => agent.destroy() };
}

/** What the proxy gets in answer to `request`. */
async function attacked(
  { onRequest, onResponse }: Attack,
  request: WireRequest,
  ask: Ask,
): Promise<WireResponse> {
  const next = (await onRequest?.(request, ask)) ?? request;
  const response = 'status' in next ? next : await ask(next);
  return onResponse?.(response, request) ?? response;
}

/**
 * Serves on a port of localhost with a certificate of its own authority. Inference requests go through
 * `attack`, whatever it is then; everything else passes as it is.
 */
async function serveHostileGateway(
  worker: Pick<Simulator, 'port' | 'caPem'>,
  attack: () => Attack | undefined,
): Promise<{ readonly port: number; readonly caPem: string; close(): Promise<void> }> {
  const authority = createTestAuthority('hostile gateway');
  const { ask, close } = asker(worker.port, worker.caPem);
  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const request: WireRequest = {
      method: incoming.method ?? '',
      path: incoming.url ?? '',
      headers: withoutFraming(incoming.headers),
      body: (await bytesOf(incoming)).toString('latin1'),
    };
    const current = isInference(request.path) ? attack() : undefined;
    const { status, headers, content } = await attacked(current ?? {}, request, ask);
    outgoing.writeHead(status, headers);
    if ('events' in content) for (const event of content.events) outgoing.write(writeEvent(event), 'latin1');
    else outgoing.write('body' in content ? writeBody(content.body) : content.text, 'latin1');
    outgoing.end();
  };
  const server = createServer(authority.issue(['localhost']), (incoming, outgoing) => {
    answer(incoming, outgoing).catch(() => incoming.destroy());
  });
  const { port, close: end } = await opened(server, 'localhost');
  return {
    port,
    caPem: authority.pem,
    close() {
      close();
      return end();
    },
  };
}

/** What the model server of that name answers, as a transcript of the simulator. */
function transcriptOf({ events, status = 200, body, api }: HonestExchange): object {
  if (events === undefined) return { unary: { status, body } };
  const named = events.map((data) => (api === 'messages' ? { event: data['type'], data } : { data }));
  return { events: api === 'messages' ? named : [...named, { data: '[DONE]' }] };
}

/**
 * The real program (or the library, as TEST_DOOR says), a simulated deployment, and the hostile gateway
 * between them. The model server answers with these exchanges, by the name of the model; unstructured
 * requests have none and get what the simulator makes of them.
 */
export async function startHostileStack(exchanges: readonly HonestExchange[]): Promise<HostileStack> {
  const transcripts = join(temporaryDirectory('privatemode-hostile-'), 'transcripts.json');
  const byModel = exchanges
    .filter(({ api }) => api !== 'unstructured')
    .map((exchange) => [exchange.request['model'], transcriptOf(exchange)]);
  writeFileSync(transcripts, JSON.stringify(Object.fromEntries(byModel)));
  const hostile = { attack: undefined as Attack | undefined };
  const { url, close } = await startStack({
    simulator: { transcripts },
    inFront: (simulator) => serveHostileGateway(simulator, () => hostile.attack),
  });
  return Object.assign(hostile, { url, close });
}

/** Edits events of streams alone. */
export const onEvents = (
  edit: (events: readonly WireEvent[], request: WireRequest) => readonly WireEvent[],
): Attack => ({
  onResponse: (response, request) =>
    'events' in response.content
      ? { ...response, content: { events: edit(response.content.events, request) } }
      : response,
});

/** Edits the members of whole bodies alone. */
export const onMembers = (
  edit: (members: WireBody['members'], request: WireRequest) => WireBody['members'],
): Attack => ({
  onResponse: (response, request) => {
    if (!('body' in response.content)) return response;
    const { isArray, members } = response.content.body;
    return { ...response, content: { body: { isArray, members: edit(members, request) } } };
  },
});

/** Edits the plain members of JSON requests, and the model in the head with them; raw JSON values by name. */
export const onPlain = (values: Readonly<Record<string, string>>): Attack => ({
  onRequest: async (request) => {
    if (!request.body.startsWith('{')) return withFields(request, values);
    const members = new Map(parseBody(request.body).members.map(({ name, value }) => [name, value]));
    for (const [name, value] of Object.entries(values)) members.set(name, value);
    const all = [...members].map(([name, value]) => ({ name, value }));
    return { ...withModel(request, values), body: writeBody({ isArray: false, members: all }) };
  },
});

const withModel = (request: WireRequest, { model }: Readonly<Record<string, string>>): WireRequest =>
  model === undefined
    ? request
    : {
        ...request,
        headers: { ...request.headers, 'privatemode-target-model': JSON.parse(model) as string },
      };

/** The same of a form: its fields as text. */
function withFields(request: WireRequest, values: Readonly<Record<string, string>>): WireRequest {
  let { body } = request;
  for (const [name, value] of Object.entries(values)) {
    body = body.replace(
      new RegExp(`(name="${name}"\\r\\n\\r\\n)[^\\r]*`),
      (_, head: string) => `${head}${value.replaceAll('"', '')}`,
    );
  }
  return { ...withModel(request, values), body };
}
