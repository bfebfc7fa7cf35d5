/**
 * What the application sees of a response that nothing authenticates: an error in plain text, or one whose
 * text could not be decrypted.
 */
import { ENCRYPTED_HEADER } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

/**
 * Headers that mark such a response, and forbid caches to store it. `encrypted`: whether its endpoint's
 * responses are encrypted.
 */
export const plainMarks = (encrypted: boolean): Record<string, string> => ({
  'cache-control': 'no-store',
  'privatemode-proxy-unauthenticated': 'true',
  ...(encrypted ? { [ENCRYPTED_HEADER]: 'false' } : {}),
});

/**
 * Our own content type for a body that the service sent in plain text, by the type it declares: JSON, or text
 * that no browser renders and no client reads as events.
 */
export function plainContentType(declared: string | undefined): string {
  const type = declared?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^application\/(?:[\w.-]+\+)?json$/.test(type) ? 'application/json' : 'text/plain; charset=utf-8';
}

/** What to do about an error of which only the status is known. */
function remedyAt(status: number): string {
  if (status === 401) return 'Check the API key that the request was sent with.';
  if (status === 429 || status === 503)
    return 'Wait as long as Retry-After says, or a minute, then try again.';
  if (status >= 500) return 'Try again, and report it if it persists.';
  return 'Check the request before you repeat it; report this if nothing is wrong with it.';
}

/**
 * The error to show in place of an error of the service that is neither marked as plain nor decrypted. The
 * response keeps the status, Retry-After and rate limits, not the text. `opened`: a part of the text was
 * authentic, so somebody has changed the rest. Otherwise a gateway before the service may have answered
 * (docs/protocol/inference.md 6.1), and the code says nothing of tampering.
 */
export class ForeignError extends PrivatemodeError {
  readonly opened: boolean;

  constructor(failure: PrivatemodeError, status: number, opened = false) {
    const isForeign = failure.code === 'response_not_authentic' && !opened;
    super(
      isForeign ? 'response_malformed' : failure.code,
      `the service, or a gateway before it, answered with status ${status}; nothing authenticates the text, which is not shown`,
      { cause: failure, remedy: opened ? undefined : remedyAt(status) },
    );
    this.opened = opened;
  }
}
