/** A whole chat completion as a Response object (docs/protocol/responses.md). */
import { isObject } from './refusal.ts';
import type { ResponseContext } from './request.ts';
import { ChatTranslation, malformed } from './translation.ts';

/**
 * Translates the body of a success, which was decrypted and checked; as a stream of one chunk, so that both have the same items. Throws
 * response_malformed, response_too_large, or stream_unfinished where the service ended the response in a way that the API does not know.
 */
export function translateBody(body: Uint8Array, context: ResponseContext): Buffer {
  let chat: unknown;
  try {
    chat = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw malformed('the response is not JSON');
  }
  const choices = isObject(chat) ? chat['choices'] : undefined;
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  if (!isObject(chat) || !isObject(choice) || !isObject(choice['message'])) {
    throw malformed('the response has no message');
  }
  const translation = new ChatTranslation(context);
  translation.chunk({ ...chat, choices: [{ ...choice, delta: choice['message'] }] });
  translation.accept();
  return Buffer.from(translation.response);
}
