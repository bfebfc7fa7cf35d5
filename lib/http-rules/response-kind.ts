/** Decides from the head of an upstream response how its body is read, or why the response is refused. */
import { ENCRYPTED_HEADER } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ReceivedHeaders } from './headers.ts';
import { ForeignError } from './unauthenticated.ts';

const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/**
 * How an upstream response is read (docs/protocol/inference.md 6), or the error with which it is refused.
 * `plain`: it is shown as it is, because the endpoint is not encrypted or an error marks itself as
 * unencrypted. `streaming`: whether the request asked for an event stream. An error of the service is a body,
 * whatever its content type says: no service sends errors as streams, but gateways do.
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
  headers: ReceivedHeaders,
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
  if (isMarkedPlain)
    return new PrivatemodeError(
      'response_not_encrypted',
      'the service answered a success that is not encrypted',
    );
  if (status >= 400) return 'encrypted-body';
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (isStream !== streaming) return malformed('the answer is not of the kind that was asked for');
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}
