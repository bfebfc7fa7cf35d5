import { type ClientRequest, request as httpRequest } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { describeTlsFailure } from './tls-failure.ts';

export interface TunnelOptions {
  readonly proxy: URL;
  readonly host: string;
  readonly port: number;
  /** For a proxy that is itself spoken to over TLS. */
  readonly secureContext: SecureContext;
  /** ms until the proxy must have answered; wall clock. */
  readonly timeout: number;
}

/**
 * Asks an HTTP proxy for a raw connection to `host:port` (CONNECT, RFC 9110 9.3.6). The name goes to the proxy
 * unresolved. Rejects with upstream_unreachable, upstream_connect_timeout or upstream_tls_untrusted; the words name
 * the proxy, never its credentials.
 */
export function openTunnel(options: TunnelOptions): Promise<Socket> {
  const { proxy, host, port, timeout } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const request = connectRequest(options);
  const timer = setTimeout(() => {
    request.destroy(
      new PrivatemodeError(
        'upstream_connect_timeout',
        `the HTTP proxy ${proxy.host} opened no connection to ${host}:${port} within ${timeout / 1000} s`,
      ),
    );
  }, timeout);
  const refused = (status: number | undefined): PrivatemodeError =>
    new PrivatemodeError(
      'upstream_unreachable',
      `the HTTP proxy ${proxy.host} refused a connection to ${host}:${port} with status ${status}` +
        (status === 407 ? '; put the credentials it asks for into https_proxy' : ''),
    );
  // Node tells of every answer to CONNECT by this event, whatever its status.
  request.once('connect', (response, socket, head) => {
    clearTimeout(timer);
    if (response.statusCode !== 200) {
      socket.destroy();
      reject(refused(response.statusCode));
      return;
    }
    if (head.length > 0) socket.unshift(head);
    resolve(socket as Socket);
  });
  request.on('error', (cause: NodeJS.ErrnoException) => {
    clearTimeout(timer);
    reject(
      cause instanceof PrivatemodeError
        ? cause
        : (describeTlsFailure(cause, `the HTTP proxy ${proxy.host}`) ??
            new PrivatemodeError(
              'upstream_unreachable',
              `the HTTP proxy ${proxy.host} cannot be reached (${cause.code ?? 'connection failed'})`,
              { cause },
            )),
    );
  });
  request.end();
  return promise;
}

function connectRequest({ proxy, host, port, secureContext }: TunnelOptions): ClientRequest {
  const authority = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
  const secure = proxy.protocol === 'https:';
  const hostname = proxy.hostname.replace(/^\[(.*)\]$/, '$1');
  const common = {
    host: hostname,
    port: proxy.port === '' ? (secure ? 443 : 80) : Number(proxy.port),
    method: 'CONNECT',
    path: authority,
    headers: { host: authority, ...credentials(proxy) },
  };
  return secure
    ? httpsRequest({
        ...common,
        agent: new Agent({ secureContext }),
        servername: isIP(hostname) ? '' : hostname,
      })
    : httpRequest({ ...common, agent: false });
}

function credentials(proxy: URL): Record<string, string> {
  if (proxy.username === '' && proxy.password === '') return {};
  const pair = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(pair).toString('base64')}` };
}
