export type FallbackMode = 'never' | 'always' | 'if-placeholder';

export interface AuthInput {
  /** The client's Authorization header, if it sent one. */
  readonly authorization: string | undefined;
  /** The client's x-api-key header, if it sent one. */
  readonly apiKeyHeader: string | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
}

export interface AuthDecision {
  /** The Authorization header towards the remote, or none. */
  readonly authorization: string | undefined;
  /** The client's own key, which may attest where no key is configured; undefined otherwise. */
  readonly offeredKey: string | undefined;
}

const PLACEHOLDER = 'Bearer placeholder';

/**
 * Which key a request is sent with (spec "Authentication" 2 to 4, design decision 3). An Authorization header decides
 * alone, whatever it holds; `x-api-key` counts only where there is none, and leaves as a bearer.
 */
export function decideAuth(input: AuthInput): AuthDecision {
  const client = input.authorization ?? (input.apiKeyHeader ? `Bearer ${input.apiKeyHeader}` : undefined);
  if (input.configuredKey === undefined) return { authorization: client, offeredKey: bearerToken(client) };

  const replace =
    input.fallback === 'always' || (input.fallback === 'if-placeholder' && client === PLACEHOLDER);
  return { authorization: replace ? `Bearer ${input.configuredKey}` : client, offeredKey: undefined };
}

/** The token of a bearer header: exactly two words, the scheme in any case (RFC 9110 11.1). */
function bearerToken(authorization: string | undefined): string | undefined {
  const words = authorization?.split(' ') ?? [];
  return words.length === 2 && words[0]?.toLowerCase() === 'bearer' && words[1] !== '' ? words[1] : undefined;
}
