/**
 * A new id: `proxy_<UUIDv7>`, or `sdk_…` (RFC 9562 5.7; docs/protocol/inference.md 2). `now`: ms since 1970;
 * ids sort by it.
 */
export function newRequestId(client: 'proxy' | 'sdk', now: number = Date.now()): string {
  const time = now.toString(16).padStart(12, '0');
  return `${client}_${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice('xxxxxxxx-xxxx-4'.length)}`;
}

/** The token of a bearer header: exactly two words, the scheme in any case (RFC 9110 11.1). */
export const bearerToken = (authorization = ''): string | undefined =>
  /^bearer ([^ ]+)$/i.exec(authorization)?.[1];
