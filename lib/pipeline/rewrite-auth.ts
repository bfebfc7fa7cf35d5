/** Decides which key a request is sent with: the application's, its client's, or the configured key. */
import { bearerToken } from '../api/match-endpoint.ts';

export type FallbackMode = 'never' | 'always' | 'if-placeholder';

interface AuthInput {
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined; // the header x-api-key
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
  /** The client of --clients that sent the request. */
  readonly client?: { readonly name: string; readonly apiKey: string | undefined } | undefined;
}

const bearer = (key: string | undefined): string | undefined => (key ? `Bearer ${key}` : undefined);

/**
 * Returns the Authorization header for the service. `offeredKey`: the key of the application or its client,
 * with which the session may attest if no key is configured. `operatorKey`: the key in the header, if it is
 * the operator's. `operatorKey.of` names the client of --clients whose entry has the key; undefined for
 * --api-key. If there is an Authorization header, x-api-key is ignored, so that no key for another vendor
 * leaks. Without an Authorization header, x-api-key is sent as a bearer token. A `client`'s own token is not
 * forwarded.
 */
export function rewriteAuth(input: AuthInput) {
  const { client, configuredKey } = input;
  const own = client === undefined ? sentKey(input) : bearer(client.apiKey);
  const isReplacing = client === undefined ? isReplaced(input) : client.apiKey === undefined;
  const authorization = isReplacing ? bearer(configuredKey) : own;
  const isOperators = client !== undefined || authorization === bearer(configuredKey);
  return {
    authorization,
    offeredKey: configuredKey === undefined ? bearerToken(own) : undefined,
    operatorKey:
      isOperators && authorization
        ? { value: authorization.slice('Bearer '.length), of: isReplacing ? undefined : client?.name }
        : undefined,
  };
}

export const sentKey = (sent: Pick<AuthInput, 'authorization' | 'apiKeyHeader'>): string | undefined =>
  sent.authorization ?? bearer(sent.apiKeyHeader);

/** Whether the configured key replaces what the application sent. A replaced text does not count as a key. */
export function isReplaced({ configuredKey, fallback, ...sent }: Omit<AuthInput, 'client'>): boolean {
  const isPlaceholder = fallback === 'if-placeholder' && sentKey(sent) === 'Bearer placeholder';
  return configuredKey !== undefined && (fallback === 'always' || isPlaceholder);
}
