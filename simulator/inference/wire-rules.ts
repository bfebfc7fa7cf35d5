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

/**
 * All other headers that a client may send: content negotiation, the credential, and the documented headers
 * of the two API styles.
 */
const PLAIN_HEADERS = new Set([
  'host',
  'connection',
  'content-type',
  'content-length',
  'accept',
  'accept-encoding',
  'accept-language',
  'authorization',
  'anthropic-version',
  'anthropic-beta',
  'openai-beta',
]);
/** Headers that the fetch of every runtime adds by itself; the client library can only use fetch. */
const FETCH_HEADERS = new Set(['user-agent', 'sec-fetch-mode']);
/** Headers that fetch also adds if the response could be cached. */
const UNCACHED_HEADERS = new Set(['pragma', 'cache-control']);
const PROTOCOL_NAMES: ReadonlySet<string> = new Set(Object.values(PROTOCOL_HEADERS));

interface Head {
  readonly endpoint: Endpoint;
  readonly names: readonly string[];
  readonly get: (name: string) => string | undefined;
  readonly socket: IncomingMessage['socket'];
}

/** One rule: returns the breaches in a request head. No breach quotes a credential. */
type Rule = (head: Head) => string | readonly string[] | undefined;

const UUID_V7 = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}';
const GO_OS = /^(linux|darwin|windows|freebsd|openbsd|netbsd|aix|android|illumos|solaris)$/;
const GO_ARCHITECTURE = /^(amd64|arm64|386|arm|ppc64le|ppc64|s390x|riscv64|loong64|mips64le|mips64)$/;

const isEncrypted = ({ endpoint }: Head): boolean => endpoint.body !== 'none';
const isProxy = ({ get }: Head): boolean => get(PROTOCOL_HEADERS.client) === 'Proxy';

const isOfFetch = ({ endpoint, get }: Head, name: string): boolean =>
  get(PROTOCOL_HEADERS.client) === 'SDK' &&
  (FETCH_HEADERS.has(name) || (endpoint.body === 'none' && UNCACHED_HEADERS.has(name)));

const unless = (good: boolean, breach: string): string | undefined => (good ? undefined : breach);

/** A rule for the form of a header's value, if the header is present. */
const formed =
  (name: string, form: RegExp): Rule =>
  ({ get }) =>
    unless(form.test(get(name) ?? '') || get(name) === undefined, `${name} is malformed: ${get(name)}`);

function apiHosts({ socket }: Head): string[] {
  const serverName =
    socket instanceof TLSSocket ? (socket as { servername?: unknown }).servername : undefined;
  const names =
    typeof serverName === 'string' && serverName !== ''
      ? [serverName]
      : ['localhost', '127.0.0.1', '[::1]', socket.localAddress ?? ''];
  return names.flatMap((name) => [
    `${name}:${socket.localPort}`,
    ...(socket.localPort === 443 ? [name] : []),
  ]);
}

const RULES: readonly Rule[] = [
  (head) =>
    head.names
      .filter((name) => !PLAIN_HEADERS.has(name) && !PROTOCOL_NAMES.has(name) && !isOfFetch(head, name))
      .map((name) => `header ${name} must not reach the service`),
  ({ names }) =>
    [...new Set(names.filter((name, index) => names.indexOf(name) !== index))].map(
      (name) => `header ${name} was sent twice`,
    ),
  (head) =>
    unless(apiHosts(head).includes(head.get('host') ?? ''), `host is not the API host: ${head.get('host')}`),
  ({ get }) =>
    unless((get('accept-encoding') ?? 'identity') === 'identity', 'accept-encoding is not identity'),
  ({ get }) =>
    unless(/^Bearer \S+$/.test(get('authorization') ?? 'Bearer x'), 'authorization is no bearer token'),
  formed('connection', /^(keep-alive|close)$/),
  formed(PROTOCOL_HEADERS.version, /^v1\.(4\d|[5-9]\d|\d{3,})\.\d+$/),
  formed(PROTOCOL_HEADERS.client, /^(Proxy|App|SDK|ApiGateway)$/),
  formed(PROTOCOL_HEADERS.os, GO_OS),
  formed(PROTOCOL_HEADERS.architecture, GO_ARCHITECTURE),
  formed(PROTOCOL_HEADERS.shardKey, /^[0-9a-f]{16}(-[A-Za-z0-9+/]+)?$/),
  formed(PROTOCOL_HEADERS.ocspMac, /^[0-9a-f]{64}$/),
  (head) => {
    const attempt = isProxy(head) && isEncrypted(head) ? '_[01]' : '';
    const form = new RegExp(`^${isProxy(head) ? 'proxy' : '[a-z]+'}_${UUID_V7}${attempt}$`);
    const id = head.get(PROTOCOL_HEADERS.requestId) ?? '';
    return unless(form.test(id), `${PROTOCOL_HEADERS.requestId} is malformed: ${id}`);
  },
  (head) => missingHeaders(head).map((name) => `header ${name} is missing`),
  (head) => forbiddenHere(head).map((name) => `header ${name} does not belong to ${head.endpoint.name}`),
];

/**
 * Headers the endpoint needs and the request lacks. The proxy sends more than the client library
 * (docs/protocol/inference.md 2).
 */
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
    get: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    socket: request.socket,
  };
}

/** All breaches in a request head; empty for a good client. */
export function headViolations(endpoint: Endpoint, request: IncomingMessage): string[] {
  const head = headOf(endpoint, request);
  return RULES.flatMap((rule) => rule(head) ?? []);
}

/** Required headers that are missing; without them the server refuses the request. */
export const missingProtocolHeaders = (endpoint: Endpoint, request: IncomingMessage): string[] =>
  missingHeaders(headOf(endpoint, request));
