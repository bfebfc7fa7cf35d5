/** Faults in the protection of a response: messages altered, marks forged, plaintext in place of messages. */
import { gzipSync } from 'node:zlib';
import type { FaultRow, Intervention } from './intervention.ts';

/** Plaintext in place of a message; a client must never show it. */
export const FORGED = 'FORGED PLAINTEXT';

/** Index of the fourth event, which carries text of the model in both the OpenAI and the Anthropic style. */
export const DEFAULT_EVENT = 3;

const MESSAGE = /"[^":]*:[0-9a-f]{24}:[0-9a-f]{24}:[0-9a-f]+"/g;

const withHeaders = (headers: Record<string, string>): Intervention => ({
  wire: (wire) => ({ ...wire, headers: { ...wire.headers, ...headers } }),
});

/**
 * Changes the last message of the first piece that has one, starting at piece `from` (a unary response has
 * only one piece). On the wire, the last message holds the model's text.
 */
const alterMessage = (from: number, change: (message: string) => string): Intervention => ({
  wire: (wire) => ({
    ...wire,
    pieces: (async function* () {
      let left = wire.streaming ? from : 0;
      let done = false;
      for await (const piece of wire.pieces) {
        const text = piece.toString();
        const last = done || left-- > 0 ? undefined : [...text.matchAll(MESSAGE)].at(-1);
        if (last === undefined) {
          yield piece;
          continue;
        }
        done = true;
        const end = last.index + last[0].length;
        yield Buffer.from(text.slice(0, last.index) + change(last[0]) + text.slice(end));
      }
    })(),
  }),
});

const mapPieces = (change: (piece: Buffer) => Buffer): Intervention => ({
  wire: (wire) => ({
    ...wire,
    pieces: (async function* () {
      for await (const piece of wire.pieces) yield change(piece);
    })(),
  }),
});

const flipLastDigit = (message: string): string =>
  `${message.slice(0, -2)}${(Number.parseInt(message.at(-2)!, 16) ^ 1).toString(16)}"`;

const shortenIv = (message: string): string => message.replace(/[0-9a-f]{2}(:[0-9a-f]+")$/, '$1');

const relabel = (text: string): string =>
  text.replace(/"[^":]*:[0-9a-f]{24}(:[0-9a-f]{24}:[0-9a-f]+")/g, `"other:${'0'.repeat(24)}$1`);

export const MESSAGE_FAULTS = {
  flip_tag: {
    does: 'flips one bit of a tag in event n (3)',
    applies: 'any',
    arm: (args) => alterMessage(args.number(0, DEFAULT_EVENT), flipLastDigit),
  },
  short_iv: {
    does: 'shortens an iv to 11 bytes in event n (3)',
    applies: 'any',
    arm: (args) => alterMessage(args.number(0, DEFAULT_EVENT), shortenIv),
  },
  plain_member: {
    does: 'puts a plaintext where a message belongs in event n (3)',
    applies: 'any',
    arm: (args) => alterMessage(args.number(0, DEFAULT_EVENT), () => JSON.stringify(FORGED)),
  },
  wrong_nonce: {
    does: 'encrypts the answer under another nonce',
    applies: 'any',
    arm: () => ({ nonce: (nonce) => Buffer.from(nonce.map((byte) => byte ^ 0xff)) }),
  },
  foreign_labels: {
    does: 'names another secret id and nonce in every message, which a client ignores',
    applies: 'any',
    harmless: true,
    arm: () => mapPieces((piece) => Buffer.from(relabel(piece.toString()))),
  },
  plain_unmarked: {
    does: 'answers in clear without any mark',
    applies: 'any',
    arm: () => ({ unprotected: true }),
  },
  plain_marked: {
    does: 'answers in clear with Privatemode-Encrypted of this value (false): a forged success',
    applies: 'any',
    arm: (args) => ({
      unprotected: true,
      ...withHeaders({ 'Privatemode-Encrypted': args.text(0, 'false') }),
    }),
  },
  sealed_marked: {
    does: 'answers encrypted with Privatemode-Encrypted of this value (false)',
    applies: 'any',
    arm: (args) => withHeaders({ 'Privatemode-Encrypted': args.text(0, 'false') }),
  },
  gzip: {
    does: 'compresses the body although identity was asked for',
    applies: 'any',
    arm: () => ({
      wire: (wire, terminal) => {
        const zipped = mapPieces(gzipSync).wire?.(wire, terminal) ?? wire;
        return { ...zipped, headers: { ...wire.headers, 'Content-Encoding': 'gzip' } };
      },
    }),
  },
} satisfies Record<string, FaultRow>;
