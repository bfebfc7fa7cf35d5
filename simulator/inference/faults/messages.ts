/** Faults in the protection of a response: messages altered, marks forged, plaintext in place of messages. */
import { gzipSync } from 'node:zlib';
import { type FaultRow, harmless, type Intervention, row } from './intervention.ts';

/** Plaintext in place of a message; a client must never show it. */
export const FORGED = 'FORGED PLAINTEXT';

const MESSAGE = /"[^":]*:[0-9a-f]{24}:[0-9a-f]{24}:[0-9a-f]+"/g;

/** Changes the last message, the model's text, of the first piece that has one, from event `from` on. */
function alterMessage(from: number, change: (message: string) => string): Intervention {
  let isDone = false;
  return {
    ofWire(piece, { index, isWhole }) {
      const text = piece.toString();
      const last = isDone || !(isWhole || index >= from) ? undefined : [...text.matchAll(MESSAGE)].at(-1);
      if (last === undefined) return [piece];
      isDone = true;
      const end = last.index + last[0].length;
      return [Buffer.from(text.slice(0, last.index) + change(last[0]) + text.slice(end))];
    },
  };
}

const flipLastDigit = (message: string): string =>
  `${message.slice(0, -2)}${(Number.parseInt(message.at(-2)!, 16) ^ 1).toString(16)}"`;

const shortenIv = (message: string): string => message.replace(/[0-9a-f]{2}(:[0-9a-f]+")$/, '$1');

const relabel = (text: string): string =>
  text.replace(/"[^":]*:[0-9a-f]{24}(:[0-9a-f]{24}:[0-9a-f]+")/g, `"other:${'0'.repeat(24)}$1`);

const marked = (value: string): Intervention => ({ headers: { 'Privatemode-Encrypted': value } });

export const MESSAGE_FAULTS = {
  flip_tag: row('flips one bit of a tag in event n (3)', ({ event }) => alterMessage(event(), flipLastDigit)),
  short_iv: row('shortens an iv to 11 bytes in event n (3)', ({ event }) => alterMessage(event(), shortenIv)),
  plain_member: row('puts a plaintext where a message belongs in event n (3)', ({ event }) =>
    alterMessage(event(), () => JSON.stringify(FORGED)),
  ),
  wrong_nonce: row('encrypts the answer under another nonce', () => ({
    nonce: (nonce) => Buffer.from(nonce.map((byte) => byte ^ 0xff)),
  })),
  foreign_labels: harmless(
    row('names another secret id and nonce in every message, which a client ignores', () => ({
      ofWire: (piece) => [Buffer.from(relabel(piece.toString()))],
    })),
  ),
  plain_unmarked: row('answers in clear without any mark', () => ({ unprotected: true })),
  plain_marked: row(
    'answers in clear with Privatemode-Encrypted of this value (false): a forged success',
    ({ text }) => ({ unprotected: true, ...marked(text(0, 'false')) }),
  ),
  sealed_marked: row('answers encrypted with Privatemode-Encrypted of this value (false)', ({ text }) =>
    marked(text(0, 'false')),
  ),
  gzip: row('compresses the body although identity was asked for', () => ({
    headers: { 'Content-Encoding': 'gzip' },
    ofWire: (piece) => [gzipSync(piece)],
  })),
} satisfies Record<string, FaultRow>;
