/**
 * Headers by allow-list: which of the application's go out, which of the remote's come back, and which ones
 * we add.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorFormat, INERT_HEADERS, requestIdHeader } from '../api/error-response.ts';
import {
  PROTECTION_HEADERS,
  PROTOCOL_VERSION,
  type ProtectedAttempt,
  protectionHeaders,
} from '../envelope/protection.ts';
import { plainMarks } from './unauthenticated.ts';

/**
 * The application's headers that the remote gets, by exact name. They decide what the response is, and say
 * nothing about who asks. A prefix would also let out keys and ids of other accounts (`openai-organization`,
 * `anthropic-user-id`).
 */
const TO_REMOTE = new Set(['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta']);

interface RequestHead {
  /** The application's headers as Node gives them: name, value, name, value … */
  readonly headers?: readonly string[] | IncomingHttpHeaders;
  readonly rawHeaders?: readonly string[];
  /**
   * Authority of the remote, with the port unless it is 443; undefined if the runtime sets the header itself.
   */
  readonly host: string | undefined;
  /** What Privatemode-Version announces. Default: the generation that is implemented. */
  readonly protocolVersion?: string | undefined;
  /** What Privatemode-Client announces. Default: Proxy. */
  readonly client?: 'SDK';
  readonly authorization: string | undefined;
  /**
   * `proxy_<uuidv7>_<attempt>`; without the attempt if nothing is encrypted (docs/protocol/inference.md 2).
   */
  readonly requestId: string;
}

/**
 * All headers of one attempt except its length. `protection`: undefined if the endpoint is not encrypted.
 * `body`: the body that leaves, undefined for none; its content type is that of a form, or undefined if the
 * application's stays.
 */
export function attemptHeaders(
  head: RequestHead,
  protection: ProtectedAttempt | undefined,
  body: { readonly contentType?: string } | undefined,
): Record<string, string> {
  const headers = requestHeaders(head);
  if (protection !== undefined) Object.assign(headers, protectionHeaders(protection, head.protocolVersion));
  if (body === undefined) delete headers['content-type'];
  else if (body.contentType !== undefined) headers['content-type'] = body.contentType;
  return headers;
}

/** The headers towards the remote that depend on neither the secret nor the body; lower-case names. */
export function requestHeaders(head: RequestHead): Record<string, string> {
  const headers = allowedHeaders(
    head.headers ?? head.rawHeaders!,
    (name) => TO_REMOTE.has(name),
    (before, value): string => `${before}, ${value}`,
  );
  if (head.host !== undefined) headers['host'] = head.host;
  headers['accept-encoding'] = 'identity'; // a compressed response could not be decrypted event by event
  if (head.authorization !== undefined) headers['authorization'] = head.authorization;
  headers[PROTECTION_HEADERS.version.toLowerCase()] = head.protocolVersion ?? PROTOCOL_VERSION;
  if (head.client === undefined) {
    headers['privatemode-os'] = GO_OS[process.platform] ?? process.platform;
    headers['privatemode-architecture'] = GO_ARCHITECTURE[process.arch] ?? process.arch;
  }
  headers['privatemode-client'] = head.client ?? 'Proxy';
  headers['privatemode-user-request-id'] = head.requestId;
  return headers;
}

/**
 * Operating systems and architectures for which Go has other names than Node (docs/protocol/inference.md 2).
 */
const GO_OS: Readonly<Record<string, string>> = { win32: 'windows', sunos: 'solaris', cygwin: 'windows' };
const GO_ARCHITECTURE: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  ppc64: 'ppc64le',
  mipsel: 'mipsle',
};

/** The head of a response towards the application. */
interface ResponseHead {
  readonly format: ErrorFormat;
  readonly requestId: string;
  /** The headers of the upstream response, as Node gives them. */
  readonly headers?: readonly string[] | IncomingHttpHeaders;
  readonly rawHeaders?: readonly string[];
  readonly contentType: string;
  /** Headers that every response to this application has. */
  readonly own?: Readonly<Record<string, string>>;
  /** Whether the responses of the endpoint are encrypted. */
  readonly encrypted: boolean;
  /** The epoch of the attempt that led to the response; undefined if nothing authenticates the body. */
  readonly epoch: EpochFacts | undefined;
}

/**
 * The headers of a response. The content type is ours, and so are the marks that say what protected the
 * response, or that nothing did. Of the remote's headers, those on the allow-list pass. A request id of the
 * service replaces ours, and one of the application (`own`) replaces both.
 */
export function responseHeaders(head: ResponseHead): Record<string, string | string[]> {
  const { epoch } = head;
  return {
    ...requestIdHeader(head),
    ...remoteHeaders(head.headers ?? head.rawHeaders!, { authenticated: epoch !== undefined }),
    ...INERT_HEADERS,
    'content-type': head.contentType,
    ...head.own,
    ...(epoch === undefined ? plainMarks(head.encrypted) : epochHeaders(epoch, head.requestId)),
  };
}

/**
 * Whether a header of the remote always reaches the application: it says when to try again, or how much of a
 * quota is left. Nothing authenticates these headers, so none may steer a browser or a program elsewhere.
 */
const isHint = (name: string): boolean =>
  name === 'retry-after' || name.startsWith('x-ratelimit-') || name.startsWith('anthropic-ratelimit-');

/**
 * Headers of the remote that reach the application only beside an authenticated body: ids to ask the
 * service's operators about, the date of the response, and how long caches may keep it.
 */
const IF_AUTHENTICATED = new Set(['x-request-id', 'request-id', 'cache-control', 'date']);

/**
 * The remote's headers that reach the application, by lower-case name; repeated ones as arrays.
 * `authenticated`: whether the body is. If it is not, anybody may have written the response: an id would pass
 * for that of a real one, and a date or a rule for caches would make caches keep the forgery.
 */
export const remoteHeaders = (
  rawHeaders: readonly string[] | IncomingHttpHeaders,
  { authenticated }: { readonly authenticated: boolean },
): Record<string, string | string[]> =>
  allowedHeaders(
    rawHeaders,
    (name) => isHint(name) || (authenticated && IF_AUTHENTICATED.has(name)),
    (before, value) => [before, value].flat(),
  );

/**
 * The parts of an epoch that a response names, so that a person can audit what protected it. `attestedAt`: ms
 * since 1970.
 */
type EpochFacts = Readonly<Record<'secretId' | 'manifestSha256', string> & { attestedAt: number }>;

/** Names of the headers by which a response can be audited. */
export const AUDIT_HEADERS = {
  secretId: 'Privatemode-Proxy-Secret-Id',
  manifestSha256: 'Privatemode-Proxy-Manifest-Sha256',
  attestedAt: 'Privatemode-Proxy-Attested-At',
  requestId: 'Privatemode-Proxy-Request-Id',
  receipt: 'Privatemode-Proxy-Receipt',
} as const;

/**
 * The header that names the hosted tools that were left out when a request was translated: the model does not
 * get them.
 */
export const leftOutHeader = (kinds: string | undefined): Record<string, string> =>
  kinds === undefined ? {} : { 'privatemode-proxy-tools-left-out': kinds };

/**
 * Headers that say what protected one response. `epoch`: that of the attempt that led to the response, not of
 * the first attempt. The time is written as in RFC 3339, in UTC.
 */
export function epochHeaders(epoch: EpochFacts, requestId: string): Record<string, string> {
  return {
    [AUDIT_HEADERS.secretId]: epoch.secretId,
    [AUDIT_HEADERS.manifestSha256]: epoch.manifestSha256,
    [AUDIT_HEADERS.attestedAt]: new Date(epoch.attestedAt).toISOString(),
    [AUDIT_HEADERS.requestId]: requestId,
  };
}

/**
 * The headers of a head that `isAllowed` accepts, by lower-case name; `join` puts repeated ones together.
 * Headers that `Connection` names belong to one connection, and are dropped, as are values that Node would
 * refuse.
 */
function allowedHeaders<T>(
  given: readonly string[] | IncomingHttpHeaders,
  isAllowed: (name: string) => boolean,
  join: (before: string | T, value: string) => T,
): Record<string, string | T> {
  const rawHeaders = Array.isArray(given)
    ? given
    : Object.entries(given).flatMap(([n, v]) => [v ?? []].flat().flatMap((x: string) => [n, x]));
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

/**
 * Whether Node agrees to send the value: latin1 without control characters, except tab. Any other value would
 * throw in the middle of a request.
 */
const isSafeValue = (value: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
