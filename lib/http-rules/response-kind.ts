/** How an upstream response is read, and what is shown of one that nothing authenticates. */
import { ENCRYPTED_HEADER } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/**
 * How an upstream response is read, or the error that refuses it, by its head, which nothing authenticates
 * (docs/protocol/inference.md 6). `headers`: by lower-case name. `streaming`: a stream was asked for.
 */
export function responseKind(
  status: number,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  encrypted: boolean,
  streaming: boolean,
): 'encrypted-stream' | 'encrypted-body' | 'plain' | PrivatemodeError {
  if (status >= 300 && status < 400)
    return new PrivatemodeError('upstream_redirect', `the service answered with a redirect (${status})`);
  // No client reads the body of 204 and 205. Above 599, some take a plain error for a success.
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
  if (status >= 400) return 'encrypted-body'; // whatever its type: gateways send errors as streams, too
  const isStream = headers['content-type']?.includes('event-stream') === true;
  // A body read as a stream has no events, and a stream read as a body no members: both would look empty.
  if (isStream !== streaming) return malformed('the answer is not of the kind that was asked for');
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}

/** Our content type for a plain body: JSON if declared so, else text that is neither rendered nor events. */
export const plainContentType = (declared = ''): string =>
  /^\s*application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(declared)
    ? 'application/json'
    : 'text/plain; charset=utf-8';

function remedyAt(status: number): string {
  if (status === 401) return 'Check the API key that the request was sent with.';
  if (status === 429 || status === 503)
    return 'Wait as long as Retry-After says, or a minute, then try again.';
  if (status >= 500) return 'Try again, and report it if it persists.';
  return 'Check the request before you repeat it; report this if nothing is wrong with it.';
}

/**
 * Replaces an error of the service that is neither marked as plain nor decrypted. The status, Retry-After and
 * rate limits stay: clients act on them. `opened`: a part of the text was authentic, so somebody changed the
 * rest. Otherwise it may be a gateway's (docs/protocol/inference.md 6.1): nothing is said of tampering.
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
