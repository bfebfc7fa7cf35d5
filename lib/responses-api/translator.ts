/** The Responses API along one exchange: for each step of the chain, what replaces that of a chat request. */
import type { PrivatemodeError } from '../errors.ts';
import { inTurns } from '../json/scan.ts';
import { type EventSink, malformed } from '../pipeline/decrypter.ts';
import type { BodyReader } from '../pipeline/request-body.ts';
import type { PlainObject } from './request-refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { ChatTranslation } from './translate-chunks.ts';
import { type TranslatedRequest, translateRequest } from './translate-request.ts';

export type Translator = ReturnType<typeof createTranslator>;

/** Copies of what the Response repeats of the request that are in memory at a time, in its events too. */
const COPIES_OF_ECHO = 3;

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
  let stream: ChatTranslation | undefined;

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
    /** Bytes that the response holds of the request until it has ended. */
    held: (): number => COPIES_OF_ECHO * Buffer.byteLength(request!.context.echo),
    /** What writes the events of a Response in place of those of the chat. */
    stream(): EventSink {
      stream = new ChatTranslation(request!.context);
      return stream;
    },
    /** Returns what keeps a silent stream alive: events with data, because some clients count no others. */
    keepAlive(): Uint8Array {
      stream!.keepAlive();
      return stream!.take('');
    },
    /** Events that the application got so far; undefined: the response is no stream. */
    events: (): number | undefined => stream?.log.events,
    /**
     * Returns the bytes that end the stream because of this failure; none if its last event has been
     * delivered already. The caller breaks the connection.
     */
    fail({ code, message, remedy }: PrivatemodeError): Uint8Array {
      stream!.fail(`${code}: ${message}. ${remedy} (request id ${requestId})`);
      return stream!.take('');
    },
    /** Translates the whole body of a success (translateBody). */
    body: (chat: Uint8Array): Buffer => translateBody(chat, request!.context),
  };
}

/**
 * Translates the body of a success, which has been decrypted and checked. It is treated as a stream of one
 * chunk, so that bodies and streams have the same items. Throws response_malformed, response_too_large, or
 * stream_unfinished if the service cut the arguments of a call or ended the response in a way that the API
 * does not know.
 */
export function translateBody(body: Uint8Array, context: ResponseContext): Buffer {
  const chat = JSON.parse(new TextDecoder().decode(body)) as { readonly choices: readonly PlainObject[] };
  const [choice] = chat.choices;
  if (choice === undefined) throw malformed('the response has no message');
  const translation = new ChatTranslation(context);
  translation.chunk({ ...chat, choices: [{ ...choice, delta: choice['message'] }] });
  translation.accept();
  return Buffer.from(translation.response);
}
