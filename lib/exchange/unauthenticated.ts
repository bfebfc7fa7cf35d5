/** What is shown of a response that nothing authenticates: an error in clear, or one whose text does not open. */
import { PROTECTION_HEADERS } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

/** What such a response says of itself; nobody is to keep it. `encrypted`: whether its endpoint's are. */
export const plainMarks = (encrypted: boolean): Record<string, string> => ({
  'cache-control': 'no-store',
  'privatemode-proxy-unauthenticated': 'true',
  ...(encrypted ? { [PROTECTION_HEADERS.encrypted.toLowerCase()]: 'false' } : {}),
});

/**
 * Our own content type for a body that the service sent in clear, from the type it declares: JSON, or text that no browser
 * renders and no client reads as events.
 */
export function plainContentType(declared: string | undefined): string {
  const type = declared?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^application\/(?:[\w.-]+\+)?json$/.test(type) ? 'application/json' : 'text/plain; charset=utf-8';
}

const MOST_SHOWN = 1024 * 1024;

/** All of a plain error's body; what goes beyond 1 MiB of it is cut off, with the connection. Throws what reading it throws. */
export async function readPlainError(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    pieces.push(chunk);
    size += chunk.length;
    if (size > MOST_SHOWN) break;
  }
  return Buffer.concat(pieces).subarray(0, MOST_SHOWN);
}

/** In place of an error of the service whose text failed to open: it keeps its status and the hint for a retry, not its text. */
export function unreadError(failure: PrivatemodeError, status: number): PrivatemodeError {
  const message = `the service answered with status ${status}; its text did not authenticate and is not shown`;
  return new PrivatemodeError(failure.code, message, { cause: failure });
}
