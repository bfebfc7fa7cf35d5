/**
 * A client of the inference protocol, as literal as it can be: the other side that the simulator is tested
 * against. It shares no code with the product or the simulator (docs/protocol/inference.md 2, 4, 5, 6, 7).
 */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { type LiteralExchange, literalOpen, literalOrder, literalSeal } from './literal-envelope.ts';
import { PLAIN_MEMBERS } from './plain-members.ts';

export interface Secret {
  readonly id: string;
  readonly bytes: Buffer;
}

/** A secret whose id is the hash of its own bytes: any base64 text of 44 characters will do here. */
export function newSecret(): Secret {
  const bytes = randomBytes(32);
  return { id: createHash('sha256').update(bytes).digest('base64'), bytes };
}

export const PLAIN = {
  chat: [...PLAIN_MEMBERS.C],
  messages: [...PLAIN_MEMBERS.M],
  embeddings: [...PLAIN_MEMBERS.E],
  form: [...PLAIN_MEMBERS.T],
  answer: [...PLAIN_MEMBERS.R],
  messagesAnswer: [...PLAIN_MEMBERS.MR],
  transcriptionAnswer: [...PLAIN_MEMBERS.TR],
  nothing: [],
} as const;

/** One attempt of one request: its nonce and its two counters. */
export class Attempt {
  readonly secret: Secret;
  readonly nonce: Buffer;
  readonly #exchange: LiteralExchange;
  #sealed = 0;
  #opened = 0;

  constructor(secret: Secret, nonce: Buffer = randomBytes(12)) {
    this.secret = secret;
    this.nonce = nonce;
    this.#exchange = { id: secret.id, secret: secret.bytes, nonce };
  }

  seal(plaintext: string | Uint8Array, iv: Buffer = randomBytes(12)): string {
    return literalSeal(this.#exchange, this.#sealed++, iv, Buffer.from(plaintext));
  }

  open(message: string): Buffer {
    const [, , iv, sealed] = message.split(':');
    if (iv?.length !== 24 || sealed === undefined || sealed.length < 32) throw new Error('not a message');
    return literalOpen(this.#exchange, this.#opened++, `"${message}"`);
  }

  /** The body of a request from its members. */
  sealObject(members: Readonly<Record<string, unknown>>, plain: readonly string[]): string {
    const sealed = new Map<string, string>();
    for (const name of literalOrder(Object.keys(members), plain)) {
      sealed.set(name, this.seal(JSON.stringify(members[name])));
    }
    return `{${Object.entries(members)
      .map(([name, value]) => `${JSON.stringify(name)}:${sealed.get(name) ?? JSON.stringify(value)}`)
      .join(',')}}`;
  }

  /** The members (or elements) of an answer; throws where one does not authenticate. */
  openValue(body: string, plain: readonly string[]): unknown {
    const value = JSON.parse(body) as Record<string, unknown> | unknown[];
    const names = literalOrder(Object.keys(value), plain);
    for (const name of names) {
      const message = (value as Record<string, unknown>)[name];
      if (typeof message !== 'string') throw new Error(`${name} is not encrypted`);
      (value as Record<string, unknown>)[name] = JSON.parse(this.open(message).toString());
    }
    return value;
  }

  /** The data of every event of a stream; `[DONE]` as it is. */
  openEvents(body: string, plain: readonly string[]): { event?: string; data: unknown }[] {
    return body
      .split(/\r?\n\r?\n/)
      .filter((block) => block !== '')
      .map((block) => {
        const [, event] = /^event: (.*)$/m.exec(block) ?? [];
        const [, data] = /^data: (.*)$/m.exec(block) ?? [];
        if (data === undefined) throw new Error(`not an event: ${block}`);
        const opened = data === '[DONE]' ? data : this.openValue(data, plain);
        return event === undefined ? { data: opened } : { event, data: opened };
      });
  }

  /** A form in the layout of the reference: value fields by name, then the file. */
  sealForm(fields: Readonly<Record<string, string>>, file: Uint8Array, boundary = 'BOUNDARY'): Buffer {
    const pieces: string[] = [];
    for (const name of Object.keys(fields).sort()) {
      const value = (PLAIN.form as readonly string[]).includes(name)
        ? fields[name]
        : this.seal(fields[name]!);
      pieces.push(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`);
    }
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n`;
    pieces.push(
      `${head}Content-Type: application/octet-stream\r\n\r\n${this.seal(file)}\r\n--${boundary}--\r\n`,
    );
    return Buffer.from(pieces.join(''));
  }
}

function uuidV7(): string {
  const hex = randomBytes(16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}

/** The head of a good client: `port` makes the host, `model` undefined where none is told. */
export function goodHeaders(
  port: number,
  secret: Secret,
  model: string | undefined,
  requestId: string = `proxy_${uuidV7()}_0`,
): Record<string, string> {
  const policy = 'rules=allow-good,allow-revoked,allow-unknown; revocation-time-not-before=1700000000';
  return {
    host: `localhost:${port}`,
    connection: 'close',
    authorization: 'Bearer key',
    'accept-encoding': 'identity',
    'privatemode-version': 'v1.40.0',
    'privatemode-os': 'linux',
    'privatemode-architecture': 'amd64',
    'privatemode-client': 'Proxy',
    'privatemode-secret-id': secret.id,
    ...(model !== undefined && { 'privatemode-target-model': model }),
    'privatemode-nvidia-ocsp-policy': policy,
    'privatemode-nvidia-ocsp-policy-mac': createHmac('sha256', secret.bytes).update(policy).digest('hex'),
    'privatemode-user-request-id': requestId,
  };
}

const without = (headers: Record<string, string>, names: RegExp): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !names.test(name)));

/** The head of a good request for the list of models: nothing of the encryption. */
export const modelsHeaders = (port: number, secret: Secret): Record<string, string> =>
  without(goodHeaders(port, secret, undefined, `proxy_${uuidV7()}`), /secret-id|ocsp/);

/**
 * The head of the other official client, the library: no system, no policy, no attempt
 * (docs/protocol/inference.md 2).
 */
export const libraryHeaders = (port: number, secret: Secret, model: string): Record<string, string> => ({
  ...without(goodHeaders(port, secret, model, `sdk_${uuidV7()}`), /-os$|architecture|ocsp/),
  'privatemode-client': 'SDK',
});

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** What arrived piece by piece, with the time of arrival in ms. */
  readonly chunks: readonly { readonly at: number; readonly bytes: Buffer }[];
  /** 1xx answers before the head. */
  readonly informational: number;
  /** How it broke off, if it did: the error's code and the system call. */
  readonly broken: string | undefined;
}

export interface Call {
  readonly port: number;
  readonly method?: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body?: string | Uint8Array;
  /** Aborts the request from the client's side. */
  readonly signal?: AbortSignal;
  readonly onRequest?: (request: ClientRequest) => void;
  readonly onChunk?: (chunk: Buffer) => void;
}

/** Sends one request over a connection of its own. Resolves for every outcome, also a broken one. */
export function call({
  port,
  method = 'POST',
  path,
  headers,
  body,
  signal,
  ...watch
}: Call): Promise<Answer> {
  return new Promise((resolve) => {
    const chunks: { at: number; bytes: Buffer }[] = [];
    let informational = 0;
    let response: IncomingMessage | undefined;
    const settle = (broken: string | undefined): void =>
      resolve({
        status: response?.statusCode ?? 0,
        headers: response?.headers ?? {},
        body: Buffer.concat(chunks.map(({ bytes }) => bytes)),
        chunks,
        informational,
        broken,
      });
    const fail = (error: NodeJS.ErrnoException): void =>
      settle([error.code, error.syscall].filter(Boolean).join(' '));

    const content = Buffer.from(body ?? '');
    const length =
      body === undefined || 'transfer-encoding' in headers ? {} : { 'content-length': content.length };
    const request = httpRequest({
      host: '127.0.0.1',
      port,
      method,
      path,
      headers: { ...length, ...headers },
      agent: false,
      ...(signal !== undefined && { signal }),
    });
    request.on('information', () => informational++);
    request.on('error', fail);
    request.on('response', (incoming) => {
      response = incoming;
      incoming.on('data', (bytes: Buffer) => {
        chunks.push({ at: performance.now(), bytes });
        watch.onChunk?.(bytes);
      });
      incoming.on('end', () => settle(undefined));
      incoming.on('error', fail);
    });
    watch.onRequest?.(request);
    request.end(content);
  });
}
