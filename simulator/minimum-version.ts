/** Refuses clients that announce too low a version. How the real service decides is not known. */
import type { IncomingMessage } from 'node:http';

/** The message for a client below `minimum`, such as `v1.46.0`; undefined if the client may pass. */
export function tooOld({ headers }: IncomingMessage, minimum: string | undefined): string | undefined {
  if (minimum === undefined || minimum === '') return undefined;
  const announced = String(headers['privatemode-version'] ?? 'v0');
  const isOlder = announced.localeCompare(minimum, 'en', { numeric: true }) < 0;
  return isOlder ? `minimum client version ${minimum}` : undefined;
}
