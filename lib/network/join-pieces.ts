/** Joins the short pieces of a body, and lets the senders of many short pieces take turns. */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

/**
 * Short pieces of a message that may come in one turn of the event loop. No well-meaning sender sends more at
 * once.
 */
const PIECES = 256;

/** The short pieces of a message. */
interface Pieces {
  /** Bytes from which on a piece is not short. */
  readonly short: number;
  /** How many short pieces of a turn pass as they come. */
  readonly few: number;
  /** The first `bytes` bytes of this buffer are joined pieces that the stream does not have yet. */
  held: Buffer;
  bytes: number;
  /** How many short pieces came in this turn, or since the last turn that the message had in `inTurn`. */
  count: number;
  /** How many short pieces came in all. */
  total: number;
}

const NOTHING = Buffer.alloc(0);
const joined = new WeakMap<Readable, Pieces>();

/**
 * Joins the pieces of a body that are shorter than `short` bytes if many of them arrive in one turn of the
 * event loop, and makes fewer of them arrive in one turn. The first `few` of a turn pass as they come. Call
 * it before the first piece arrives; a second call changes nothing.
 *
 * For a piece of one byte, Node makes an object of hundreds of bytes, and does as much work as for a piece of
 * 64 KiB. Most of this work is done in the stream, so the pieces are joined before they reach it. Node parses
 * up to 350 000 such pieces in one turn, in which nobody else is served. If a message has too many pieces in
 * a turn, Node parses the current read to its end, 64 KiB at most. Then the connection is paused until the
 * message has its turn.
 */
export function joinPieces(message: IncomingMessage, short: number, few: number): void {
  if (joined.has(message)) return;
  joined.set(message, { short, few, held: NOTHING, bytes: 0, count: 0, total: 0 });
  message.push = pushJoined;
}

/** How many short pieces of a message have come since `joinPieces`; 0 without it. */
export const shortPieces = (message: IncomingMessage): number => joined.get(message)?.total ?? 0;

/**
 * Replaces the `push` of a message. If it returns false, Node's parser pauses the connection until the stream
 * asks for more.
 */
function pushJoined(this: IncomingMessage, chunk: Buffer | null): boolean {
  const pieces = joined.get(this)!;
  const isShort = chunk !== null && chunk.length < pieces.short;
  if (isShort) {
    if (pieces.count === 0) setImmediate(endTurn, this, pieces);
    pieces.count += 1;
    pieces.total += 1;
  }
  // A stream asks for more as soon as it gets something. So a stream that has to wait gets nothing, not even
  // long pieces.
  const waits = pieces.count >= PIECES;
  const passes = !waits && (!isShort || (pieces.count <= pieces.few && pieces.bytes === 0));
  if (chunk === null || passes) {
    pushHeld(this, pieces);
    return push(this, chunk);
  }
  hold(pieces, chunk);
  return !waits;
}

function hold(pieces: Pieces, chunk: Buffer): void {
  const { held, bytes } = pieces;
  pieces.bytes += chunk.length;
  if (bytes === 0) {
    pieces.held = chunk; // most pieces come alone
    return;
  }
  if (pieces.bytes > held.length) {
    pieces.held = Buffer.allocUnsafeSlow(2 * pieces.bytes);
    held.copy(pieces.held);
  }
  pieces.held.set(chunk, bytes);
}

function endTurn(message: IncomingMessage, pieces: Pieces): void {
  if (pieces.count < PIECES) readOn(message, pieces);
  else inTurn(() => readOn(message, pieces));
}

function readOn(message: IncomingMessage, pieces: Pieces): void {
  pieces.count = 0;
  if (!pushHeld(message, pieces)) message.socket.pause(); // as Node's parser does if the stream has enough
}

function pushHeld(message: IncomingMessage, pieces: Pieces): boolean {
  const { held, bytes } = pieces;
  if (bytes === 0) return true;
  pieces.held = NOTHING;
  pieces.bytes = 0;
  // A copy without spare memory: its owner may keep it for long, and frees it by hand (releaseMemory).
  const whole = held.length === bytes ? held : Buffer.from(held.subarray(0, bytes));
  return message.destroyed || push(message, whole);
}

const push = (stream: Readable, chunk: Buffer | null): boolean => Readable.prototype.push.call(stream, chunk);

// There is one event loop, and one queue for it.
const queue: (() => void)[] = [];

/**
 * Calls `readOn` in a later turn of the event loop. Each turn calls only one such function, so that all
 * senders of too many pieces together get one read in a turn.
 */
export function inTurn(readOn: () => void): void {
  queue.push(readOn);
  if (queue.length === 1) setImmediate(nextTurn);
}

function nextTurn(): void {
  const next = queue.shift();
  if (queue.length > 0) setImmediate(nextTurn);
  next?.();
}
