/**
 * Texts that no program writes by accident. Every prompt and API key of the tests begins with the mark, so
 * that one search finds them all, whoever wrote them down and in which form.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';

export const MARK = 'canary-';
/** Of API keys. */
export const KEY_MARK = `${MARK}key-`;

/** The API key where a test says nothing else. */
export const CANARY_KEY = `${KEY_MARK}of-the-tests`;

export interface Canaries {
  /** In the user's message and, echoed, in the model's answer. */
  readonly prompt: string;
  /** The configured API key. */
  readonly key: string;
}

export const newCanaries = (): Canaries => {
  const mark = randomBytes(6).toString('hex');
  return { prompt: `${MARK}prompt-${mark}`, key: `${KEY_MARK}${mark}` };
};

/**
 * A text as it may have been written down: as it is, hex, percent-encoded, in escapes of JSON, base64
 * wherever in it.
 */
export function writtenForms(text: string): string[] {
  const bytes = Buffer.from(text);
  const each = (form: (byte: string) => string): string =>
    [...bytes].map((byte) => form(byte.toString(16).padStart(2, '0'))).join('');
  const spelled = [each((hex) => hex), each((hex) => `%${hex}`), each((hex) => `\\u00${hex}`)];
  const base64 = [0, 1, 2].map((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    // The characters at either end depend on the neighbours too.
    return encoded.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
  });
  const upper = spelled.map((form) => form.toUpperCase().replaceAll('\\U', '\\u'));
  const url = base64.map((form) => form.replaceAll('+', '-').replaceAll('/', '_'));
  return [...new Set([text, ...spelled, ...upper, ...base64, ...url])];
}

const FORMS = writtenForms(MARK);

/** Asserts that what was logged holds no canary, in whichever form. The failure does not print it either. */
function assertNoCanary(log: string, whose: string): void {
  const bytes = Buffer.from(log);
  const at = Math.max(...FORMS.map((form) => bytes.indexOf(form, 0, 'latin1')));
  const line = bytes.subarray(0, Math.max(at, 0)).toString('utf8').split('\n').at(-1) ?? '';
  assert.ok(at < 0, `a prompt or a key in the log of ${whose}, after: ${line.slice(-200)}`);
}

/**
 * The same for who closes what was logging: a failure is thrown on its own, so that what else has to be
 * closed is closed.
 */
export function searchLog(log: string, whose: string): void {
  setImmediate(() => assertNoCanary(log, whose));
}
