/** The Responses API in one exchange: the functions that replace those of a chat request in the chain. */
import type { PrivatemodeError } from '../errors.ts';
import { inTurns } from '../json/scan.ts';
import { type EventSink, malformed } from '../pipeline/decrypter.ts';
import type { BodyReader } from '../pipeline/request-body.ts';
import type { PlainObject } from './request-refusal.ts';
import { ChatTranslation } from './translate-chunks.ts';
import { type TranslatedRequest, translateRequest } from './translate-request.ts';

export type Translator = ReturnType<typeof createTranslator>;

/** How many copies memory holds at once: of the request, its repeated members and the response's text. */
const COPIES = { request: 4, echo: 3, text: 4 };

/** Hosted tools that a header may name. A type not listed is the client's own word, and is not repeated. */
const HOSTED =
  /^(?:web_search|file_search|computer|code_interpreter|mcp|image_generation|local_shell|shell)(?=_|$)/;

/** Makes the translator of one exchange. `request` must be complete before other functions are used. */
export function createTranslator(requestId: string) {
  let request: Omit<TranslatedRequest, 'chat'> | undefined; // kept until the response has ended
  let stream: ChatTranslation | undefined;
  let echoBytes = 0; // the length of what the response repeats of the request

  return {
    /**
     * Returns a reader that translates the body of the request, and passes the translation to `chat`. The
     * reader throws as translateRequest does. The reader reserves memory once for all copies: at the same
     * time, the request is in memory as it came, parsed, and as a chat request.
     */
    request(chat: BodyReader): BodyReader {
      return (bytes, on) => {
        on.hold?.(COPIES.request * bytes.length);
        const passOn = ({ chat: text, ...asked }: TranslatedRequest) => {
          request = asked;
          echoBytes = Buffer.byteLength(asked.context.echo);
          return chat(text, on);
        };
        const translated = inTurns(translateRequest(bytes), on.pause);
        return translated instanceof Promise ? translated.then(passOn) : passOn(translated);
      };
    },
    /** The hosted tools that were left out, for a header: `other` stands for those that HOSTED lacks. */
    leftOut(): string | undefined {
      const words = request!.hosted.map((type) => HOSTED.exec(type)?.[0] ?? 'other');
      return [...new Set(words)].join(', ') || undefined;
    },
    /** How many bytes the response holds until its end: repeated members of the request and its own text. */
    held: (): number => COPIES.echo * echoBytes + COPIES.text * (stream?.size ?? 0),
    /** Returns the sink that writes the events of a Response in place of chat completion events. */
    stream(): EventSink {
      stream = new ChatTranslation(request!.context);
      return stream;
    },
    /** Returns events with data, to keep a silent stream alive. Some clients count only events with data. */
    keepAlive(): Uint8Array {
      stream!.keepAlive();
      return stream!.take('');
    },
    /**
     * Returns the bytes that end the stream after a failure. If the stream's last event has been delivered
     * already, returns no bytes. The caller breaks the connection.
     */
    fail({ code, message, remedy }: PrivatemodeError): Uint8Array {
      stream!.fail(`${code}: ${message}. ${remedy} (request id ${requestId})`);
      return stream!.take('');
    },
    /**
     * Translates the whole body of a success, which has been decrypted and checked. The body counts as a
     * stream of one chunk, so that bodies and streams have the same items. Throws response_malformed and
     * response_too_large. If the service cut the arguments of a call, or ended the response in an unknown
     * way, throws stream_unfinished.
     */
    body(whole: Uint8Array): Buffer {
      const chat = JSON.parse(new TextDecoder().decode(whole)) as { choices: readonly PlainObject[] };
      const [choice] = chat.choices;
      if (choice === undefined) throw malformed('the response has no message');
      const translation = new ChatTranslation(request!.context);
      translation.chunk({ ...chat, choices: [{ ...choice, delta: choice['message'] }] });
      translation.accept();
      return Buffer.from(translation.response);
    },
  };
}
