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
 * The client's headers that the remote gets, each by its exact name: what decides over the response, and nothing about who
 * asks. A prefix would let keys and ids of other accounts out (`openai-organization`, `anthropic-user-id`).
 * `authorization` is decided in auth.ts; `user-agent`, cookies, addresses, `accept-language` and the rest stay here.
 */
const TO_REMOTE = new Set(['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta']);

/**
 * The remote's headers that reach the application: when to try again, what is left of a quota, and ids to ask its
 * operators about. They are not authenticated, so nothing here may steer a browser or a program elsewhere.
 */
const FROM_REMOTE = new Set(['retry-after', 'x-request-id', 'request-id', 'cache-control', 'date']);
const FROM_REMOTE_PREFIXES = ['x-ratelimit-', 'anthropic-ratelimit-'];

/** A host name or IP literal with an optional port (RFC 9112 3.2); no list, userinfo, blank or path. */
const HOST = /^(?:\[[0-9a-f:.]+(?:%[\w.~-]+)?\]|[\w.~-]+)(?::\d{0,5})?$/i;

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
    if (!TO_REMOTE.has(name) || perConnection.has(name) || !isSafeValue(value)) continue;
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
 * Throws too_many_headers, ambiguous_header where a header that may come once comes twice, and invalid_host. Call it
 * before anything is decided. HTTP/1.1 needs a Host (RFC 9112 3.2); older versions, or an unknown one, do not.
 */
export function checkHead(rawHeaders: readonly string[], httpVersion?: string): void {
  if (rawHeaders.length > 2 * MOST_HEADERS) {
    throw new PrivatemodeError('too_many_headers', `the request has more than ${MOST_HEADERS} headers`);
  }
  const seen = new Set<string>();
  for (const [name, value] of pairs(rawHeaders)) {
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name))
      throw new PrivatemodeError('ambiguous_header', `the header ${name} was sent more than once`);
    seen.add(name);
    if (name === 'host' && !HOST.test(value)) throw invalidHost('not one host name with an optional port');
  }
  if (httpVersion === '1.1' && !seen.has('host')) throw invalidHost('missing');
}

const invalidHost = (what: string): PrivatemodeError =>
  new PrivatemodeError('invalid_host', `the header host is ${what}`);

/** The remote's headers that reach the application, by allow-list (design decision 3); repeated ones as arrays. */
export function responseHeaders(rawHeaders: readonly string[]): Record<string, string | string[]> {
  const perConnection = connectionListed(rawHeaders);
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of pairs(rawHeaders)) {
    const allowed = FROM_REMOTE.has(name) || FROM_REMOTE_PREFIXES.some((prefix) => name.startsWith(prefix));
    if (!allowed || perConnection.has(name) || !isSafeValue(value)) continue;
    const before = headers[name];
    headers[name] = before === undefined ? value : [before, value].flat();
  }
  return headers;
}

/**
 * Our own content type for a body that the service sent in clear, from the type it declares: JSON, or text that no browser
 * renders and no client reads as events.
 */
export function plainContentType(declared: string | undefined): string {
  const type = declared?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^application\/(?:[\w.-]+\+)?json$/.test(type) ? 'application/json' : 'text/plain; charset=utf-8';
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
