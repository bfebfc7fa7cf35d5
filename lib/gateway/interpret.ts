import type { IncomingHttpHeaders } from 'node:http';
import { PROTECTION_HEADERS } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';

/** How an upstream answer is to be read, decided from its head alone (inference.md section 6, design decision 1). */
export type Interpretation =
  /** An event stream whose members are sealed. */
  | { readonly kind: 'sealed-stream' }
  /** A JSON body whose members are sealed. */
  | { readonly kind: 'sealed-body' }
  /** Shown as it is: an endpoint without encryption, or an error that says of itself that it is unencrypted. */
  | { readonly kind: 'plain' }
  | { readonly kind: 'refused'; readonly error: PrivatemodeError };

const refused = (
  code: 'upstream_redirect' | 'response_not_encrypted' | 'response_malformed',
  words: string,
) => ({ kind: 'refused', error: new PrivatemodeError(code, words) }) as const;

/**
 * `encrypted` says whether the endpoint is an encrypted one, `streaming` whether the request asked for an event
 * stream. Neither the header that marks a body as unencrypted nor the content type is authenticated, and `stream`
 * is plain in the request. So with a success the first is forged, and an answer of the other kind is refused: a
 * whole body read as a stream has no events, a stream read as a body has no members, and both look empty.
 */
export function interpretAnswer(
  status: number,
  headers: IncomingHttpHeaders,
  encrypted: boolean,
  streaming: boolean,
): Interpretation {
  if (status >= 300 && status < 400) {
    return refused('upstream_redirect', `the service answered with a redirect (${status})`);
  }
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return refused('response_malformed', 'the service compressed an answer although none was asked to be');
  }
  if (!encrypted) return { kind: 'plain' };
  if (headers[PROTECTION_HEADERS.encrypted.toLowerCase()] === 'false') {
    if (status >= 400) return { kind: 'plain' };
    return refused('response_not_encrypted', 'the service answered a success that is not encrypted');
  }
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (status < 400 && isStream !== streaming) {
    return refused('response_malformed', 'the answer is not of the kind that was asked for');
  }
  return { kind: isStream ? 'sealed-stream' : 'sealed-body' };
}
