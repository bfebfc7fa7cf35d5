/** Recognises a server that speaks only HTTP/2 by how a connection to it fails. */
import { PrivatemodeError } from '../errors.ts';

/**
 * OpenSSL's text if a server ends the handshake because we offer only http/1.1 (RFC 7301 3.2), and if it
 * chooses a protocol that we did not offer. The error code is no help: it is EPROTO if something was waiting
 * to be written.
 */
const REFUSED_BY_ALPN = /:tlsv1 alert no application protocol:|:tls_parse_stoc_alpn:/;

/**
 * The first bytes of a server that agreed on no protocol and speaks HTTP/2: a SETTINGS frame, on stream 0
 * (RFC 9113 3.4, 4.1).
 */
const SETTINGS = /^\0..\x04\0{5}/s;

/**
 * Returns upstream_http2_only, which names `host`, if `thrown` (an error of undici or node:https) shows such
 * a server; undefined: it is about something else.
 */
export function describeHttp2Only(thrown: unknown, host: string): PrivatemodeError | undefined {
  if (!(thrown instanceof Error)) return undefined;
  // The input that the parser could not read: node:https gives it as bytes, undici as text.
  const { message, rawPacket, data } = thrown as Error & { rawPacket?: unknown; data?: unknown };
  const unread = rawPacket instanceof Uint8Array ? new TextDecoder('latin1').decode(rawPacket) : String(data);
  if (!REFUSED_BY_ALPN.test(message) && !SETTINGS.test(unread)) return undefined;
  const only = `${host} offers HTTP/2 only, and this program speaks HTTP/1.1`;
  return new PrivatemodeError('upstream_http2_only', only, { cause: thrown });
}
