/** What the head of an upstream response means: how its body is to be read, or why it is refused. */
import { PROTECTION_HEADERS } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

/** Clients read no body of such a success, so an error event in it is lost: an empty stream that looks complete. */
const BODILESS = new Set([204, 205]);

/**
 * How an upstream response is to be read, decided from its head alone (docs/protocol/inference.md 6), or why it is refused.
 * `plain` is shown as it is: an endpoint without encryption, or an error that says of itself that it is unencrypted.
 * `streaming` says whether the request asked for an event stream. Neither the header that marks a body as unencrypted nor the
 * content type is authenticated, and `stream` is plain in the request. So with a success the first is forged, and a response of the
 * other kind is refused: a whole body read as a stream has no events, a stream read as a body has no members, and both look empty.
 * Above 599 a status is refused: some clients raise for 400 to 599 alone, and would take a plain error for a success.
 */
export function responseKind(
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  encrypted: boolean,
  streaming: boolean,
): 'encrypted-stream' | 'encrypted-body' | 'plain' | PrivatemodeError {
  if (status >= 300 && status < 400) {
    return new PrivatemodeError('upstream_redirect', `the service answered with a redirect (${status})`);
  }
  if (status < 200 || status > 599 || BODILESS.has(status)) {
    const message = 'the service answered with a status that it does not have';
    return new PrivatemodeError('response_malformed', message);
  }
  const encoding = String(headers['content-encoding'] ?? 'identity');
  if (encoding.toLowerCase() !== 'identity') {
    const message = 'the service compressed an answer although none was asked to be';
    return new PrivatemodeError('response_malformed', message);
  }
  if (!encrypted) return 'plain';
  if (headers[PROTECTION_HEADERS.encrypted.toLowerCase()] === 'false') {
    if (status >= 400) return 'plain';
    const message = 'the service answered a success that is not encrypted';
    return new PrivatemodeError('response_not_encrypted', message);
  }
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (status < 400 && isStream !== streaming) {
    return new PrivatemodeError('response_malformed', 'the answer is not of the kind that was asked for');
  }
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}
