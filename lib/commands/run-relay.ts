/**
 * The port that `run` opens for an agent. It passes requests to the proxy only, and tells the agent when the
 * proxy is gone.
 */
import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { text } from 'node:stream/consumers';
import { abortAfter, type Clock } from '../clock.ts';
import { urlHost } from '../network/addresses.ts';

/**
 * Headers that belong to one connection (RFC 9110, section 7.6.1) and are not passed on; Node itself responds
 * to Expect. Content-Length and Transfer-Encoding are passed on, because Node frames the body by them.
 */
const OF_CONNECTION = new Set(['connection', 'keep-alive', 'proxy-connection', 'upgrade', 'te', 'expect']);

/**
 * Opens a port on loopback that passes requests on to the proxy, and its responses back. If the proxy is
 * gone, a request gets 503 and a message that says what to do; a response that has begun is cut off. Before
 * the first request, after each failure, and after the connection of the last check has ended, GET /v1 checks
 * who listens: another program may have taken the proxy's port meanwhile.
 */
export async function startRelay(proxy: { readonly host: string; readonly port: number }, clock: Clock) {
  const { relayPatience, relayKeepAlive } = clock.times;
  const url = `http://${urlHost(proxy.host)}:${proxy.port}`;
  const asking = new Agent({ keepAlive: true, maxSockets: 1 });
  let isKnown = false;
  let prompts = 0;
  let failed = 0;

  /** Says what is wrong, for a person; undefined if the proxy is there. Never rejects. */
  async function problem(): Promise<string | undefined> {
    if (isKnown) return undefined;
    const signal = abortAfter(clock, relayPatience);
    const question = request({ ...proxy, path: '/v1', agent: asking, signal }).on('error', () => {});
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

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const message = await problem();
    if (message !== undefined) return refuse(req, res, message);
    const { method, url: path, rawHeaders } = req;
    const upstream = request({ ...proxy, method, path, headers: passedOn(rawHeaders), agent: false });
    upstream.setNoDelay();
    let isAnswered = false;
    let isOver = false;
    res.once('close', () => {
      isOver = true;
      upstream.destroy();
    });
    upstream.once('response', (response) => {
      isAnswered = true;
      res.sendDate = false; // the proxy's Date is passed on
      res.writeHead(response.statusCode as number, response.statusMessage, passedOn(response.rawHeaders));
      res.flushHeaders(); // a model may think for long before its first event
      response.once('error', () => {
        if (!isOver) failed += 1;
      });
      pipeline(response, res, () => {});
    });
    upstream.on('error', async () => {
      if (isAnswered || isOver) return;
      isAnswered = true;
      isKnown = false;
      refuse(
        req,
        res,
        (await problem()) ?? `the proxy on ${url} ended the connection without a response: its log says why`,
      );
    });
    req.pipe(upstream);
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
    answer(req, res).catch(() => {
      failed += 1; // Node does not send such a request: one with a Trailer beside a Content-Length, say
      res.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /**
     * How many requests with a prompt came from the agent. The proxy itself cannot tell one agent's requests
     * from others.
     */
    prompts: () => prompts,
    /** How many requests got no response from the proxy, or not a whole one. */
    failed: () => failed,
    close(): void {
      server.close();
      server.closeAllConnections();
      asking.destroy();
    },
  };
}

function passedOn(raw: readonly string[]): string[] {
  const passed: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const [name, value] = raw.slice(i, i + 2) as [string, string];
    if (!OF_CONNECTION.has(name.toLowerCase())) passed.push(name, value);
  }
  return passed;
}
