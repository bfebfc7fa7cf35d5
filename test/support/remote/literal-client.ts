/**
 * A client of the inference protocol for the tests of the simulator (docs/protocol/inference.md 2, 4 to 7).
 */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import type { Simulator } from '../../../simulator/simulator.ts';
import { ENDPOINTS, type LiteralEndpoint } from './endpoints.ts';
import { type LiteralExchange, literalOpen, literalOrder, literalSeal } from './literal-envelope.ts';
import { type Answer, call } from './simulator.ts';

export interface Secret {
  readonly id: string;
  readonly bytes: Buffer;
}

/** A secret whose id is the hash of its own bytes: any base64 text of 44 characters will do here. */
export function newSecret(): Secret {
  const bytes = randomBytes(32);
  return { id: createHash('sha256').update(bytes).digest('base64'), bytes };
}

export const SALT = '0123456789abcdef0123456789abcdef';

const dialect = ({ path, plain }: LiteralEndpoint, query = '') => ({
  path: `${path}${query}`,
  ...{ request: [...plain.request], answer: [...plain.response] },
});
/** How a test calls one JSON endpoint: path, plain members both ways. */
export const DIALECTS = {
  chat: dialect(ENDPOINTS.chat),
  completions: dialect(ENDPOINTS.completions),
  messages: dialect(ENDPOINTS.messages, '?beta=true'),
  embeddings: dialect(ENDPOINTS.embeddings),
} as const;

export type Dialect = keyof typeof DIALECTS;
export type Members = Readonly<Record<string, unknown>>;

/** The members of a small good request. */
export function membersOf(dialect: Dialect, model: string, text: string, stream = false): Members {
  const salted = { model, stream, cache_salt: SALT };
  if (dialect === 'embeddings') return { model, input: text };
  if (dialect === 'completions') return { ...salted, prompt: text };
  return { ...salted, max_tokens: 64, messages: [{ role: 'user', content: text }] };
}

/** One attempt of one request: its nonce and its two counters. */
export class Attempt {
  readonly #exchange: LiteralExchange;
  #sealed = 0;
  #opened = 0;

  constructor({ id, bytes }: Secret, nonce: Buffer = randomBytes(12)) {
    this.#exchange = { id, secret: bytes, nonce };
  }

  get nonce(): Buffer {
    return this.#exchange.nonce;
  }

  seal(plaintext: string | Uint8Array, iv: Buffer = randomBytes(12)): string {
    return literalSeal(this.#exchange, this.#sealed++, iv, Buffer.from(plaintext));
  }

  /** The body of a request from its members. */
  sealObject(members: Members, plain: readonly string[]): string {
    const whole: Record<string, unknown> = { ...members };
    for (const name of literalOrder(Object.keys(members), plain))
      whole[name] = this.seal(JSON.stringify(members[name])).slice(1, -1);
    return JSON.stringify(whole);
  }

  /** The members (or elements) of an answer; throws where one does not authenticate. */
  openValue(body: string, plain: readonly string[]): unknown {
    const value = JSON.parse(body) as Record<string, unknown>;
    for (const name of literalOrder(Object.keys(value), plain)) {
      const message = value[name];
      if (typeof message !== 'string' || !message.includes(':')) throw new Error(`${name} is not encrypted`);
      value[name] = JSON.parse(literalOpen(this.#exchange, this.#opened++, message).toString());
    }
    return value;
  }

  /** The data of every event of a stream; `[DONE]` as it is. */
  openEvents(body: string, plain: readonly string[]): { event?: string; data: unknown }[] {
    return eventsIn(body).map((block) => {
      const [, event] = /^event: (.*)$/m.exec(block) ?? [];
      const [, data = ''] = /^data: (.*)$/m.exec(block) ?? [];
      const opened = data === '[DONE]' ? data : this.openValue(data, plain);
      return event === undefined ? { data: opened } : { event, data: opened };
    });
  }
}

export const eventsIn = (text: string): string[] => text.split(/\r?\n\r?\n/).filter((block) => block !== '');

function uuidV7(): string {
  const hex = randomBytes(16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}

/** The head of a good proxy: `port` makes the host, `model` undefined where none is told. */
export function goodHeaders(port: number, secret: Secret, model?: string): Record<string, string> {
  const policy = 'rules=allow-good,allow-revoked,allow-unknown; revocation-time-not-before=1700000000';
  return {
    ...{ host: `localhost:${port}`, connection: 'close', authorization: 'Bearer key' },
    ...{ 'accept-encoding': 'identity', 'privatemode-client': 'Proxy', 'privatemode-version': 'v1.40.0' },
    ...{ 'privatemode-os': 'linux', 'privatemode-architecture': 'amd64', 'privatemode-secret-id': secret.id },
    ...(model !== undefined && { 'privatemode-target-model': model }),
    'privatemode-nvidia-ocsp-policy': policy,
    'privatemode-nvidia-ocsp-policy-mac': createHmac('sha256', secret.bytes).update(policy).digest('hex'),
    'privatemode-user-request-id': `proxy_${uuidV7()}_0`,
  };
}

/** The head of a good request for the list of models: nothing of the encryption. */
export function modelsHeaders(port: number, secret: Secret): Record<string, string> {
  const { 'privatemode-user-request-id': id = '', ...head } = goodHeaders(port, secret);
  const kept = Object.entries(head).filter(([name]) => !/secret-id|ocsp/.test(name));
  return { ...Object.fromEntries(kept), 'privatemode-user-request-id': id.replace(/_0$/, '') };
}

export interface Exchanged {
  readonly attempt: Attempt;
  readonly answer: Answer;
}

/** A secret of the simulator, and the ways to ask it. */
export function clientOf(simulator: Simulator) {
  const secret = newSecret();
  simulator.secrets.put(secret.id, secret.bytes);
  const { port } = simulator;

  /** Sends a body as it is; a header that is undefined is left out. */
  const send = (dialect: Dialect, body: string | Uint8Array, head: object = {}): Promise<Answer> => {
    const all = Object.entries({ ...goodHeaders(port, secret, 'm'), ...head });
    const headers = Object.fromEntries(all.filter(([, value]) => value !== undefined));
    return call(simulator, 'POST', DIALECTS[dialect].path, { headers, body });
  };

  return {
    secret,
    send,
    /** Seals and sends a JSON request; `head` overrides headers. */
    async ask(dialect: Dialect, members: Members, head: object = {}): Promise<Exchanged> {
      const attempt = new Attempt(secret);
      const body = attempt.sealObject(members, DIALECTS[dialect].request);
      const named = { 'privatemode-target-model': String(members['model']), ...head };
      return { attempt, answer: await send(dialect, body, named) };
    },
    /** Asks for the list of models. */
    models: (path = '/v1/models') => call(simulator, 'GET', path, { headers: modelsHeaders(port, secret) }),
  };
}
