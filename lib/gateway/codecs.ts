import type { Endpoint } from '../api/endpoints.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import { createJsonOpener } from '../pipeline/decrypt-body.ts';
import { createSseOpener, type SseOpener } from '../pipeline/decrypt-events.ts';
import { GRAMMAR, type ResponseGrammar } from '../pipeline/grammar.ts';
import type { ParsedBody } from '../pipeline/request-body.ts';
import type { ResponseOpener } from '../pipeline/response-opener.ts';

/** Beyond these a response is refused rather than held in memory (inference.md 6.1, 6.2). */
const MAX_BODY_BYTES = 128 * 1024 * 1024;
const MAX_EVENT_BYTES = 32 * 1024 * 1024;

/** What the request asked for: an honest response is of this kind, and no other. */
export type Asked = Pick<ParsedBody, 'streaming' | 'choices' | 'format' | 'usage'>;

function grammarOf({ id }: Endpoint): ResponseGrammar {
  if (Object.hasOwn(GRAMMAR, id)) return GRAMMAR[id as keyof typeof GRAMMAR];
  throw new PrivatemodeError('internal', 'an encrypted response of an endpoint without a grammar');
}

/** What opens an event stream of that endpoint. Throws response_malformed where the endpoint has none. */
export function streamOpener(endpoint: Endpoint, cipher: RequestCipher, asked: Asked): SseOpener {
  const { stream } = grammarOf(endpoint);
  if (stream === undefined) {
    throw new PrivatemodeError('response_malformed', 'the service answered with an event stream');
  }
  const { choices, usage } = asked;
  return createSseOpener({ cipher, grammar: stream, maxEventBytes: MAX_EVENT_BYTES, choices, usage });
}

/** What opens a whole JSON body of that endpoint. `success`: it must be what was asked for; an error may say anything. */
export function bodyOpener(
  endpoint: Endpoint,
  cipher: RequestCipher,
  success: boolean,
  asked: Asked,
): ResponseOpener {
  const { whole } = grammarOf(endpoint);
  return createJsonOpener({
    cipher,
    grammar: whole,
    maxBytes: MAX_BODY_BYTES,
    ...(success ? { asked } : {}),
  });
}
