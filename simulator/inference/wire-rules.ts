/**
 * Rules for the head of a request; each describes how a client broke it. The rules refuse nothing: the
 * exchange log collects the breaches, and tests assert that there are none.
 */
import type { IncomingMessage } from 'node:http';
import { TLSSocket } from 'node:tls';
import type { Endpoint } from './endpoints.ts';

/** Headers of the protocol (docs/protocol/inference.md 2), lower-case. */
export const PROTOCOL_HEADERS = {
  version: 'privatemode-version',
  os: 'privatemode-os',
  architecture: 'privatemode-architecture',
  client: 'privatemode-client',
  secretId: 'privatemode-secret-id',
  targetModel: 'privatemode-target-model',
  shardKey: 'privatemode-shard-key',
  ocspPolicy: 'privatemode-nvidia-ocsp-policy',
  ocspMac: 'privatemode-nvidia-ocsp-policy-mac',
  requestId: 'privatemode-user-request-id',
} as const;

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '));

/** All other headers that a client may send: negotiation, the credential, and those of the two API styles. */
const PLAIN_HEADERS = words(
  'host connection content-type content-length accept accept-encoding accept-language authorization ' +
    'anthropic-version anthropic-beta openai-beta',
);
/** Headers that the fetch of every runtime adds by itself; the client library can only use fetch. */
const FETCH_HEADERS = words('user-agent sec-fetch-mode');
/** Headers that fetch also adds if the response could be cached. */
const UNCACHED_HEADERS = words('pragma cache-control');
const PROTOCOL_NAMES: ReadonlySet<string> = new Set(Object.values(PROTOCOL_HEADERS));

interface Head {
  readonly endpoint: Endpoint;
  readonly names: readonly string[];
  readonly get: (name: string) => string | undefined;
  readonly socket: IncomingMessage['socket'];
}

const isEncrypted = ({ endpoint }: Head): boolean => endpoint.body !== 'none';
const isProxy = ({ get }: Head): boolean => get(PROTOCOL_HEADERS.client) === 'Proxy';

const isAllowed = ({ endpoint, get }: Head, name: string): boolean =>
  PLAIN_HEADERS.has(name) ||
  PROTOCOL_NAMES.has(name) ||
  (get(PROTOCOL_HEADERS.client) === 'SDK' &&
    (FETCH_HEADERS.has(name) || (endpoint.body === 'none' && UNCACHED_HEADERS.has(name))));

const UUID_V7 = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}';

function requestIdForm(head: Head): RegExp {
  const attempt = isProxy(head) && isEncrypted(head) ? '_[01]' : '';
  return new RegExp(`^${isProxy(head) ? 'proxy' : '[a-z]+'}_${UUID_V7}${attempt}$`);
}

/** The form of each header, if it is present. No breach quotes a credential, so it is left out here. */
const FORMS: Readonly<Record<string, RegExp>> = {
  'accept-encoding': /^identity$/,
  connection: /^(keep-alive|close)$/,
  [PROTOCOL_HEADERS.version]: /^v1\.(4\d|[5-9]\d|\d{3,})\.\d+$/,
  [PROTOCOL_HEADERS.client]: /^(Proxy|App|SDK|ApiGateway)$/,
  [PROTOCOL_HEADERS.os]: /^(linux|darwin|windows|freebsd|openbsd|netbsd|aix|android|illumos|solaris)$/,
  [PROTOCOL_HEADERS.architecture]:
    /^(amd64|arm64|386|arm|ppc64le|ppc64|s390x|riscv64|loong64|mips64le|mips64)$/,
  [PROTOCOL_HEADERS.shardKey]: /^[0-9a-f]{16}(-[A-Za-z0-9+/]+)?$/,
  [PROTOCOL_HEADERS.ocspMac]: /^[0-9a-f]{64}$/,
};

function apiHosts({ socket }: Head): string[] {
  const named = socket instanceof TLSSocket ? (socket as { servername?: unknown }).servername : undefined;
  const names =
    typeof named === 'string' && named !== ''
      ? [named]
      : ['localhost', '127.0.0.1', '[::1]', socket.localAddress ?? ''];
  const port = socket.localPort;
  return names.flatMap((name) => [`${name}:${port}`, ...(port === 443 ? [name] : [])]);
}

/** Headers that the endpoint needs and the request lacks; the proxy sends more than the library. */
function missingHeaders(head: Head): string[] {
  const { version, client, requestId, os, architecture, secretId, targetModel, ocspPolicy, ocspMac } =
    PROTOCOL_HEADERS;
  const needed: string[] = [version, client, requestId];
  if (isProxy(head)) needed.push(os, architecture);
  if (isEncrypted(head)) needed.push(secretId);
  if (isEncrypted(head) && head.endpoint.name !== 'unstructured') needed.push(targetModel);
  if (isEncrypted(head) && isProxy(head)) needed.push(ocspPolicy, ocspMac);
  return needed.filter((name) => !head.get(name));
}

function forbiddenHere({ endpoint, get }: Head): string[] {
  const { secretId, targetModel, shardKey, ocspPolicy, ocspMac } = PROTOCOL_HEADERS;
  const foreign: string[] = [];
  if (endpoint.body === 'none') foreign.push(secretId, ocspPolicy, ocspMac);
  if (endpoint.body === 'none' || endpoint.body === 'raw') foreign.push(targetModel);
  if (!endpoint.salted) foreign.push(shardKey);
  return foreign.filter((name) => get(name) !== undefined);
}

function headOf(endpoint: Endpoint, request: IncomingMessage): Head {
  return {
    endpoint,
    names: request.rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase()),
    get: (name) => request.headers[name]?.toString(),
    socket: request.socket,
  };
}

/** All breaches in a request head; empty for a good client. */
export function headViolations(endpoint: Endpoint, request: IncomingMessage): string[] {
  const head = headOf(endpoint, request);
  const { names, get } = head;
  const forms = { ...FORMS, [PROTOCOL_HEADERS.requestId]: requestIdForm(head) };
  const malformed = Object.entries(forms).filter(([name, form]) => !form.test(get(name) ?? '') && get(name));
  const twice = new Set(names.filter((name, index) => names.indexOf(name) !== index));
  return [
    ...names
      .filter((name) => !isAllowed(head, name))
      .map((name) => `header ${name} must not reach the service`),
    ...[...twice].map((name) => `header ${name} was sent twice`),
    ...(apiHosts(head).includes(get('host') ?? '') ? [] : [`host is not the API host: ${get('host')}`]),
    ...(/^Bearer \S+$/.test(get('authorization') ?? 'Bearer x') ? [] : ['authorization is no bearer token']),
    ...malformed.map(([name]) => `${name} is malformed: ${get(name)}`),
    ...missingHeaders(head).map((name) => `header ${name} is missing`),
    ...forbiddenHere(head).map((name) => `header ${name} does not belong to ${endpoint.name}`),
  ];
}

/** Required headers that are missing; without them the server refuses the request. */
export const missingProtocolHeaders = (endpoint: Endpoint, request: IncomingMessage): string[] =>
  missingHeaders(headOf(endpoint, request));
