import type { RequestCipher } from '../envelope/protection.ts';
import { PLAIN_MEMBERS } from '../pipeline/member-order.ts';
import { createJsonOpener, type RequiredContent } from '../pipeline/open-json.ts';
import { createSseOpener, type SseOpener } from '../pipeline/open-sse.ts';
import type { RequestBodyStage } from '../pipeline/request-body.ts';
import type { ResponseOpener } from '../pipeline/response-opener.ts';
import { createJsonSealer } from '../pipeline/seal-json.ts';
import { createMultipartSealer } from '../pipeline/seal-multipart.ts';
import { createRawSealer } from '../pipeline/seal-raw.ts';
import type { Endpoint, EndpointId } from './endpoints.ts';

/** Beyond these a response is refused rather than held in memory (inference.md 6.1, 6.2). */
const MAX_BODY_BYTES = 128 * 1024 * 1024;
const MAX_EVENT_BYTES = 32 * 1024 * 1024;

/** What takes in the request body of an endpoint, or undefined where it has none. Throws invalid_multipart. */
export function stageFor(
  endpoint: Endpoint,
  contentType: string | undefined,
  configuredSalt: string | undefined,
): RequestBodyStage | undefined {
  const plain = PLAIN_MEMBERS[endpoint.requestPlain ?? 'NONE'];
  switch (endpoint.codec) {
    case 'json':
      return createJsonSealer({
        plain,
        ...(endpoint.salted ? { salt: { configured: configuredSalt } } : {}),
      });
    case 'multipart':
      return createMultipartSealer({ plain, contentType });
    case 'raw':
      return createRawSealer();
    case 'none':
      return undefined;
  }
}

/** What opens an event stream of that endpoint; `choices` is how many were asked for, at least. */
export function streamOpener(endpoint: Endpoint, cipher: RequestCipher, choices: number): SseOpener {
  return createSseOpener({
    cipher,
    plain: PLAIN_MEMBERS[endpoint.responsePlain ?? 'NONE'],
    terminal: endpoint.terminal === 'message_stop' ? 'message_stop' : 'done',
    maxEventBytes: MAX_EVENT_BYTES,
    choices,
  });
}

/** What a successful whole answer holds, encrypted. The elements of unstructured are counted, not named. */
const CONTENT: Readonly<Partial<Record<EndpointId, RequiredContent>>> = {
  chat: { member: 'choices', first: '[' },
  completions: { member: 'choices', first: '[' },
  messages: { member: 'content', first: '[' },
  embeddings: { member: 'data', first: '[' },
  transcription: { member: 'text', first: '"' },
  unstructured: { member: undefined, first: '' },
};

/**
 * What opens a whole JSON answer of that endpoint. An error may say anything; a success without authenticated
 * content is refused.
 */
export function bodyOpener(endpoint: Endpoint, cipher: RequestCipher, success: boolean): ResponseOpener {
  const required = success ? CONTENT[endpoint.id] : undefined;
  return createJsonOpener({
    ...(required === undefined ? {} : { required }),
    cipher,
    plain: PLAIN_MEMBERS[endpoint.responsePlain ?? 'NONE'],
    maxBytes: MAX_BODY_BYTES,
    arrays: endpoint.id === 'unstructured',
  });
}
