/** Recognises the error with which the service asks for a newer client. */
import { PrivatemodeError } from '../errors.ts';

/** Bytes. That error is short, so a longer text is not searched. */
export const MOST_SEARCHED = 4096;

/** What the service writes unencrypted if it wants a newer client (docs/protocol/inference.md 11). */
const MINIMUM = /\bminimum (?:client )?version v(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)(?![\w.]*\w)/i;

/**
 * Returns client_too_old if the plain body of an error asks for a newer client; undefined if it does not, or
 * if it has more than 4 KiB. Nothing authenticates that body. So the message quotes only the digits of the
 * version, and nothing but this one response follows from it. `announced`: the version that the request
 * announced.
 */
export function clientTooOld(body: Uint8Array, announced: string): PrivatemodeError | undefined {
  if (body.length > MOST_SEARCHED) return undefined;
  const message = new TextDecoder('latin1').decode(body);
  const wanted = MINIMUM.exec(message)?.[1];
  if (wanted === undefined) return undefined;
  const text = `the service says, in a text that nothing authenticates, that it wants a client of version ${wanted} or newer; this one announces ${announced}`;
  return new PrivatemodeError('client_too_old', text);
}
