/** Decides with which key a request leaves: that of the application, of its client, or the configured one. */
import { bearerToken } from '../api/ids.ts';

export type FallbackMode = 'never' | 'always' | 'if-placeholder';

interface AuthInput {
  /** The application's headers Authorization and x-api-key, if it sent them. */
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
  /** The client of --clients that sends the request, and its key for the service, if it has one. */
  readonly client?: { readonly apiKey: string | undefined } | undefined;
}

const bearer = (key: string | undefined): string | undefined => (key ? `Bearer ${key}` : undefined);

/**
 * Returns the header `authorization` for the remote, if any, and as `offeredKey` the application's or
 * client's own key, which may attest if no key is configured. An Authorization header decides alone, whatever
 * it holds; else `x-api-key` counts, and leaves as a bearer token: a key for another vendor cannot leak. What
 * a `client` sent is a token of this gateway, and stays here: its own key replaces it, or the configured one.
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

/** The Authorization header that the application's own key makes; undefined if it sent none. */
export const ownKey = (sent: Pick<AuthInput, 'authorization' | 'apiKeyHeader'>): string | undefined =>
  sent.authorization ?? bearer(sent.apiKeyHeader);

/** Whether the configured key replaces what the application sent, which then does not count as a key. */
export function isReplaced({ configuredKey, fallback, ...sent }: Omit<AuthInput, 'client'>): boolean {
  const isPlaceholder = fallback === 'if-placeholder' && ownKey(sent) === 'Bearer placeholder';
  return configuredKey !== undefined && (fallback === 'always' || isPlaceholder);
}
