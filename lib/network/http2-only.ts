/** A server that speaks nothing but HTTP/2, told from how a connection to it fails. */
import { PrivatemodeError } from '../errors.ts';

/**
 * OpenSSL's words where a server ends the handshake because we offer http/1.1 alone (RFC 7301 3.2), and where it chooses what we
 * did not offer. The code is no help: it is EPROTO where something was waiting to be written.
 */
const REFUSED_BY_ALPN = /:tlsv1 alert no application protocol:|:tls_parse_stoc_alpn:/;

/** The first bytes of a server that agreed on nothing and speaks HTTP/2: a SETTINGS frame, on stream 0 (RFC 9113 3.4, 4.1). */
const SETTINGS = /^\0..\x04\0{5}/s;

/** upstream_http2_only, naming `host`, where `thrown`, of undici or node:https, shows that; undefined where it is about something else. */
export function describeHttp2Only(thrown: unknown, host: string): PrivatemodeError | undefined {
  if (!(thrown instanceof Error)) return undefined;
  // What the parser could not read: of node:https bytes, of undici text.
  const { message, rawPacket, data } = thrown as Error & { rawPacket?: unknown; data?: unknown };
  const unread = rawPacket instanceof Uint8Array ? new TextDecoder('latin1').decode(rawPacket) : String(data);
  if (!REFUSED_BY_ALPN.test(message) && !SETTINGS.test(unread)) return undefined;
  const only = `${host} offers HTTP/2 only, and this program speaks HTTP/1.1`;
  return new PrivatemodeError('upstream_http2_only', only, { cause: thrown });
}
