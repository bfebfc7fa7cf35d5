/** Who asks: the token in the head of a request → its client, or the error to respond with. */
import { isIP } from 'node:net';
import { constantTimeEqual, sha256 } from '#crypto/digest';
import type { EndpointId } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { bearerToken } from '../pipeline/rewrite-auth.ts';
import type { ClientEntry } from './clients-file.ts';

/** A client as requests need it; made once for each state of the file. */
export interface Client
  extends Pick<ClientEntry, 'name' | 'models' | 'endpoints' | 'expires' | 'tokens' | 'limits'> {
  /** The service's key that its requests leave with; undefined: the configured one. */
  readonly apiKey: string | undefined;
  /** For its requests that bring no salt; undefined: each gets one of its own. */
  readonly sharedSalt: string | undefined;
  /** What takes the place of a salt that a request brings; undefined: that salt stays. */
  readonly mixSalt: ((own: Uint8Array) => string) | undefined;
}

/** What of a request says who asks. */
export interface Credentials {
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
  /** IP address of the connection. */
  readonly address: string | undefined;
}

/**
 * The client that a request comes from. Authorization, if present, decides alone; `x-api-key` counts only without it. Throws
 * client_unknown where no client has the token, or where the client has expired, and client_throttled in its place where the address
 * has failed too often lately. `now`: ms since 1970.
 */
export function authenticate(
  { authorization, apiKeyHeader, address }: Credentials,
  clients: readonly Client[],
  throttle: Throttle,
  now: number = Date.now(),
): Client {
  const token = authorization === undefined ? apiKeyHeader || undefined : bearerToken(authorization);
  const client = token === undefined ? undefined : clientOf(token, clients);
  // A known token passes however often others failed: many people may share an address, that of a reverse proxy.
  if (client !== undefined && !(client.expires !== undefined && now >= client.expires)) return client;
  if (throttle.failed(address, now)) {
    throw new PrivatemodeError('client_throttled', 'too many requests without a known token came from here');
  }
  const what =
    client !== undefined
      ? 'the token has expired'
      : token === undefined
        ? 'no token was sent'
        : 'the token is not known';
  throw new PrivatemodeError('client_unknown', what);
}

/** Looks at all digests, whichever fits: how long it takes says nothing about any of them. */
function clientOf(token: string, clients: readonly Client[]): Client | undefined {
  const offered = sha256(Buffer.from(token, 'latin1')); // as Node reads headers
  let found: Client | undefined;
  for (const client of clients) {
    for (const digest of client.tokens) if (constantTimeEqual(digest, offered)) found = client;
  }
  return found;
}

/** Throws client_forbidden where the client may not use the endpoint. */
export function requireEndpoint({ endpoints }: Client, id: EndpointId): void {
  if (endpoints !== undefined && !endpoints.includes(id))
    throw new PrivatemodeError('client_forbidden', 'this client may not use this endpoint');
}

/** Throws client_forbidden where the client may not use the model. A request that names none passes. */
export function requireModel({ models }: Client, model: string | undefined): void {
  if (models === undefined || model === undefined || models.some((pattern) => covers(pattern, model))) return;
  throw new PrivatemodeError('client_forbidden', 'this client may not use this model');
}

/** Whether the pattern, in which `*` stands for any characters, covers all of the text; in time linear in both, unlike a regular expression. */
function covers(pattern: string, text: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return text === pattern;
  const end = text.length - last.length;
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = text.indexOf(piece, at);
    if (found === -1) return false;
    at = found + piece.length;
  }
  return at <= end;
}

/** After so many failures from one address within the window, further ones get client_throttled. */
const MOST_FAILURES = 20;
const WINDOW_MS = 60_000;
const MOST_ADDRESSES = 1024;

export type Throttle = ReturnType<typeof createThrottle>;

/** Counts failures by address, in windows of a minute that begin with the first one. Remembers 1024 addresses; the oldest gives way. */
export function createThrottle() {
  const windows = new Map<string, { readonly since: number; failures: number }>();
  return {
    /** Counts a failure. True where the address has had its 20 in this window. */
    failed(address: string | undefined, now: number): boolean {
      const key = networkOf(address);
      let window = windows.get(key);
      if (window === undefined || now - window.since >= WINDOW_MS || now < window.since) {
        windows.delete(key); // the map is in order of time
        const [oldest] = windows.keys();
        if (windows.size >= MOST_ADDRESSES && oldest !== undefined) windows.delete(oldest);
        window = { since: now, failures: 0 };
        windows.set(key, window);
      }
      window.failures += 1;
      return window.failures > MOST_FAILURES;
    },
    /** Addresses that are remembered. */
    size: (): number => windows.size,
  };
}

/** Whoever has an IPv6 address has the 2^64 of its network: they count as one. */
function networkOf(address = 'unknown'): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '');
  if (isIP(plain) !== 6) return plain;
  const [head = '', tail] = plain.split('::');
  const groups = head === '' ? [] : head.split(':');
  const behind = tail ? tail.split(':') : [];
  const zeros = tail === undefined ? 0 : 8 - groups.length - behind.length;
  const whole = [...groups, ...Array<string>(zeros).fill('0'), ...behind];
  return whole
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16))
    .join(':');
}
