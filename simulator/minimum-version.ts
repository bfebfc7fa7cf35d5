/** What the service says to a client that announces too low a version; how the real one decides is not known. */
import type { IncomingMessage } from 'node:http';

/** The text for a client below `minimum`, as `v1.46.0`; undefined where it may pass. */
export function tooOld({ headers }: IncomingMessage, minimum: string | undefined): string | undefined {
  if (minimum === undefined || minimum === '') return undefined;
  const announced = String(headers['privatemode-version'] ?? 'v0');
  const isOlder = announced.localeCompare(minimum, 'en', { numeric: true }) < 0;
  return isOlder ? `minimum client version ${minimum}` : undefined;
}
