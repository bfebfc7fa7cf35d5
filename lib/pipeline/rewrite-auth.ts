/**
 * Decides with which key a request leaves: the key of the application, of its client, or the configured one.
 */
import { bearerToken } from '../api/match-endpoint.ts';

export type FallbackMode = 'never' | 'always' | 'if-placeholder';

interface AuthInput {
  /** The application's Authorization header, if it sent one, and its x-api-key header. */
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
  /** The client of --clients that sends the request, and its key for the service, if it has one. */
  readonly client?: { readonly apiKey: string | undefined } | undefined;
}

const bearer = (key: string | undefined): string | undefined => (key ? `Bearer ${key}` : undefined);

/**
 * Decides which key a request is sent with. An Authorization header decides alone, whatever it holds.
 * `x-api-key` counts only if there is no such header, and leaves as a bearer token, so that a key for another
 * vendor cannot leak. A `client` has sent a token of this gateway, which stays here: the client's own key
 * replaces it, or else the configured key.
 *
 * Returns `authorization`, the header for the remote, or undefined if there is none. `offeredKey` is the own
 * key of the application or client; attestation may use it. It is undefined if a key is configured.
 */
export function rewriteAuth(input: AuthInput) {
  const { client, configuredKey } = input;
  const own = client === undefined ? ownKey(input) : bearer(client.apiKey);
  const isReplacing = client === undefined ? isReplaced(input) : client.apiKey === undefined;
  return {
    authorization: isReplacing ? bearer(configuredKey) : own,
    offeredKey: configuredKey === undefined ? bearerToken(own) : undefined,
  };
}

/**
 * The Authorization header that the application's own key makes; undefined if the application sent no key.
 */
export const ownKey = ({
  authorization,
  apiKeyHeader,
}: Pick<AuthInput, 'authorization' | 'apiKeyHeader'>): string | undefined =>
  authorization ?? bearer(apiKeyHeader);

/**
 * Whether the configured key replaces what the application sent. If so, the application's value does not
 * count as a key, whatever it says.
 */
export function isReplaced(input: Omit<AuthInput, 'client'>): boolean {
  const { configuredKey, fallback } = input;
  const isPlaceholder = fallback === 'if-placeholder' && ownKey(input) === 'Bearer placeholder';
  return configuredKey !== undefined && (fallback === 'always' || isPlaceholder);
}
