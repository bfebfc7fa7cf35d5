/** The head of a request as it leaves: which key it is sent with, and which of its headers the remote gets. */
import { PROTECTION_HEADERS, PROTOCOL_VERSION } from '../envelope/protection.ts';

export type FallbackMode = 'never' | 'always' | 'if-placeholder';

interface AuthInput {
  /** The application's Authorization header, if it sent one, and its x-api-key header. */
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
  /** The client of --clients that sends the request, and its key of the service, if it has one. */
  readonly client?: { readonly apiKey: string | undefined } | undefined;
}

/**
 * Decides which key a request is sent with. An Authorization header decides alone, whatever it holds; `x-api-key` counts only
 * where there is none, and leaves as a bearer, so that a key for another vendor cannot leak. `authorization` is the header towards
 * the remote, or none; `offeredKey` the application's own key, which may attest where no key is configured. A `client` has sent a token of this gateway, which stays here:
 * its own key takes its place, or the configured one.
 */
export function rewriteAuth(input: AuthInput) {
  if (input.client !== undefined) return authOfClient(input.client.apiKey, input.configuredKey);
  const own = ownKey(input);
  if (input.configuredKey === undefined) return { authorization: own, offeredKey: bearerToken(own) };
  return { authorization: isReplaced(input) ? `Bearer ${input.configuredKey}` : own, offeredKey: undefined };
}

type OwnKey = Pick<AuthInput, 'authorization' | 'apiKeyHeader'>;

/** The header towards the remote that the application's own key makes; undefined where it sent none. */
export const ownKey = ({ authorization, apiKeyHeader }: OwnKey): string | undefined =>
  authorization ?? (apiKeyHeader ? `Bearer ${apiKeyHeader}` : undefined);

/** Whether the configured key takes the place of what the application sent: then that was no key, whatever it says. */
export function isReplaced(input: Omit<AuthInput, 'client'>): boolean {
  if (input.configuredKey === undefined) return false;
  const isPlaceholder = input.fallback === 'if-placeholder' && ownKey(input) === 'Bearer placeholder';
  return input.fallback === 'always' || isPlaceholder;
}

function authOfClient(apiKey: string | undefined, configuredKey: string | undefined) {
  const key = apiKey ?? configuredKey;
  const offeredKey = configuredKey === undefined ? apiKey : undefined;
  return { authorization: key === undefined ? undefined : `Bearer ${key}`, offeredKey };
}

/** The token of a bearer header: exactly two words, the scheme in any case (RFC 9110 11.1). */
export function bearerToken(authorization: string | undefined): string | undefined {
  const words = authorization?.split(' ') ?? [];
  return words.length === 2 && words[0]?.toLowerCase() === 'bearer' && words[1] !== '' ? words[1] : undefined;
}

/**
 * The application's headers that the remote gets, each by its exact name: what decides over the response, and nothing about who
 * asks. A prefix would let keys and ids of other accounts out (`openai-organization`, `anthropic-user-id`).
 */
const TO_REMOTE = new Set(['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta']);

interface RequestHead {
  /** As Node gives them: name, value, name, value … */
  readonly rawHeaders: readonly string[];
  /** Authority of the remote, with the port where it is not 443; undefined where the runtime sets the header itself. */
  readonly host: string | undefined;
  /** Default: Proxy. */
  readonly client?: 'SDK';
  readonly authorization: string | undefined;
  /** `proxy_<uuidv7>_<attempt>`; without the attempt where nothing is encrypted (docs/protocol/inference.md 2). */
  readonly requestId: string;
}

/**
 * The headers towards the remote that do not depend on the secret, by allow-list; lower-case names. The attempt adds its
 * protection headers, the body its length and, for a form, its content type.
 */
export function requestHeaders(head: RequestHead): Record<string, string> {
  const headers = allowedHeaders(
    head.rawHeaders,
    (name) => TO_REMOTE.has(name),
    (before, value): string => `${before}, ${value}`,
  );
  if (head.host !== undefined) headers['host'] = head.host;
  headers['accept-encoding'] = 'identity'; // a compressed response could not be decrypted event by event
  if (head.authorization !== undefined) headers['authorization'] = head.authorization;
  headers[PROTECTION_HEADERS.version.toLowerCase()] = PROTOCOL_VERSION;
  if (head.client === undefined) {
    headers['privatemode-os'] = GO_OS[process.platform] ?? process.platform;
    headers['privatemode-architecture'] = GO_ARCHITECTURE[process.arch] ?? process.arch;
  }
  headers['privatemode-client'] = head.client ?? 'Proxy';
  headers['privatemode-user-request-id'] = head.requestId;
  return headers;
}

/**
 * Those headers of a head that `isAllowed`, by lower-case name; repeated ones as `join` puts them together. Headers of one
 * connection stay there.
 */
export function allowedHeaders<T>(
  rawHeaders: readonly string[],
  isAllowed: (name: string) => boolean,
  join: (before: string | T, value: string) => T,
): Record<string, string | T> {
  const headers: Record<string, string | T> = {};
  const perConnection: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase();
    const value = rawHeaders[i + 1]!;
    if (name === 'connection') perConnection.push(...value.toLowerCase().split(','));
    else if (isAllowed(name) && isSafeValue(value)) {
      headers[name] = Object.hasOwn(headers, name) ? join(headers[name]!, value) : value;
    }
  }
  for (const name of perConnection) delete headers[name.trim()];
  return headers;
}

/** What Node agrees to send: latin1 without control characters (tab excepted); anything else would throw mid-request. */
const isSafeValue = (value: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(value);

/** Operating systems and architectures that Go names otherwise than Node (docs/protocol/inference.md 2). */
const GO_OS: Readonly<Record<string, string>> = { win32: 'windows', sunos: 'solaris', cygwin: 'windows' };
const GO_ARCHITECTURE: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  ppc64: 'ppc64le',
  mipsel: 'mipsle',
};

/** `proxy_<UUIDv7>`, or `sdk_…` (RFC 9562 5.7; docs/protocol/inference.md 2): ids sort by the time they were given, in ms since 1970. */
export function newRequestId(client: 'proxy' | 'sdk', now: number = Date.now()): string {
  const time = now.toString(16).padStart(12, '0');
  return `${client}_${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice('xxxxxxxx-xxxx-4'.length)}`;
}
