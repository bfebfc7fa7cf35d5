import { PrivatemodeError } from '../errors.ts';
import type { ReadFile } from './api-key.ts';

/** Limits of spec "Limits": bytes below, Unicode characters above. */
const MIN_BYTES = 32;
const MAX_CHARACTERS = 128;

/**
 * --prompt-cache-salt: `random` → undefined (one salt per start), `@file` → its content without surrounding white
 * space, anything else → itself. Throws config_invalid; the salt is never quoted.
 */
export function parseSalt(text: string, readFile: ReadFile): string | undefined {
  if (text === 'random') return undefined;
  if (!text.startsWith('@')) {
    // Node has replaced what was no UTF-8 on the command line by U+FFFD; two such salts could collapse into one.
    return validSalt(text, !text.includes('\ufffd'), '--prompt-cache-salt');
  }
  const path = text.slice(1);
  const what = `the salt file ${JSON.stringify(path)} of --prompt-cache-salt`;
  let bytes: Uint8Array;
  try {
    bytes = readFile(path);
  } catch (thrown) {
    throw invalid(`failed to read ${what}: ${(thrown as Error).message}`);
  }
  let content: string;
  try {
    // A byte order mark stays, as in the reference: instances that share a salt must agree on it.
    content = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalid(`${what} is not valid UTF-8`);
  }
  return validSalt(content.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, ''), true, what);
}

function validSalt(salt: string, isUtf8: boolean, what: string): string {
  if (!isUtf8 || !salt.isWellFormed()) throw invalid(`${what} is not valid UTF-8`);
  const bytes = Buffer.byteLength(salt);
  if (bytes < MIN_BYTES) {
    throw invalid(
      `${what} has ${bytes} bytes; a salt needs at least ${MIN_BYTES} (openssl rand -hex 32 makes one)`,
    );
  }
  const characters = [...salt].length;
  if (characters > MAX_CHARACTERS) {
    throw invalid(`${what} has ${characters} characters; a salt has at most ${MAX_CHARACTERS}`);
  }
  const forbidden = /[@/\\\0]/.exec(salt)?.[0];
  if (forbidden !== undefined) {
    const shown = forbidden === '\0' ? 'a NUL' : `"${forbidden}"`;
    throw invalid(`${what} contains ${shown}; a salt must not contain @, /, \\ or NUL`);
  }
  return salt;
}

const invalid = (words: string): PrivatemodeError => new PrivatemodeError('config_invalid', words);
