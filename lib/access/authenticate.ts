/** Finds the client that sends a request, by the token in its head, or throws the error to respond with. */
import { createHash } from 'node:crypto';
import type { EndpointId } from '../api/endpoints.ts';
import { bearerToken } from '../api/match-endpoint.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ClientEntry } from './clients-file.ts';

/** A client in the form that requests need; made once for each state of the file. */
export interface Client
  extends Pick<ClientEntry, 'name' | 'models' | 'endpoints' | 'expires' | 'tokens' | 'limits'> {
  /**
   * The API key of the service that the proxy sends with requests of this client; undefined: the configured
   * key.
   */
  readonly apiKey: string | undefined;
  /**
   * The salt for requests of the client that bring none; undefined: each such request gets a salt of its own.
   */
  readonly sharedSalt: string | undefined;
  /** Makes the salt that replaces the one that a request brings; undefined: the request keeps its salt. */
  readonly mixSalt: ((own: Uint8Array) => string) | undefined;
}

/** The parts of a request that can identify its client. */
export interface Credentials {
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
}

/** The clients as requests look them up. */
export interface ClientTable {
  /** By the SHA-256 of each token, in hexadecimal. */
  readonly byToken: ReadonlyMap<string, Client>;
  readonly byName: ReadonlyMap<string, Client>;
}

/** Made once for each state of the file. */
export const tableOf = (clients: readonly Client[]): ClientTable => ({
  byToken: new Map(clients.flatMap((client) => client.tokens.map((digest) => [digest, client]))),
  byName: new Map(clients.map((client) => [client.name, client])),
});

/**
 * The client that has the token. How long the look-up takes may tell something of a digest, which is of no
 * use: nobody finds a token of 256 random bits from its digest.
 */
const clientWith = (token: string, { byToken }: ClientTable): Client | undefined =>
  byToken.get(createHash('sha256').update(token, 'latin1').digest('hex')); // as Node reads headers

/**
 * Finds the client that a request comes from. If there is an Authorization header, it alone decides which
 * token counts; `x-api-key` counts only without it. Throws client_unknown if the token identifies no client,
 * or if the client has expired. `now`: ms since 1970.
 */
export function authenticate(
  { authorization, apiKeyHeader }: Credentials,
  clients: ClientTable,
  now: number,
): Client {
  const token = authorization === undefined ? apiKeyHeader || undefined : bearerToken(authorization);
  const client = token === undefined ? undefined : clientWith(token, clients);
  if (client === undefined)
    throw new PrivatemodeError('client_unknown', whyUnknown(token, { authorization, apiKeyHeader }));
  if (client.expires !== undefined && now >= client.expires)
    throw new PrivatemodeError('client_unknown', 'the token has expired', { remedy: EXPIRED_REMEDY });
  return client;
}

/**
 * What the message says about an unknown token, by the form of that token. Only the form decides, so a client
 * that guesses learns nothing.
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

/** Why the token that was sent, or its absence, identifies no client. */
function whyUnknown(token: string | undefined, { authorization, apiKeyHeader }: Credentials): string {
  if (token === undefined)
    return authorization === undefined
      ? 'no token was sent in Authorization or x-api-key, and neither other headers nor the URL are read for one'
      : 'Authorization is not of the form "Bearer TOKEN"';
  const both = apiKeyHeader ? 'Authorization, which decides if x-api-key is sent too,' : 'Authorization';
  return `the token in ${authorization === undefined ? 'x-api-key' : both} ${MISTAKEN.find(([form]) => form.test(token))?.[1]}`;
}

const EXPIRED_REMEDY = 'Ask the operator of this gateway for more time ("expires" in the file of --clients).';

/** Throws client_forbidden if the client may not use the endpoint. */
export function requireEndpoint({ endpoints }: Client, id: EndpointId): void {
  if (endpoints === undefined || endpoints.includes(id)) return;
  throw forbidden(`this client may not use this endpoint, only ${listed(endpoints)}`);
}

/**
 * Throws client_forbidden if the client may not use the model. `alias`: the name that the request had in
 * place of the model. A request that names no model passes.
 */
export function requireModel({ models }: Client, model: string | undefined, alias?: string): void {
  if (models === undefined || model === undefined || models.some((pattern) => covers(pattern, model))) return;
  const meant = alias === undefined ? 'this model' : `the model that ${alias} stands for`;
  throw forbidden(`this client may not use ${meant}, only ${listed(models)}`);
}

const forbidden = (message: string): PrivatemodeError =>
  new PrivatemodeError('client_forbidden', message, {
    remedy: 'If you need more, ask the operator of this gateway.',
  });

/** The allowed names for a message; of more than eight only the first eight, which say enough. */
const listed = (allowed: readonly string[]): string =>
  allowed.length > 8 ? `${allowed.slice(0, 8).join(', ')} and others` : allowed.join(', ');

/**
 * Whether `pattern`, in which `*` stands for any characters, covers all of the text. Takes time linear in
 * both, unlike a regular expression.
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
