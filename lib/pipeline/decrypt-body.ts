/** Decrypts whole responses (docs/protocol/inference.md 6.1). */
import type { Endpoint } from '../api/endpoints.ts';
import { nextTurn } from '../clock.ts';
import { inTurns } from '../json/scan.ts';
import type { Opener, RequestFacts } from './decrypter.ts';
import { jsonOf, malformed, notAuthentic, own, tokenUsage } from './decrypter.ts';
import { fitsRow, grammarOf, hasNames, isElement, type ResponseGrammar } from './response-grammar.ts';
import { objectText, type SealedObject, sealedElements } from './sealed-json.ts';

export const MAX_BODY_BYTES = 128 * 1024 * 1024; // the most bytes on the wire; more are refused
const TURN = { messages: 256, bytes: 512 * 1024 }; // the most to decrypt before other exchanges have a turn

/** Throws if an error has an unknown plain member, or no sealed member. Sealed members may be any JSON. */
function checkError({ layout: { sealed, plain }, type }: SealedObject): void {
  if (sealed.length === 0) throw notAuthentic('the response holds no authenticated content');
  const isKnown = (name: string) =>
    name === 'id' || name === 'usage' || (name === 'type' && type === 'error');
  if (!plain.every(({ name }) => isKnown(name))) {
    throw malformed('an error of the service has a plain member that errors do not have');
  }
}

/** Throws unless a success has the requested members. Returns a function that checks a member's value. */
function checkSuccess(
  { layout, type }: SealedObject,
  { plain, whole, formats = {} }: ResponseGrammar,
  { format = '', choices }: RequestFacts,
): (name: string, value: unknown) => boolean {
  // A success may be an array of messages. Each message then holds an element of a document, or a list of
  // elements.
  if (whole === undefined && layout.names.length === 0) return (_, value) => [value].flat().every(isElement);
  const row = own(formats, format) ?? whole;
  if (row === undefined || type !== row.type || !hasNames(row, layout, plain)) {
    throw notAuthentic('the response does not consist of what was asked for');
  }
  return (name, value) =>
    fitsRow(row, name, value) && (name !== 'choices' || (Array.isArray(value) && value.length === choices));
}

/**
 * Opens and checks the messages of a whole JSON body, and writes the body anew in the same order. `asked` is
 * what a success must consist of. An error may hold any sealed members, so `asked` is undefined for an error.
 * Throws, or rejects with, response_malformed, response_not_authentic (a wrong tag, a body that breaks the
 * grammar), and what grammarOf throws. Other exchanges get turns during the decryption, so a body of 8 MiB
 * never delays them for 50 ms. A short body is returned without a promise.
 */
export const decryptBody = (...response: Parameters<typeof openBody>) =>
  inTurns(openBody(...response), nextTurn);

function* openBody(
  endpoint: Pick<Endpoint, 'id'>,
  cipher: Opener,
  asked: RequestFacts | undefined,
  bytes: Buffer,
) {
  const grammar = grammarOf(endpoint);
  const text = bytes.toString('latin1');
  const isArray = grammar.whole === undefined && /^[ \t\n\r]{0,64}\[/.test(text);
  const body = isArray ? sealedElements(text) : grammar.read(text);
  const { values } = body;
  const { names, sealed } = body.layout;
  const isMember = asked === undefined ? () => true : checkSuccess(body, grammar, asked);
  for (let next = 0; next < sealed.length; ) {
    if (next > 0) yield;
    const part: number[] = [];
    for (let size = 0; next < sealed.length && part.length < TURN.messages && size < TURN.bytes; next++) {
      part.push(sealed[next]!);
      size += values[sealed[next]!]!.length;
    }
    const opened = cipher.open(part.map((at) => values[at]!));
    for (const [k, at] of part.entries()) {
      values[at] = opened[k]!;
      if (!isMember(names[at] ?? '', jsonOf(opened[k]!))) {
        throw notAuthentic('a member of the response is not what it should be');
      }
    }
  }
  // An error is checked last: if its messages cannot be opened, it does not come from the service at all.
  if (asked === undefined) checkError(body);
  const written = isArray ? `[${values.join()}]` : objectText(body.layout, values);
  return { body: Buffer.from(written, 'latin1'), usage: tokenUsage(body.usage) };
}
