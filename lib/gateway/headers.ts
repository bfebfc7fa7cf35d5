import { PROTECTION_HEADERS, PROTOCOL_VERSION } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

/** More than any client sends; each costs a look at every stage. */
const MOST_HEADERS = 256;

/** Two of these, and two parsers can disagree on who asks, for what, or where a body ends (trap 9). */
const AT_MOST_ONCE = new Set([
  'host',
  'authorization',
  'x-api-key',
  'content-length',
  'transfer-encoding',
  'content-type',
  'origin',
  'sec-fetch-site',
]);

/**
 * The client's headers that the remote gets: what decides over the answer, and nothing about who asks. `authorization`
 * is decided in auth.ts; `user-agent`, cookies, addresses, `accept-language` and the rest stay here.
 */
const TO_REMOTE = new Set(['accept', 'content-type']);
const TO_REMOTE_PREFIXES = ['anthropic-', 'openai-'];

/** Names that belong to one connection (RFC 9110 7.6.1), with the misspelt and the historical one. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'trailers',
  'transfer-encoding',
  'upgrade',
]);

/** What of the remote's answer must not reach the application. */
const FROM_REMOTE_DENIED = new Set([
  'content-length', // of the sealed body
  'content-encoding',
  'set-cookie',
  'set-cookie2',
  // These would bind a browser's state for our own, local, origin.
  'strict-transport-security',
  'public-key-pins',
  'alt-svc',
  'clear-site-data',
  'nel',
  'report-to',
  'reporting-endpoints',
]);
const FROM_REMOTE_DENIED_PREFIXES = ['access-control-', 'privatemode-proxy-'];

export interface RequestHeaderInput {
  /** As Node gives them: name, value, name, value … */
  readonly rawHeaders: readonly string[];
  /** Authority of the remote, with the port where it is not 443. */
  readonly host: string;
  /** What auth.ts decided. */
  readonly authorization: string | undefined;
  /** `proxy_<uuidv7>_<attempt>`; without the attempt where nothing is encrypted (inference.md 2). */
  readonly requestId: string;
}

/**
 * The headers towards the remote that do not depend on the secret, by allow-list (design decision 3); lower-case names.
 * The attempt adds its protection headers, the body its length and, for a form, its content type.
 * Throws what checkHead throws.
 */
export function requestHeaders(input: RequestHeaderInput): Record<string, string> {
  checkHead(input.rawHeaders);
  const perConnection = connectionListed(input.rawHeaders);
  const headers: Record<string, string> = {};
  for (const [name, value] of pairs(input.rawHeaders)) {
    const allowed = TO_REMOTE.has(name) || TO_REMOTE_PREFIXES.some((prefix) => name.startsWith(prefix));
    if (!allowed || perConnection.has(name) || !isSafeValue(value)) continue;
    headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
  }
  headers['host'] = input.host;
  headers['accept-encoding'] = 'identity'; // a compressed answer could not be opened event by event
  if (input.authorization !== undefined) headers['authorization'] = input.authorization;
  headers[PROTECTION_HEADERS.version.toLowerCase()] = PROTOCOL_VERSION;
  headers['privatemode-os'] = goOs(process.platform);
  headers['privatemode-architecture'] = goArchitecture(process.arch);
  headers['privatemode-client'] = 'Proxy';
  headers['privatemode-user-request-id'] = input.requestId;
  return headers;
}

/**
 * Throws too_many_headers, and ambiguous_header where a header that may come once comes twice. To be asked before
 * anything is decided.
 */
export function checkHead(rawHeaders: readonly string[]): void {
  if (rawHeaders.length > 2 * MOST_HEADERS) {
    throw new PrivatemodeError('too_many_headers', `the request has more than ${MOST_HEADERS} headers`);
  }
  const seen = new Set<string>();
  for (const [name] of pairs(rawHeaders)) {
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name))
      throw new PrivatemodeError('ambiguous_header', `the header ${name} was sent more than once`);
    seen.add(name);
  }
}

/** The remote's headers that reach the application, by deny-list (design decision 3); repeated ones as arrays. */
export function responseHeaders(rawHeaders: readonly string[]): Record<string, string | string[]> {
  const perConnection = connectionListed(rawHeaders);
  const headers = new Map<string, string | string[]>();
  for (const [name, value] of pairs(rawHeaders)) {
    if (HOP_BY_HOP.has(name) || FROM_REMOTE_DENIED.has(name) || perConnection.has(name)) continue;
    if (FROM_REMOTE_DENIED_PREFIXES.some((prefix) => name.startsWith(prefix)) || !isSafeValue(value))
      continue;
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : [before, value].flat());
  }
  return Object.fromEntries(headers); // no assignment by name: `__proto__` is a valid header name
}

function* pairs(rawHeaders: readonly string[]): Generator<readonly [name: string, value: string]> {
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    yield [(rawHeaders[i] as string).toLowerCase(), rawHeaders[i + 1] as string];
  }
}

function connectionListed(rawHeaders: readonly string[]): ReadonlySet<string> {
  const listed = new Set<string>();
  for (const [name, value] of pairs(rawHeaders)) {
    if (name === 'connection') for (const item of value.split(',')) listed.add(item.trim().toLowerCase());
  }
  return listed;
}

/** What Node agrees to send: latin1 without control characters (tab excepted); anything else would throw mid-request. */
const isSafeValue = (value: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(value);

/** Operating system and architecture as Go names them (inference.md 2). */
export function goOs(platform: string): string {
  return { win32: 'windows', sunos: 'solaris', cygwin: 'windows' }[platform] ?? platform;
}

export function goArchitecture(arch: string): string {
  return { x64: 'amd64', ia32: '386', ppc64: 'ppc64le', mipsel: 'mipsle' }[arch] ?? arch;
}
