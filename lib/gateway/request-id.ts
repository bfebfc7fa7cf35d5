import { randomBytes } from 'node:crypto';
import { RECEIPT_HEADERS } from '../transparency/receipt.ts';

/** `proxy_<UUIDv7>` (RFC 9562 5.7; inference.md section 2): ids sort by the time they were given. */
export function newRequestId(now: number = Date.now()): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `proxy_${[hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')}`;
}

/** Nothing that could end a header or a line of a log, or hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/** The id that the client gave its request in `x-request-id`, where it is one. Sent more than once, it is none. */
export function clientIdOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && CLIENT_ID.test(header) ? header : undefined;
}

/**
 * Response headers that tell a client its own id where it looks for it, and ours beside it. Empty where it gave none. The id
 * never goes to the remote: it may name a person or a session.
 */
export function echoOf(clientId: string | undefined, requestId: string): Record<string, string> {
  if (clientId === undefined) return {};
  return { 'x-request-id': clientId, [RECEIPT_HEADERS.requestId]: requestId };
}
