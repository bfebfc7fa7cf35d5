/** The token of a bearer header: exactly two words, the scheme in any case (RFC 9110 11.1). */
export function bearerToken(authorization: string | undefined): string | undefined {
  const words = authorization?.split(' ') ?? [];
  return words.length === 2 && words[0]?.toLowerCase() === 'bearer' && words[1] !== '' ? words[1] : undefined;
}
