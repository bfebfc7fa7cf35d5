/** Opens a connection to a server through an HTTP proxy. */
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from './addresses.ts';
import { describeTlsFailure } from './tls-failure.ts';

export interface TunnelOptions {
  readonly proxy: URL;
  readonly host: string;
  readonly port: number;
  /** For a proxy that itself speaks TLS. */
  readonly secureContext: SecureContext;
  /** ms until the proxy must have responded; wall clock. */
  readonly timeout: number;
  readonly clock: Clock;
  /** Gives the tunnel up when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Asks an HTTP proxy for a raw connection to `host:port` (CONNECT, RFC 9110 9.3.6). The name goes to the
 * proxy unresolved. Rejects with upstream_unreachable, upstream_connect_timeout or upstream_tls_untrusted;
 * the message names the proxy, never its credentials.
 */
export async function openTunnel(options: TunnelOptions): Promise<Socket> {
  const { proxy, host, port, timeout, clock } = options;
  const name = `the HTTP proxy ${proxy.host}`;
  const request = connectRequest(options);
  const late = `${name} opened no connection to ${host}:${port} within ${timeout / 1000} s`;
  const cancel = clock.after(
    timeout,
    () => request.destroy(new PrivatemodeError('upstream_connect_timeout', late)),
    'waiting',
  );
  request.on('error', () => {});
  request.end();
  try {
    // Node reports every response to CONNECT by this event, whatever its status.
    const connected = (await once(request, 'connect')) as [IncomingMessage, Socket, Buffer];
    const [{ statusCode }, socket, head] = connected;
    if (head.length > 0) socket.unshift(head);
    if (statusCode === 200) return socket;
    socket.destroy();
    const hint = statusCode === 407 ? '; put the credentials it asks for into https_proxy' : '';
    const message = `${name} refused a connection to ${host}:${port} with status ${statusCode}${hint}`;
    throw new PrivatemodeError('upstream_unreachable', message);
  } catch (cause) {
    if (cause instanceof PrivatemodeError) throw cause;
    const { code = 'connection failed' } = cause as NodeJS.ErrnoException;
    const message = `${name} cannot be reached (${code})`;
    throw describeTlsFailure(cause, name) ?? new PrivatemodeError('upstream_unreachable', message, { cause });
  } finally {
    cancel();
  }
}

function connectRequest({ proxy, host, port, secureContext, signal }: TunnelOptions) {
  const authority = `${urlHost(host)}:${port}`;
  const secure = proxy.protocol === 'https:';
  const hostname = proxy.hostname.replace(/^\[(.*)\]$/, '$1');
  const options = {
    host: hostname,
    port: proxy.port === '' ? (secure ? 443 : 80) : Number(proxy.port),
    method: 'CONNECT',
    path: authority,
    headers: { host: authority, ...credentials(proxy) },
    signal,
  };
  if (!secure) return httpRequest({ ...options, agent: false });
  const servername = isIP(hostname) ? '' : hostname;
  return httpsRequest({ ...options, agent: new Agent({ secureContext }), servername });
}

function credentials({ username, password }: URL): Record<string, string> {
  if (username === '' && password === '') return {};
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(pair).toString('base64')}` };
}
