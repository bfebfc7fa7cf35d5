/**
 * The port that `run` opens for an agent, which passes requests only to the proxy, and tells the agent when
 * the proxy is gone.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import type { Clock } from '../clock.ts';
import { KEY } from './agents/agent.ts';
import { aboutProxy, type Reached } from './ask-proxy.ts';

/**
 * Opens a port on loopback that passes requests on to the proxy, and its responses back. If the proxy is
 * gone, a request gets 503 and a message that says what to do; a response that has begun is cut off. Before
 * each request, GET /v1 checks which program listens: another program may have taken the proxy's port.
 */
export async function startRelay(reached: Reached, clock: Clock) {
  const { url, headers, ca } = reached;
  let prompts = 0;
  let failed = 0;
  /** For a gateway the key is random, so that no other program on this machine can use the owner's token. */
  const key = ca === undefined ? KEY : randomUUID();
  const isAgents = ({ headers: { authorization, 'x-api-key': given } }: IncomingMessage): boolean =>
    authorization === `Bearer ${key}` || given === key;

  const trust = ca === undefined ? {} : { ca: ca.join('\n') };
  const proxy = createProxyServer({ target: url, changeOrigin: ca !== undefined, ...trust });
  proxy.on('proxyRes', (response, _, res) => {
    response.once('error', () => res.destroy());
    queueMicrotask(() => res.flushHeaders()); // a model may think for long before its first event
  });

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    try {
      await aboutProxy(reached, clock);
    } catch (thrown) {
      return refuse(req, res, `${(thrown as Error).message}. Then this session goes on`);
    }
    if (res.destroyed) return; // the agent has left, so nothing would end a request to the proxy
    proxy.web(req, res, isAgents(req) ? { headers } : {}, () => {
      if (res.headersSent || res.destroyed) return;
      refuse(req, res, `the proxy on ${url} ended the connection without a response: its log says why`);
    });
  }

  function refuse(req: IncomingMessage, res: ServerResponse, message: string): void {
    failed += 1;
    req.resume();
    // The header tells Codex how long to wait between attempts. Other agents do not get the header, because
    // opencode would give up earlier.
    const waits = req.url === '/v1/responses' && { 'retry-after': '5' };
    res.writeHead(503, { 'content-type': 'application/json', ...waits });
    res.end(JSON.stringify({ type: 'error', error: { type: 'api_error', message } }));
  }

  const { relayKeepAlive } = clock.times;
  const server = createServer({ noDelay: true, requestTimeout: 0, keepAliveTimeout: relayKeepAlive });
  server.on('request', (req, res) => {
    if (req.method === 'POST') prompts += 1;
    answer(req, res).catch(() => res.destroy()); // Node refuses to send some requests that it accepts
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** The key that the agent has to send. */
    key,
    /**
     * How many requests with a prompt came from the agent. The proxy itself cannot tell the requests of one
     * agent from those of others.
     */
    prompts: () => prompts,
    /**
     * How many requests got no response. A response that broke off does not count, because the service may be
     * the cause.
     */
    failed: () => failed,
    close(): void {
      server.close();
      server.closeAllConnections();
    },
  };
}
