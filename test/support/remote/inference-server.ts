/**
 * The inference side of the simulator on a port of its own, over plain HTTP, and a client that knows its
 * secret.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { ModelOptions } from '../../../simulator/context.ts';
import { createFaults, type Faults } from '../../../simulator/faults.ts';
import type { Exchange, ExchangeLog } from '../../../simulator/inference/exchanges.ts';
import { createInferenceHandler } from '../../../simulator/inference/handler.ts';
import { createRecorder, type Recorder } from '../../../simulator/recorder.ts';
import { createSecretStore, type MutableSecretStore } from '../../../simulator/secrets.ts';
import { eventually } from '../processes/eventually.ts';
import {
  type Answer,
  Attempt,
  type Call,
  call,
  goodHeaders,
  newSecret,
  PLAIN,
  type Secret,
} from './literal-client.ts';

export const SALT = '0123456789abcdef0123456789abcdef';

/** How a test calls one JSON endpoint of the salted kind: path, plain members both ways. */
export const DIALECTS = {
  chat: { path: '/v1/chat/completions', request: PLAIN.chat, answer: PLAIN.answer },
  completions: { path: '/v1/completions', request: PLAIN.chat, answer: PLAIN.answer },
  messages: { path: '/v1/messages?beta=true', request: PLAIN.messages, answer: PLAIN.messagesAnswer },
  embeddings: { path: '/v1/embeddings', request: PLAIN.embeddings, answer: PLAIN.answer },
} as const;

export type DialectName = keyof typeof DIALECTS;

/** The members of a small good request. */
export function membersOf(
  dialect: DialectName,
  model: string,
  text: string,
  stream: boolean,
): Record<string, unknown> {
  const salted = { model, stream, cache_salt: SALT };
  if (dialect === 'embeddings') return { model, input: text };
  if (dialect === 'completions') return { ...salted, prompt: text };
  return { ...salted, max_tokens: 64, messages: [{ role: 'user', content: text }] };
}

export interface Exchanged {
  readonly attempt: Attempt;
  readonly answer: Answer;
}

export interface InferenceServer {
  readonly port: number;
  readonly secret: Secret;
  readonly secrets: MutableSecretStore;
  readonly recorder: Recorder;
  readonly exchanges: ExchangeLog;
  readonly faults: Faults;
  /** Seals and sends a JSON request; `head` and `rest` override headers and the way of calling. */
  ask(
    dialect: DialectName,
    members: Record<string, unknown>,
    head?: Readonly<Record<string, string | string[]>>,
    rest?: Partial<Call>,
  ): Promise<Exchanged>;
  /** Sends a body as it is. */
  send(
    dialect: DialectName,
    body: string | Uint8Array,
    head?: Record<string, string | undefined>,
  ): Promise<Answer>;
  /** The latest exchange once the server is done with it. */
  finished(): Promise<Exchange>;
  close(): Promise<void>;
}

export async function startInference(model: ModelOptions = {}): Promise<InferenceServer> {
  const secret = newSecret();
  const secrets = createSecretStore(3_600_000, Date.now);
  secrets.put(secret.id, secret.bytes);
  const faults = createFaults();
  const { recorder, tap } = createRecorder();
  const handler = createInferenceHandler({
    secrets,
    recorder,
    model,
    faults,
    apiKeys: (key) => key === 'key',
    now: () => 1_700_000_000_000,
    reset: ({ socket }) => void socket.resetAndDestroy(),
  });
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    tap(request);
    handler(request, response);
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  return {
    port,
    secret,
    secrets,
    recorder,
    exchanges: handler.exchanges,
    faults,
    async ask(dialect, members, head = {}, rest = {}) {
      const attempt = new Attempt(secret);
      const { path, request } = DIALECTS[dialect];
      const answer = await call({
        port,
        path,
        headers: {
          ...goodHeaders(port, secret, String(members['model'])),
          'content-type': 'application/json',
          ...head,
        },
        body: attempt.sealObject(members, request),
        ...rest,
      });
      return { attempt, answer };
    },
    send(dialect, body, head = {}) {
      const headers: Record<string, string> = {};
      for (const [name, value] of Object.entries({ ...goodHeaders(port, secret, 'm'), ...head })) {
        if (value !== undefined) headers[name] = value;
      }
      return call({ port, path: DIALECTS[dialect].path, headers, body });
    },
    async finished() {
      await eventually('the server to be done', () => handler.exchanges.inFlight() === 0);
      const last = handler.exchanges.last();
      if (last === undefined) throw new Error('there was no exchange');
      return last;
    },
    async close() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/** One good exchange whose answer is JSON, decrypted; asserts status, framing and that nothing is marked. */
export async function askUnary<T>(
  server: InferenceServer,
  dialect: DialectName,
  members: Record<string, unknown>,
  status = 200,
): Promise<T> {
  const { attempt, answer } = await server.ask(dialect, members);
  assert.equal(answer.status, status, answer.body.toString());
  assert.equal(answer.headers['content-type'], 'application/json');
  assert.equal(answer.headers['content-length'], String(answer.body.length));
  assert.equal(answer.headers['privatemode-encrypted'], undefined);
  return attempt.openValue(answer.body.toString(), DIALECTS[dialect].answer) as T;
}

/** One good exchange whose answer is an event stream that ends well, decrypted. */
export async function askStream<T>(
  server: InferenceServer,
  dialect: DialectName,
  members: Record<string, unknown>,
): Promise<{ event?: string; data: T }[]> {
  const { attempt, answer } = await server.ask(dialect, members);
  assert.equal(answer.status, 200, answer.body.toString());
  assert.equal(answer.broken, undefined);
  assert.match(String(answer.headers['content-type']), /^text\/event-stream/);
  assert.equal(answer.headers['content-length'], undefined);
  return attempt.openEvents(answer.body.toString(), DIALECTS[dialect].answer) as {
    event?: string;
    data: T;
  }[];
}
