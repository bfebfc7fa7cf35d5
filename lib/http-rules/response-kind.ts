/** Decides from the head of an upstream response how its body is read, or why the response is refused. */
import { PROTECTION_HEADERS } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import { ForeignError } from './unauthenticated.ts';

/**
 * Successes whose body no client reads. An error event in it would be lost: the stream would look empty and
 * complete.
 */
const BODILESS = new Set([204, 205]);

/**
 * How an upstream response is read, decided from its head alone (docs/protocol/inference.md 6), or the error
 * with which it is refused. `plain`: the body is shown as it is, because the endpoint is not encrypted or an
 * error marks itself as unencrypted. `streaming`: whether the request asked for an event stream. An error of
 * the service is a body, whatever its content type says: no service sends errors as streams, but gateways do.
 *
 * Nothing authenticates the header that marks a body as unencrypted, nor the content type, and `stream` is
 * plain in the request. So a success that is marked as unencrypted is forged. A success of the other kind
 * than the request asked for is refused: a whole body that is read as a stream has no events, a stream that
 * is read as a body has no members, and both look empty.
 *
 * A compressed response is not decompressed. An error becomes a ForeignError, because clients act on its
 * status and its Retry-After.
 *
 * A status above 599 is refused, because some clients raise for 400 to 599 only, and would take a plain error
 * for a success.
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
    const message = 'the service compressed the response, although the request did not allow that';
    const refusal = new PrivatemodeError('response_malformed', message);
    return status < 400 ? refusal : new ForeignError(refusal, status);
  }
  if (!encrypted) return 'plain';
  if (headers[PROTECTION_HEADERS.encrypted.toLowerCase()] === 'false') {
    if (status >= 400) return 'plain';
    const message = 'the service answered a success that is not encrypted';
    return new PrivatemodeError('response_not_encrypted', message);
  }
  if (status >= 400) return 'encrypted-body';
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (isStream !== streaming) {
    return new PrivatemodeError('response_malformed', 'the answer is not of the kind that was asked for');
  }
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}
