/** The Responses API along one exchange: for each step of the chain, what replaces that of a chat request. */
import type { PrivatemodeError } from '../errors.ts';
import { inTurns } from '../json/scan.ts';
import { type Decrypter, malformed } from '../pipeline/decrypter.ts';
import type { BodyReader } from '../pipeline/request-body.ts';
import { isObject } from './request-refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { ChatTranslation } from './translate-chunks.ts';
import { type TranslatedRequest, translateRequest } from './translate-request.ts';
import { ResponseStream } from './translate-stream.ts';

export type Translator = ReturnType<typeof createTranslator>;

/**
 * The most copies that are in memory at a time: of `echo`, which repeats the request, and of the text of the
 * response. The response keeps one copy of each, and the events that repeat it hold the others.
 */
const COPIES = { echo: 3, text: 5 };

/** The most bytes that the translation takes, in bytes of the request. */
const COPIES_OF_REQUEST = 4;

/**
 * Types of hosted tools that may be named to the client. Any other type is the client's own word, and is not
 * repeated.
 */
const HOSTED =
  /^(?:web_search|file_search|computer|code_interpreter|mcp|image_generation|local_shell|shell)(?=_|$)/;

const knownWord = (type: string): string => HOSTED.exec(type)?.[0] ?? 'other';

/** What is kept of a translated request until its response has ended. */
type Asked = Omit<TranslatedRequest, 'chat'>;

/** Makes the translator of one exchange. Its request must be complete before any other member is used. */
export function createTranslator(requestId: string) {
  let request: Asked | undefined;
  let stream: ResponseStream | undefined;

  const context = (): ResponseContext => request!.context;

  return {
    /**
     * Makes what reads the body of the request, and gives its translation to `chat`. Throws as
     * translateRequest does. Memory is reserved once for all that the translation makes: the request is in
     * memory as it came, parsed, and as a chat request at the same time.
     */
    request(chat: BodyReader): BodyReader {
      return (bytes, on) => {
        on.hold?.(COPIES_OF_REQUEST * bytes.length);
        const passOn = ({ chat: text, ...asked }: TranslatedRequest) => {
          request = asked;
          return chat(text, on);
        };
        const translated = inTurns(translateRequest(bytes), on.pause);
        return translated instanceof Promise ? translated.then(passOn) : passOn(translated);
      };
    },
    /**
     * For a header of the response: the kinds of hosted tools that were left out, `other` for those that
     * HOSTED lacks. Undefined if none was left out.
     */
    leftOut: (): string | undefined => [...new Set(request!.hosted.map(knownWord))].join(', ') || undefined,
    /** Returns a decrypter that takes the place of the event stream's own. */
    decrypter(chat: Decrypter): Decrypter {
      stream = new ResponseStream(chat, context(), requestId);
      return stream;
    },
    /** Bytes that the translation of the stream holds, its last events included. */
    held: (): number => COPIES.echo * context().echo.length + COPIES.text * (stream?.held ?? 0),
    /**
     * Returns the bytes that end the stream because of this failure; none if its last event has been
     * delivered already.
     */
    fail: (failure: PrivatemodeError): Uint8Array => (stream as ResponseStream).fail(failure),
    /**
     * Translates the whole body of a success. Throws errors that `failure` of a decrypter may be
     * (translateBody).
     */
    body: (chat: Uint8Array): Buffer => translateBody(chat, context()),
  };
}

/**
 * Translates the body of a success, which has been decrypted and checked. It is treated as a stream of one
 * chunk, so that bodies and streams have the same items. Throws response_malformed, response_too_large, or
 * stream_unfinished if the service cut the arguments of a call or ended the response in a way that the API
 * does not know.
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
