/** Headers by allow-list: which of the application's go out, which of the remote's come back, and ours. */
import { type ErrorFormat, INERT_HEADERS, requestIdHeader } from '../api/error-response.ts';
import { ENCRYPTED_HEADER, type ProtectedAttempt, protectionHeaders } from '../envelope/protection.ts';

/** Headers as they were received, by lower-case name; repeated ones are joined by commas, as Node does. */
export type ReceivedHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

// The application's headers that the remote gets, by exact name: they decide what the response is. A prefix
// would also let out keys and ids of other accounts (`openai-organization`, `anthropic-user-id`).
const TO_REMOTE = ['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta'];
/** Of the remote's headers, those that come beside an authenticated body alone (remoteHeaders). */
const IF_AUTHENTICATED = ['x-request-id', 'request-id', 'cache-control', 'date'];

const GO_NAMES: Readonly<Record<string, string>> = { win32: 'windows', x64: 'amd64', ppc64: 'ppc64le' };

/** What the proxy announces of its machine, by the names of Go (docs/protocol/inference.md 2). */
export const announced = ({ platform = '', arch = '' }: { platform?: string; arch?: string }) => ({
  'privatemode-os': GO_NAMES[platform] ?? platform,
  'privatemode-architecture': GO_NAMES[arch] ?? arch,
  'privatemode-client': 'Proxy',
});

/** The client library sends none of it: in a page of a browser there is no `process`. */
const OF_PROXY = announced(globalThis.process ?? {});

/**
 * All headers of one attempt except its length. `protection`: undefined if nothing is encrypted. `body`: what
 * leaves, with its content type unless the application's stays. Throws as protectionHeaders does.
 */
export function attemptHeaders(
  head: {
    readonly headers: ReceivedHeaders; // the application's
    readonly host: string | undefined; // of the remote, its port unless 443; undefined: the runtime sets it
    readonly protocolVersion: string;
    readonly client?: 'SDK'; // undefined: the proxy
    readonly authorization: string | undefined;
    readonly requestId: string; // with `_<attempt>` if encrypted (docs/protocol/inference.md 2)
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

/** The headers of a response. Its request id is the application's (`own`), else the service's, else ours. */
export function responseHeaders(head: {
  readonly format: ErrorFormat;
  readonly requestId: string;
  readonly headers: ReceivedHeaders; // of the upstream response
  readonly contentType: string;
  readonly own?: Readonly<Record<string, string>>; // which each response to the application has
  readonly encrypted: boolean; // whether the responses of the endpoint are
  /** Of the attempt; undefined if nothing authenticates the body. `attestedAt`: ms since 1970. */
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
 * The remote's headers that reach the application. When to try again, and how much of a quota is left, steer
 * no browser and no program elsewhere. Others come beside an authenticated body alone: a stranger's id would
 * pass for that of a real response, and a date or a rule for caches would make caches keep a forgery.
 */
export function remoteHeaders(headers: ReceivedHeaders, authenticated: boolean): Record<string, string> {
  const limits = Object.keys(headers).filter((name) => /^(?:x|anthropic)-ratelimit-/.test(name));
  return listed(headers, ['retry-after', ...limits, ...(authenticated ? IF_AUTHENTICATED : [])]);
}

/** The header that names the hosted tools of a translated request that the model does not get. */
export const leftOutHeader = (kinds: string | undefined): Record<string, string> =>
  kinds === undefined ? {} : { 'privatemode-proxy-tools-left-out': kinds };

/**
 * The headers with these names, except those of one connection, which `Connection` names. A value that Node
 * would refuse in the middle of a request is left out: all but latin1 without controls other than tab.
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
