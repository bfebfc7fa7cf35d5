import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Agent } from 'node:https';
import { ProxyServer } from 'http-proxy-3';
import { type Attempt, type AttemptTimeouts, beginAttempt, type UpstreamResponse } from './attempt.ts';

/** Where the remote API is, and how to get there. */
export interface UpstreamOptions extends AttemptTimeouts {
  readonly host: string;
  readonly port: number;
  /** Keeps connections alive; carries the CA bundle and the outbound proxy. */
  readonly agent: Agent;
  /** Opens a connection of its own for every request: the retry after a stale keep-alive connection. */
  readonly freshAgent: Agent;
}

export interface Upstream {
  /** As it goes into Host: the port where it is not 443, brackets around IPv6. */
  readonly authority: string;
  /**
   * Sends one attempt for the client's `req`/`res` pair, resolving with the response headers. The request goes out
   * through http-proxy-3, which also destroys it when the client goes away. Rejects with UpstreamFailure.
   */
  send(req: IncomingMessage, res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse>;
}

export function createUpstream(options: UpstreamOptions): Upstream {
  // The library switches to a data path of its own (fetch, redirects followed) when this variable is set;
  // no environment variable may change how sealed bytes travel.
  delete process.env['FORCE_FETCH_PATH'];

  const { host, port } = options;
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  const name = host.includes(':') ? `[${host}]` : host;

  return {
    authority: port === 443 ? name : `${name}:${port}`,
    send(req, res, attempt) {
      const { outcome, body, fail } = beginAttempt(attempt, options);
      if (attempt.signal.aborted) return outcome;
      req.headers = { ...attempt.headers } as IncomingMessage['headers'];
      req.url = attempt.path;
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      try {
        proxy.web(req, res, { buffer: body as never, agent, method: attempt.method }, fail);
      } catch (thrown) {
        fail(thrown);
      }
      return outcome;
    },
  };
}
