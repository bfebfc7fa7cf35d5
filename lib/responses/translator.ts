/** The Responses API along one exchange: what each step of the chain of a chat request is given in its place. */
import type { PrivatemodeError } from '../errors.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import { translateBody } from './body.ts';
import { type TranslatedRequest, translateRequest } from './request.ts';
import { ResponseStream, TranslatedDecrypter } from './stream.ts';

export type Translator = ReturnType<typeof createTranslator>;

/** How often what repeats the request, and the text of the response, are in memory at most: kept, and in the events that say them again. */
const COPIES = { echo: 3, text: 5 };

/** Hosted tools that clients name; any other word is the client's own, and is not repeated. */
const HOSTED =
  /^(?:web_search|file_search|computer|code_interpreter|mcp|image_generation|local_shell|shell)(?=_|$)/;

const knownWord = (type: string): string => HOSTED.exec(type)?.[0] ?? 'other';

/** For the exchange of that id; `request` is to be called first. */
export function createTranslator(requestId: string) {
  let request: TranslatedRequest | undefined;
  let stream: ResponseStream | undefined;

  const context = (): TranslatedRequest['context'] => (request as TranslatedRequest).context;

  return {
    /** The body of the chat request. Throws invalid_json, or a RequestRefusal. */
    request(body: Uint8Array): Buffer {
      const translated = translateRequest(body);
      request = { ...translated, body: Buffer.alloc(0) }; // it is not kept for as long as the response takes
      return translated.body;
    },
    /** The kinds of hosted tools that were left out, in words of ours. */
    leftOut: (): readonly string[] => [...new Set((request as TranslatedRequest).hosted.map(knownWord))],
    /** Takes the place of the decrypter of an event stream. */
    decrypter(chat: Decrypter): Decrypter {
      stream = new ResponseStream(context(), { requestId });
      return new TranslatedDecrypter(chat, stream);
    },
    /** Bytes that the translation of the stream holds, its last events included. */
    held: (): number => COPIES.echo * context().echo.length + COPIES.text * (stream?.held ?? 0),
    /** What ends the stream because of that failure; a comment where its last event has been delivered. */
    fail(failure: PrivatemodeError): Uint8Array {
      const last = (stream as ResponseStream).fail(failure);
      return last.length > 0 ? last : Buffer.from(':\n\n');
    },
    /** The whole body of a success. Throws what `failure` of a decrypter may be. */
    body: (chat: Uint8Array): Buffer => translateBody(chat, context()),
  };
}
