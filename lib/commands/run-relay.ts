/**
 * The port that `run` opens for an agent. It passes requests to the proxy only, and tells the agent when the
 * proxy is gone.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  createServer,
  Agent as HttpAgent,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { createProxyServer } from 'http-proxy-3';
import { abortAfter, type Clock } from '../clock.ts';
import { KEY } from './agents/agent.ts';

/** The proxy as `run` reaches it. */
export interface Reached {
  /** http://HOST:PORT, or https://HOST:PORT of a gateway. */
  readonly url: string;
  /** What requests of the agent carry: the token of --token, if there is one. */
  readonly headers: Readonly<Record<string, string>>;
  /** The authorities to trust (PEM); undefined for plain HTTP. */
  readonly ca: readonly string[] | undefined;
}

/**
 * Opens a port on loopback that passes requests on to the proxy, and its responses back. If the proxy is
 * gone, a request gets 503 and a message that says what to do; a response that has begun is cut off. Before
 * the first request, after each failure, and after the connection of the last check has ended, GET /v1 checks
 * who listens: another program may have taken the proxy's port meanwhile.
 */
export async function startRelay({ url, headers, ca }: Reached, clock: Clock) {
  const { relayPatience, relayKeepAlive } = clock.times;
  const only = { keepAlive: true, maxSockets: 1 };
  const [ask, agent] =
    ca === undefined
      ? ([request, new HttpAgent(only)] as const)
      : ([httpsRequest, new HttpsAgent({ ...only, ca: [...ca] })] as const);
  let isKnown = false;
  let prompts = 0;
  let failed = 0;

  /** Says what is wrong, for a person; undefined if the proxy is there. Never rejects. */
  async function problem(): Promise<string | undefined> {
    if (isKnown) return undefined;
    const signal = abortAfter(clock, relayPatience);
    const question = ask(`${url}/v1`, { agent, headers, signal }).on('error', () => {});
    question.once('socket', (socket) => {
      if (!question.reusedSocket) socket.once('close', () => (isKnown = false));
    });
    try {
      const [response] = (await once(question.end(), 'response')) as [IncomingMessage];
      const about = JSON.parse(await text(response)) as { readonly name?: unknown } | null;
      isKnown = about?.name === 'privatemode-proxy';
    } catch (thrown) {
      if (!(thrown instanceof SyntaxError))
        return `the proxy on ${url} does not answer: start it again, and this session goes on`;
    }
    return isKnown
      ? undefined
      : `another program than the proxy answers on ${url}: end it and start the proxy again, and this session goes on`;
  }

  const trust = ca === undefined ? {} : { ca: ca.join('\n') };
  const proxy = createProxyServer({ target: url, changeOrigin: ca !== undefined, ...trust });
  /** Other programs of this machine may not ask a gateway in the name of the token's owner. */
  const key = ca === undefined ? KEY : randomUUID();
  const isAgents = ({ headers: { authorization, 'x-api-key': given } }: IncomingMessage): boolean =>
    authorization === `Bearer ${key}` || given === key;
  proxy.on('proxyRes', (response, _, res) => {
    response.once('error', () => res.destroy());
    queueMicrotask(() => res.flushHeaders()); // a model may think for long before its first event
  });

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const message = await problem();
    if (message !== undefined) return refuse(req, res, message);
    proxy.web(req, res, isAgents(req) ? { headers } : {}, async () => {
      isKnown = false;
      const why = await problem();
      if (res.headersSent || res.destroyed) return; // the agent hung up
      refuse(
        req,
        res,
        why ?? `the proxy on ${url} ended the connection without a response: its log says why`,
      );
    });
  }

  function refuse(req: IncomingMessage, res: ServerResponse, message: string): void {
    failed += 1;
    req.resume();
    // Codex waits this long between its attempts. Only Codex gets the header: opencode would give up earlier
    // with it.
    const waits = req.url === '/v1/responses' && { 'retry-after': '5' };
    res.writeHead(503, { 'content-type': 'application/json', ...waits });
    res.end(JSON.stringify({ type: 'error', error: { type: 'api_error', message } }));
  }

  const server = createServer({ noDelay: true, requestTimeout: 0, keepAliveTimeout: relayKeepAlive });
  server.on('request', (req, res) => {
    if (req.method === 'POST') prompts += 1;
    answer(req, res).catch(() => res.destroy()); // Node does not send every request that it accepts
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** What the agent has to send as its key. */
    key,
    /**
     * How many requests with a prompt came from the agent. The proxy itself cannot tell one agent's requests
     * from others.
     */
    prompts: () => prompts,
    /** How many requests got no response from the proxy. One that breaks off may be the service's doing. */
    failed: () => failed,
    close(): void {
      server.close();
      server.closeAllConnections();
      agent.destroy();
    },
  };
}
