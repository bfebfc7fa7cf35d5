/** Decides how an upstream response is read, and what is shown of an error that nothing authenticates. */
import { ENCRYPTED_HEADER } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/**
 * Decides how a response is read, by its unauthenticated head (docs/protocol/inference.md 6). Returns an
 * error if the response is refused. `headers`: by lower-case name. `streaming`: a stream was asked for.
 */
export function responseKind(
  status: number,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  encrypted: boolean,
  streaming: boolean,
): 'encrypted-stream' | 'encrypted-body' | 'plain' | PrivatemodeError {
  if (status >= 300 && status < 400)
    return new PrivatemodeError('upstream_redirect', `the service answered with a redirect (${status})`);
  // No client reads a body with status 204 or 205. Some clients treat a status above 599 as success.
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
  if (status >= 400) return 'encrypted-body'; // gateways send errors with any content type
  const isStream = headers['content-type']?.includes('event-stream') === true;
  // A body that is read as a stream, or a stream that is read as a body, would look like an empty response.
  if (isStream !== streaming) return malformed('the answer is not of the kind that was asked for');
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}

/** The content type of a plain body: JSON if declared, else text, which nobody renders or reads as events. */
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
 * Replaces an error of the service that is neither marked plain nor decrypted. Status, Retry-After and rate
 * limits stay, because clients act on them. `opened`: the text had encrypted messages, so somebody changed
 * it. Without such messages, the error may be a gateway's, and tampering is not mentioned
 * (docs/protocol/inference.md 6.1).
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
