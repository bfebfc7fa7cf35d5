/** Short pieces of a body: they are joined, and senders of many take turns. */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

/** Short pieces of a message that may come in one turn of the event loop. Nobody who means well sends more at once. */
const PIECES = 256;

/** The short pieces of a message. */
interface Pieces {
  /** Bytes from which on a piece is not short. */
  readonly short: number;
  /** So many of a turn pass as they come. */
  readonly few: number;
  /** Its first `bytes` bytes are what the stream does not have yet. */
  held: Buffer;
  bytes: number;
  /** How many came in this turn, or since the last one that the message had in `inTurn`. */
  count: number;
  /** How many came in all. */
  total: number;
}

const NOTHING = Buffer.alloc(0);
const joined = new WeakMap<Readable, Pieces>();

/**
 * Joins the pieces of a body that are shorter than `short` bytes where many arrive in the same turn of the event loop, and has fewer
 * of them arrive in one. The first `few` of a turn pass as they come. To be called before the first piece is there; a second
 * call changes nothing.
 *
 * Node gives a piece of one byte an object of hundreds, and spends as much on it as on one of 64 KiB, most of that in the
 * stream, so they are joined before it. It parses up to 350 000 of them in one turn, in which nobody else is served. Where a
 * message has so many, the read that is under way is parsed to its end, 64 KiB at most; then the connection is paused until the
 * message has its turn.
 */
export function joinPieces(message: IncomingMessage, short: number, few: number): void {
  if (joined.has(message)) return;
  joined.set(message, { short, few, held: NOTHING, bytes: 0, count: 0, total: 0 });
  message.push = pushJoined;
}

/** How many short pieces of a message came since `joinPieces`; 0 without it. */
export const shortPieces = (message: IncomingMessage): number => joined.get(message)?.total ?? 0;

/** In place of the `push` of a message. Where it returns false, Node's parser pauses the connection until the stream asks for more. */
function pushJoined(this: IncomingMessage, chunk: Buffer | null): boolean {
  const pieces = joined.get(this)!;
  const isShort = chunk !== null && chunk.length < pieces.short;
  if (isShort) {
    if (pieces.count === 0) setImmediate(endTurn, this, pieces);
    pieces.count += 1;
    pieces.total += 1;
  }
  // A stream asks for more as soon as it gets something. One that has to wait gets nothing, long pieces included.
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
    pieces.held = chunk; // most come alone
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
  if (!pushHeld(message, pieces)) message.socket.pause(); // as Node's parser does where the stream has enough
}

function pushHeld(message: IncomingMessage, pieces: Pieces): boolean {
  const { held, bytes } = pieces;
  if (bytes === 0) return true;
  pieces.held = NOTHING;
  pieces.bytes = 0;
  // A copy that has no memory left over: it may be kept for long, and is freed by hand (releaseMemory).
  const whole = held.length === bytes ? held : Buffer.from(held.subarray(0, bytes));
  return message.destroyed || push(message, whole);
}

const push = (stream: Readable, chunk: Buffer | null): boolean => Readable.prototype.push.call(stream, chunk);

// There is one event loop, and one queue for it.
const queue: (() => void)[] = [];

/** Calls `readOn` in a turn of the event loop to come, one such function in each: so much is read of those that send too many pieces at once. */
export function inTurn(readOn: () => void): void {
  queue.push(readOn);
  if (queue.length === 1) setImmediate(nextTurn);
}

function nextTurn(): void {
  const next = queue.shift();
  if (queue.length > 0) setImmediate(nextTurn);
  next?.();
}
