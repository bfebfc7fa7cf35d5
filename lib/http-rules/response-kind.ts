/**
 * How an upstream response is read, judged by its head, and what the application sees of one that nothing
 * authenticates.
 */
import { ENCRYPTED_HEADER } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/**
 * How an upstream response is read (docs/protocol/inference.md 6), or the error with which it is refused.
 * `headers`: by lower-case name. `plain`: it is shown as it is, because the endpoint is not encrypted or an
 * error marks itself as unencrypted. `streaming`: whether the request asked for an event stream. An error of
 * the service is a body, whatever its content type says: no service sends errors as streams, but gateways do.
 *
 * Nothing authenticates the head. So a success that is marked as unencrypted is forged. A success of the
 * other kind than the request asked for is refused, because it would look empty: a body that is read as a
 * stream has no events, a stream that is read as a body has no members. Of 204 and 205 no client reads the
 * body. Some clients raise for 400 to 599 only, and would take a plain error above that for a success.
 *
 * A compressed response is not decompressed. An error becomes a ForeignError, because clients act on its
 * status and its Retry-After.
 */
export function responseKind(
  status: number,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  encrypted: boolean,
  streaming: boolean,
): 'encrypted-stream' | 'encrypted-body' | 'plain' | PrivatemodeError {
  if (status >= 300 && status < 400)
    return new PrivatemodeError('upstream_redirect', `the service answered with a redirect (${status})`);
  if (status < 200 || status > 599 || status === 204 || status === 205)
    return malformed('the service answered with a status that it does not have');
  if (String(headers['content-encoding'] ?? 'identity').toLowerCase() !== 'identity') {
    const error = malformed('the service compressed the response, although the request did not allow that');
    return status < 400 ? error : new ForeignError(error, status);
  }
  const isMarkedPlain = headers[ENCRYPTED_HEADER] === 'false';
  if (!encrypted || (isMarkedPlain && status >= 400)) return 'plain';
  const forged = 'the service answered a success that is not encrypted';
  if (isMarkedPlain) return new PrivatemodeError('response_not_encrypted', forged);
  if (status >= 400) return 'encrypted-body';
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (isStream !== streaming) return malformed('the answer is not of the kind that was asked for');
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}

/**
 * Headers that mark a response which nothing authenticates, and forbid caches to store it. `encrypted`:
 * whether the responses of its endpoint are encrypted.
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
export const plainContentType = (declared = ''): string =>
  /^\s*application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(declared)
    ? 'application/json'
    : 'text/plain; charset=utf-8';

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
    const code = failure.code === 'response_not_authentic' && !opened ? 'response_malformed' : failure.code;
    const message = `the service, or a gateway before it, answered with status ${status}; nothing authenticates the text, which is not shown`;
    super(code, message, { cause: failure, remedy: opened ? undefined : remedyAt(status) });
    this.opened = opened;
  }
}
