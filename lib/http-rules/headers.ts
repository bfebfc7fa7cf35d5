/** The headers that pass from the application to the service and back, and those that the proxy adds. */
import { type ErrorFormat, INERT_HEADERS, requestIdHeader } from '../api/error-response.ts';
import { ENCRYPTED_HEADER, type ProtectedAttempt, protectionHeaders } from '../envelope/protection.ts';

/** Received headers by lower-case name. Commas join the values of a repeated header, as Node does it. */
export type ReceivedHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

// The application's headers that the service gets, because they decide what the response is. A rule by prefix
// would also send keys and ids of other accounts (`openai-organization`, `anthropic-user-id`).
const TO_REMOTE = ['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta'];
/** The service's headers that the application gets only with an authenticated body (see remoteHeaders). */
const IF_AUTHENTICATED = ['x-request-id', 'request-id', 'cache-control', 'date'];

const GO_NAMES: Readonly<Record<string, string>> = { win32: 'windows', x64: 'amd64', ppc64: 'ppc64le' };

/** What the proxy says about its machine, with the names that Go uses (docs/protocol/inference.md 2). */
export const announced = ({ platform = '', arch = '' }: { platform?: string; arch?: string }) => ({
  'privatemode-os': GO_NAMES[platform] ?? platform,
  'privatemode-architecture': GO_NAMES[arch] ?? arch,
  'privatemode-client': 'Proxy',
});

/** Headers that only the proxy sends. The client library also runs in browsers, which have no `process`. */
const OF_PROXY = announced(globalThis.process ?? {});

/**
 * All headers of an attempt except content-length. `protection` is undefined without encryption; `body` is
 * undefined if no body is sent. The content type of `body` replaces the application's. Throws what
 * protectionHeaders throws.
 */
export function attemptHeaders(
  head: {
    readonly headers: ReceivedHeaders; // the headers of the application's request
    readonly host: string | undefined; // service host, and port unless 443; undefined if the runtime sets it
    readonly protocolVersion: string;
    readonly client?: 'SDK'; // the client library; undefined for the proxy
    readonly authorization: string | undefined;
    readonly requestId: string; // ends with `_<attempt>` if encrypted (docs/protocol/inference.md 2)
  },
  protection: ProtectedAttempt | undefined,
  body: { readonly contentType?: string | undefined } | undefined,
): Record<string, string> {
  const headers = listed(head.headers, TO_REMOTE);
  if (body === undefined) delete headers['content-type'];
  else if (body.contentType !== undefined) headers['content-type'] = body.contentType;
  if (head.host !== undefined) headers['host'] = head.host;
  headers['accept-encoding'] = 'identity'; // a compressed response could not be decrypted event by event
  if (head.authorization !== undefined) headers['authorization'] = head.authorization;
  headers['Privatemode-Version'] = head.protocolVersion;
  Object.assign(headers, head.client === undefined ? OF_PROXY : { 'privatemode-client': head.client });
  headers['privatemode-user-request-id'] = head.requestId;
  return Object.assign(headers, protection && protectionHeaders(protection));
}

export const AUDIT_HEADERS = {
  secretId: 'Privatemode-Proxy-Secret-Id',
  manifestSha256: 'Privatemode-Proxy-Manifest-Sha256',
  attestedAt: 'Privatemode-Proxy-Attested-At',
  requestId: 'Privatemode-Proxy-Request-Id',
  receipt: 'Privatemode-Proxy-Receipt',
} as const;

/** The headers of a response. The request id is the application's (`own`), the service's or the proxy's. */
export function responseHeaders(head: {
  readonly format: ErrorFormat;
  readonly requestId: string;
  readonly headers: ReceivedHeaders; // the headers of the upstream response
  readonly contentType: string;
  readonly own?: Readonly<Record<string, string>>; // headers that all responses to this request have
  readonly encrypted: boolean; // whether responses of the endpoint are encrypted
  /** The epoch of the attempt; undefined if nothing authenticates the body. `attestedAt`: ms since 1970. */
  readonly epoch: { secretId: string; manifestSha256: string; attestedAt: number } | undefined;
}): Record<string, string> {
  const { epoch } = head;
  const marks = epoch
    ? {
        [AUDIT_HEADERS.secretId]: epoch.secretId,
        [AUDIT_HEADERS.manifestSha256]: epoch.manifestSha256,
        [AUDIT_HEADERS.attestedAt]: new Date(epoch.attestedAt).toISOString(),
        [AUDIT_HEADERS.requestId]: head.requestId,
      }
    : {
        'cache-control': 'no-store',
        'privatemode-proxy-unauthenticated': 'true',
        ...(head.encrypted ? { [ENCRYPTED_HEADER]: 'false' } : {}),
      };
  const passed = remoteHeaders(head.headers, epoch !== undefined);
  const ours = { 'content-type': head.contentType };
  return Object.assign(requestIdHeader(head), passed, INERT_HEADERS, ours, head.own, marks);
}

/**
 * The service's headers that reach the application. Retry-After and rate limits always pass: they affect no
 * browser and no other program. The headers of IF_AUTHENTICATED pass only with an authenticated body: a
 * forged id would pass for a real one, and a forged date or cache rule would make caches keep a forgery.
 */
export function remoteHeaders(headers: ReceivedHeaders, authenticated: boolean): Record<string, string> {
  const limits = Object.keys(headers).filter((name) => /^(?:x|anthropic)-ratelimit-/.test(name));
  return listed(headers, ['retry-after', ...limits, ...(authenticated ? IF_AUTHENTICATED : [])]);
}

/** The header that names the hosted tools that were left out of a translated request. */
export const leftOutHeader = (kinds: string | undefined): Record<string, string> =>
  kinds === undefined ? {} : { 'privatemode-proxy-tools-left-out': kinds };

/**
 * The headers with the given names. `Connection` lists hop-by-hop headers, which are left out. A value must
 * be latin1 with no control character except tab: Node would refuse others in the middle of a request.
 */
function listed(headers: ReceivedHeaders, names: readonly string[]): Record<string, string> {
  const perConnection = `${headers['connection'] ?? ''}`.toLowerCase().split(/[ \t]*,[ \t]*/);
  const passed: Record<string, string> = {};
  for (const name of names) {
    const value = headers[name];
    if (typeof value !== 'string' || perConnection.includes(name)) continue;
    if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) passed[name] = value;
  }
  return passed;
}
