/**
 * The first requests of a process, in memory, before it listens: a first request runs code that has never run. It is the real chain, from
 * the connection of an application to the one to the service and back, but for TLS. Secret, counters, log and service are its own:
 * nothing of it is sent, counted, logged or kept. After it the first request after a start has its first token in 7 ms instead of 19
 * (over loopback, medians of eight starts), and the start takes 40 ms longer where it does not wait for the network. A full collection afterwards would
 * cost another 60 ms, and no request among the first twenty would be faster for it.
 */
import { createSecretKey, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Agent } from 'node:https';
import { type Duplex, duplexPair } from 'node:stream';
import { createRequestCipher } from '../envelope/protection.ts';
import { createUpstream } from '../network/upstream.ts';
import { createCounters } from '../observe/counters.ts';
import { createLogger } from '../observe/log.ts';
import type { Epoch, Session } from '../session/session.ts';
import { ChunkedResponse } from './chunked-response.ts';
import { createGateway } from './gateway.ts';
import { createUploadBudget } from './memory-budget.ts';

/** More would not make the first request faster. */
const EXCHANGES = 2;
/** ms for each; a rehearsal that hangs must not keep the process from its start. */
const PATIENCE = 1_000;
const HOST = 'rehearsal.invalid';
const LIMIT = 1024 * 1024;

const BODY = JSON.stringify({
  model: 'rehearsal',
  messages: [{ role: 'user', content: 'What is said here, nobody hears. '.repeat(20) }],
  stream: true,
  stream_options: { include_usage: true },
  temperature: 0.7,
});
const REQUEST =
  'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n' +
  `Authorization: Bearer rehearsal\r\nContent-Length: ${Buffer.byteLength(BODY)}\r\n\r\n${BODY}`;

/** Holds the rehearsal. Resolves with how many of its two exchanges were complete; never rejects. */
export async function rehearse(): Promise<number> {
  let complete = 0;
  try {
    const exchange = openStage();
    while (complete < EXCHANGES && (await exchange())) complete += 1;
  } catch {} // the first requests will be slow
  return complete;
}

/** An agent whose connections end in a server of this process. */
class InMemoryAgent extends Agent {
  readonly #accept: (connection: Duplex) => void;

  constructor(accept: (connection: Duplex) => void) {
    super({ keepAlive: false });
    this.#accept = accept;
  }

  override createConnection(): ReturnType<Agent['createConnection']> {
    const [near, far] = duplexPair();
    this.#accept(far);
    return Object.assign(near, { connecting: false }) as unknown as ReturnType<Agent['createConnection']>;
  }
}

/** What holds one exchange, and says whether it was complete. */
function openStage(): () => Promise<boolean> {
  const secret = { id: randomBytes(32).toString('base64'), key: createSecretKey(randomBytes(32)) };
  const service = createServer((req, res) => void answer(req, res, secret));
  const agent = new InMemoryAgent((connection) => service.emit('connection', connection));
  const counters = createCounters();
  const gateway = createGateway({
    session: sessionOf(secret),
    upstream: createUpstream({
      ...{ host: HOST, port: 443, agent, freshAgent: agent },
      ...{ connectTimeout: PATIENCE, firstByteTimeout: PATIENCE },
    }),
    counters,
    log: createLogger({ format: 'text', level: 30, output: { write: () => true } }),
    observe: () => {},
    configuredKey: () => 'rehearsal',
    apiKeyFallback: 'always',
    sharedSalt: undefined,
    gpuPolicy: { allowUnknown: false, gracePeriodHours: 0 },
    cors: () => ({ allowedOrigins: [], ownNames: [] }),
    limits: { maxBodyBytes: LIMIT, minUploadRate: 0, uploadRateGrace: PATIENCE },
    uploadBudget: createUploadBudget(LIMIT, { counters }),
    epochTimeout: PATIENCE,
    streamIdleTimeout: PATIENCE,
    streamKeepalive: 0,
    dumper: undefined,
    terminate: new AbortController().signal,
  });
  const server = createServer({ ServerResponse: ChunkedResponse }, gateway.handle);
  return async () => {
    const [application, connection] = duplexPair();
    server.emit('connection', connection);
    const impatience = setTimeout(() => application.destroy(), PATIENCE);
    application.write(REQUEST);
    let text = '';
    for await (const chunk of application) {
      text += chunk;
      if (text.endsWith('\r\n0\r\n\r\n')) break; // destroys the connection
    }
    clearTimeout(impatience);
    return text.includes('data: [DONE]');
  };
}

/** As the service answers: the events are sealed with the nonce of the request. */
async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  secret: Parameters<typeof createRequestCipher>[0],
): Promise<void> {
  const text = Buffer.concat(await req.toArray()).toString();
  const nonce = Buffer.from(/:([0-9a-f]{24}):/.exec(text)?.[1] ?? '', 'hex');
  const cipher = createRequestCipher(secret, { nonce });
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const finish of ['null', 'null', '"stop"']) {
    const delta = `{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":${finish}}`;
    const members = [`[${delta}]`, '1763683200', '"rehearsal"', '"chat.completion.chunk"'];
    const [choices, created, model, object] = cipher.sealAll(members.map((each) => [Buffer.from(each)]));
    const head = `"id":"chatcmpl-0","object":${object},"created":${created},"model":${model}`;
    const usage = '"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}';
    res.write(`data: {${head},"choices":${choices},${usage}}\n\n`);
    await new Promise(setImmediate);
  }
  res.end('data: [DONE]\n\n');
}

/** A session with that one secret. */
function sessionOf({ id: secretId, key }: { readonly id: string } & Pick<Epoch, 'key'>): Session {
  const attestedAt = Date.now();
  const epoch: Epoch = {
    ...{ secretId, key, manifestSha256: '', verdictSha256: '', attestedAt },
    ...{ renewAt: Number.POSITIVE_INFINITY, expiresAt: Number.POSITIVE_INFINITY },
    expiresMonotonic: Number.POSITIVE_INFINITY,
  };
  return {
    current: () => epoch,
    acquire: async () => epoch,
    renewAfterRejection: async () => epoch,
    state: () => 'ready',
    lastError: () => undefined,
    close: () => {},
  };
}
