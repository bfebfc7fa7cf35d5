/** Finds the client of a request by the token in the headers, and says what the client may use. */
import { createHash } from 'node:crypto';
import type { EndpointId } from '../api/endpoints.ts';
import { bearerToken } from '../api/match-endpoint.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ClientEntry } from './clients-file.ts';

/** A client in the form that requests need. This form is built once for each state of the clients file. */
export interface Client extends Omit<ClientEntry, 'apiKeyFile' | 'cacheSalt'> {
  /** The API key of the service for requests of this client. If undefined, the configured key is used. */
  readonly apiKey: string | undefined;
  /** The salt for requests without a salt. If undefined, each request without a salt gets its own salt. */
  readonly sharedSalt: string | undefined;
  /** Makes a salt that replaces the salt of a request. If undefined, the request keeps its salt. */
  readonly mixSalt: ((own: Uint8Array) => string) | undefined;
}

/** The request headers that can identify the client of a request. */
export interface Credentials {
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
}

/** SHA-256 of a token, in lower-case hex → the client of this token. */
export type ClientsByToken = ReadonlyMap<string, Client>;

/**
 * Finds the client that sent a request. If the request has an Authorization header, only its token counts.
 * Otherwise, the token in `x-api-key` counts. Throws client_unknown if the token identifies no client or the
 * client has expired. `now` is in ms since 1970.
 */
export function authenticate(sent: Credentials, clients: ClientsByToken, now: number): Client {
  const { authorization, apiKeyHeader } = sent;
  const token = authorization === undefined ? apiKeyHeader || undefined : bearerToken(authorization);
  // The time of the look-up may reveal parts of a digest, but nobody can compute a token of 256 random bits
  // from its digest.
  const client = token === undefined ? undefined : clients.get(digestOf(token));
  if (client === undefined) throw new PrivatemodeError('client_unknown', whyUnknown(token, sent));
  if (client.expires !== undefined && now >= client.expires)
    throw new PrivatemodeError('client_unknown', 'the token has expired', {
      remedy: 'Ask the operator of this gateway for more time ("expires" in the file of --clients).',
    });
  return client;
}

/** The SHA-256 of a token's bytes in Latin-1. Node reads header values as Latin-1, too. */
const digestOf = (token: string): string => createHash('sha256').update(token, 'latin1').digest('hex');

/**
 * The form of an unknown token → the text about it in the error. Only the form decides, so a client that
 * guesses tokens learns nothing.
 */
const MISTAKEN: readonly (readonly [form: RegExp, problem: string])[] = [
  [
    /^[0-9a-f]{64}$/i,
    'is a hash, as the clients file holds it, and not the token, which "privatemode-proxy clients new" printed once',
  ],
  [/^["'].*["']$/, 'has quotes around it: leave them out'],
  [/^bearer /i, 'begins with "Bearer", which stands in Authorization only'],
  [/^placeholder$/, 'is the placeholder, which is for gateways without --clients'],
  [/^/, 'is not known'],
];

/** Returns why the request identifies no client: because of its token, or because it has none. */
function whyUnknown(token: string | undefined, { authorization, apiKeyHeader }: Credentials): string {
  if (token === undefined)
    return authorization === undefined
      ? 'no token was sent in Authorization or x-api-key, and neither other headers nor the URL are read for one'
      : 'Authorization is not of the form "Bearer TOKEN"';
  const both = apiKeyHeader ? 'Authorization, which decides if x-api-key is sent too,' : 'Authorization';
  return `the token in ${authorization === undefined ? 'x-api-key' : both} ${MISTAKEN.find(([form]) => form.test(token))?.[1]}`;
}

/** Throws client_forbidden if the client may not use the endpoint. */
export function requireEndpoint({ endpoints }: Client, id: EndpointId): void {
  if (endpoints === undefined || endpoints.includes(id)) return;
  throw forbidden('this endpoint', endpoints);
}

/**
 * Throws client_forbidden if the client may not use the model. `alias` is the alias that the request had in
 * place of the model. A request that names no model is allowed.
 */
export function requireModel({ models }: Client, model: string | undefined, alias?: string): void {
  if (models === undefined || model === undefined || models.some((pattern) => covers(pattern, model))) return;
  throw forbidden(alias === undefined ? 'this model' : `the model that ${alias} stands for`, models);
}

function forbidden(what: string, allowed: readonly string[]): PrivatemodeError {
  const listed = `${allowed.slice(0, 8).join(', ')}${allowed.length > 8 ? ' and others' : ''}`;
  return new PrivatemodeError('client_forbidden', `this client may not use ${what}, only ${listed}`, {
    remedy: 'If you need more, ask the operator of this gateway.',
  });
}

/**
 * Whether `pattern`, in which `*` stands for any characters, matches the whole text. Unlike a regular
 * expression, this function takes time linear in both lengths.
 */
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
