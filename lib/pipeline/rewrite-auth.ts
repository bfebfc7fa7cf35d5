/** Which key a request leaves with: that of the application, of its client, or the configured one. */
import { bearerToken } from '../api/bearer-token.ts';

export type FallbackMode = 'never' | 'always' | 'if-placeholder';

interface AuthInput {
  /** The application's Authorization header, if it sent one, and its x-api-key header. */
  readonly authorization: string | undefined;
  readonly apiKeyHeader: string | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
  /** The client of --clients that sends the request, and its key of the service, if it has one. */
  readonly client?: { readonly apiKey: string | undefined } | undefined;
}

/**
 * Decides which key a request is sent with. An Authorization header decides alone, whatever it holds; `x-api-key` counts only
 * where there is none, and leaves as a bearer, so that a key for another vendor cannot leak. `authorization` is the header towards
 * the remote, or none; `offeredKey` the application's own key, which may attest where no key is configured. A `client` has sent a token of this gateway, which stays here:
 * its own key takes its place, or the configured one.
 */
export function rewriteAuth(input: AuthInput) {
  if (input.client !== undefined) return authOfClient(input.client.apiKey, input.configuredKey);
  const own = ownKey(input);
  if (input.configuredKey === undefined) return { authorization: own, offeredKey: bearerToken(own) };
  return { authorization: isReplaced(input) ? `Bearer ${input.configuredKey}` : own, offeredKey: undefined };
}

type OwnKey = Pick<AuthInput, 'authorization' | 'apiKeyHeader'>;

/** The header towards the remote that the application's own key makes; undefined where it sent none. */
export const ownKey = ({ authorization, apiKeyHeader }: OwnKey): string | undefined =>
  authorization ?? (apiKeyHeader ? `Bearer ${apiKeyHeader}` : undefined);

/** Whether the configured key takes the place of what the application sent: then that was no key, whatever it says. */
export function isReplaced(input: Omit<AuthInput, 'client'>): boolean {
  if (input.configuredKey === undefined) return false;
  const isPlaceholder = input.fallback === 'if-placeholder' && ownKey(input) === 'Bearer placeholder';
  return input.fallback === 'always' || isPlaceholder;
}

function authOfClient(apiKey: string | undefined, configuredKey: string | undefined) {
  const key = apiKey ?? configuredKey;
  const offeredKey = configuredKey === undefined ? apiKey : undefined;
  return { authorization: key === undefined ? undefined : `Bearer ${key}`, offeredKey };
}
