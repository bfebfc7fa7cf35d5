/**
 * Headers by allow-list: which of the application's go out, which of the remote's come back, and which ones
 * we add.
 */
import { type ErrorFormat, INERT_HEADERS, requestIdHeader } from '../api/error-response.ts';
import { PROTOCOL_VERSION, type ProtectedAttempt, protectionHeaders } from '../envelope/protection.ts';
import { plainMarks } from './response-kind.ts';

/** Headers as they were received, by lower-case name; repeated ones are joined by commas, as Node does. */
export type ReceivedHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * The application's headers that the remote gets, by exact name. They decide what the response is, and say
 * nothing about who asks. A prefix would also let out keys and ids of other accounts (`openai-organization`,
 * `anthropic-user-id`).
 */
const TO_REMOTE = ['accept', 'content-type', 'anthropic-version', 'anthropic-beta', 'openai-beta'];

/** Operating systems and architectures for which Go has other names than Node. */
const GO_NAMES: Readonly<Record<string, string>> = { win32: 'windows', x64: 'amd64', ppc64: 'ppc64le' };

/** What the proxy announces of its machine (docs/protocol/inference.md 2). */
export const announced = ({ platform = '', arch = '' }: { platform?: string; arch?: string }) => ({
  'privatemode-os': GO_NAMES[platform] ?? platform,
  'privatemode-architecture': GO_NAMES[arch] ?? arch,
  'privatemode-client': 'Proxy',
});

/** The client library sends none of it: in a page of a browser there is no `process`. */
const OF_PROXY = announced(globalThis.process ?? {});

interface RequestHead {
  readonly headers: ReceivedHeaders;
  readonly host: string | undefined;
  readonly protocolVersion?: string | undefined;
  readonly client?: 'SDK';
  readonly authorization: string | undefined;
  readonly requestId: string;
}

/**
 * All headers of one attempt except its length. `headers`: the application's. `host`: the authority of the
 * remote, its port unless that is 443; undefined if the runtime sets the header itself. `client`: undefined
 * if the proxy sends the request. `requestId`: `proxy_<uuidv7>_<attempt>`, without the attempt if nothing is
 * encrypted (docs/protocol/inference.md 2); then `protection` is undefined. `body`: what leaves, undefined
 * for nothing, with its content type unless the application's stays. Throws as protectionHeaders does.
 */
export function attemptHeaders(
  head: RequestHead,
  protection: ProtectedAttempt | undefined,
  body: { readonly contentType?: string } | undefined,
): Record<string, string> {
  const headers = listed(head.headers, TO_REMOTE);
  if (body === undefined) delete headers['content-type'];
  else if (body.contentType !== undefined) headers['content-type'] = body.contentType;
  if (head.host !== undefined) headers['host'] = head.host;
  headers['accept-encoding'] = 'identity'; // a compressed response could not be decrypted event by event
  if (head.authorization !== undefined) headers['authorization'] = head.authorization;
  headers['Privatemode-Version'] = head.protocolVersion ?? PROTOCOL_VERSION;
  if (head.client !== undefined) headers['privatemode-client'] = head.client;
  else Object.assign(headers, OF_PROXY);
  headers['privatemode-user-request-id'] = head.requestId;
  return Object.assign(headers, protection && protectionHeaders(protection, head.protocolVersion));
}

/** Names of the headers by which a response can be audited. */
export const AUDIT_HEADERS = {
  secretId: 'Privatemode-Proxy-Secret-Id',
  manifestSha256: 'Privatemode-Proxy-Manifest-Sha256',
  attestedAt: 'Privatemode-Proxy-Attested-At',
  requestId: 'Privatemode-Proxy-Request-Id',
  receipt: 'Privatemode-Proxy-Receipt',
} as const;

interface ResponseHead {
  readonly format: ErrorFormat;
  readonly requestId: string;
  readonly headers: ReceivedHeaders;
  readonly contentType: string;
  readonly own?: Readonly<Record<string, string>>;
  readonly encrypted: boolean;
  readonly epoch: { secretId: string; manifestSha256: string; attestedAt: number } | undefined;
}

/**
 * The headers of a response. `headers`: those of the upstream response. The content type is ours, and so are
 * the marks by which a person can audit what protected the response. `epoch`: that of the attempt that led to
 * the response (`attestedAt`: ms since 1970); undefined if nothing authenticates the body. `encrypted`:
 * whether the responses of the endpoint are. A request id of the service replaces ours, and one of the
 * application, among the headers that each response to it has (`own`), replaces both.
 */
export function responseHeaders(head: ResponseHead): Record<string, string> {
  const { epoch } = head;
  const marks = epoch
    ? {
        [AUDIT_HEADERS.secretId]: epoch.secretId,
        [AUDIT_HEADERS.manifestSha256]: epoch.manifestSha256,
        [AUDIT_HEADERS.attestedAt]: new Date(epoch.attestedAt).toISOString(),
        [AUDIT_HEADERS.requestId]: head.requestId,
      }
    : plainMarks(head.encrypted);
  const passed = remoteHeaders(head.headers, { authenticated: epoch !== undefined });
  const ours = { 'content-type': head.contentType };
  return Object.assign(requestIdHeader(head), passed, INERT_HEADERS, ours, head.own, marks);
}

/**
 * Headers of the remote that reach the application only beside an authenticated body. Anybody may have
 * written another one: an id would pass for that of a real response, and a date or a rule for caches would
 * make caches keep the forgery.
 */
const IF_AUTHENTICATED = ['x-request-id', 'request-id', 'cache-control', 'date'];

/**
 * The remote's headers that reach the application, by lower-case name. When to try again, and how much of a
 * quota is left, always pass: they steer no browser and no program elsewhere.
 */
export function remoteHeaders(
  headers: ReceivedHeaders,
  { authenticated }: { readonly authenticated: boolean },
): Record<string, string> {
  const limits = Object.keys(headers).filter((name) => /^(?:x|anthropic)-ratelimit-/.test(name));
  return listed(headers, ['retry-after', ...limits, ...(authenticated ? IF_AUTHENTICATED : [])]);
}

/** The header that names the hosted tools of a translated request that the model does not get. */
export const leftOutHeader = (kinds: string | undefined): Record<string, string> =>
  kinds === undefined ? {} : { 'privatemode-proxy-tools-left-out': kinds };

/**
 * The headers with these names, except those that `Connection` names, because they belong to one connection.
 * A value that Node would refuse is left out, rather than throw in the middle of a request: all but latin1
 * without control characters other than tab.
 */
function listed(headers: ReceivedHeaders, names: readonly string[]): Record<string, string> {
  const { connection } = headers;
  const perConnection = connection === undefined ? [] : `${connection}`.toLowerCase().split(/[ \t]*,[ \t]*/);
  const passed: Record<string, string> = {};
  for (const name of names) {
    const value = headers[name];
    if (typeof value !== 'string' || perConnection.includes(name)) continue;
    if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) passed[name] = value;
  }
  return passed;
}
