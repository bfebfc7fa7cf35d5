/** The Responses API along one exchange: what each step of the chain of a chat request is given in its place. */
import type { PrivatemodeError } from '../errors.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { RequestBody } from '../pipeline/request-body.ts';
import { isObject } from './refusal.ts';
import { RequestTranslation, type TranslatedRequest } from './request.ts';
import type { ResponseContext } from './response-object.ts';
import { ResponseStream } from './stream.ts';
import { ChatTranslation, malformed } from './translation.ts';

export type Translator = ReturnType<typeof createTranslator>;

/** How often what repeats the request, and the text of the response, are in memory at most: kept, and in the events that say them again. */
const COPIES = { echo: 3, text: 5 };

/** Hosted tools that clients name; any other word is the client's own, and is not repeated. */
const HOSTED =
  /^(?:web_search|file_search|computer|code_interpreter|mcp|image_generation|local_shell|shell)(?=_|$)/;

const knownWord = (type: string): string => HOSTED.exec(type)?.[0] ?? 'other';

/** For the exchange of that id; its request is to be complete before anything else is asked for. */
export function createTranslator(requestId: string) {
  let request: TranslatedRequest | undefined;
  let stream: ResponseStream | undefined;

  const context = (): ResponseContext => (request as TranslatedRequest).context;

  return {
    /**
     * A body that is scanned while it arrives, and translated piece by piece into `chat` when it is complete. `pause`, called between
     * two pieces, may let others have their turn. Throws as RequestTranslation does. What is made stays in memory until it is sealed, and the
     * texts and schemas that are passed on are in it once.
     */
    request(chat: RequestBody, pause: () => Promise<void> | undefined = () => undefined): RequestBody {
      const translation = new RequestTranslation();
      return {
        feed: (chunk) => translation.feed(chunk),
        async finish(hold) {
          const pieces = translation.pieces(hold);
          for (;;) {
            const { done, value } = pieces.next();
            if (done) {
              request = value;
              return chat.finish(hold);
            }
            chat.feed(value);
            const turn = pause();
            if (turn !== undefined) await turn;
          }
        },
      };
    },
    /** For the head of the response: the kinds of hosted tools that were left out, in words of ours; undefined for none. */
    leftOut: (): string | undefined =>
      [...new Set((request as TranslatedRequest).hosted.map(knownWord))].join(', ') || undefined,
    /** Takes the place of the decrypter of an event stream. */
    decrypter(chat: Decrypter): Decrypter {
      stream = new ResponseStream(chat, context(), requestId);
      return stream;
    },
    /** Bytes that the translation of the stream holds, its last events included. */
    held: (): number => COPIES.echo * context().echo.length + COPIES.text * (stream?.held ?? 0),
    /** What ends the stream because of that failure; nothing where its last event has been delivered. */
    fail: (failure: PrivatemodeError): Uint8Array => (stream as ResponseStream).fail(failure),
    /** Events of the stream so far, which are not those of the chat. */
    events: (): number => stream?.events ?? 0,
    /** The whole body of a success. Throws what `failure` of a decrypter may be. */
    body: (chat: Uint8Array): Buffer => translateBody(chat, context()),
  };
}

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
  return translation.response;
}
