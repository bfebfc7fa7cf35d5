import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';

/** Nobody who means well sends more short pieces at once: libuv reads 32 times 64 KiB from a connection in one turn. */
const PIECES = 256;
/** Bytes of a connection that are parsed in one turn: at most 1 365 pieces, which take Node's parser 3 ms. */
const PARSED_BYTES = 8 * 1024;
/** Most pieces that are joined, and most bytes. */
const JOINED_PIECES = 1024;
const JOINED_BYTES = 64 * 1024;

/** The short pieces of a message. */
interface Pieces {
  /** Bytes from which on a piece is not short. */
  readonly short: number;
  /** So many of a turn pass as they come. */
  readonly few: number;
  /** Those of this turn that the stream does not have yet, and their bytes. */
  held: Buffer[];
  bytes: number;
  /** Gives them to it at the end of the turn. */
  flush: NodeJS.Immediate | undefined;
  /** How many came in the turn of that number, and in all. */
  count: number;
  turn: number;
  total: number;
}

/** Bytes read from a connection and not parsed yet. */
interface Unparsed {
  readonly chunks: Buffer[];
  /** The connection has ended behind them. */
  ended: boolean;
  /** Whose body is parsed in turns; undefined once it is over. */
  message: IncomingMessage | undefined;
}

// There is one event loop, and these are about it.
const joined = new WeakMap<Readable, Pieces>();
const divided = new WeakMap<Socket, Unparsed>();
const waiting = new Set<Socket>();
let turn = 0;
let turning = false;

/**
 * Joins the pieces of a body that are shorter than `short` bytes where many arrive in the same turn of the event loop, and has fewer
 * of them arrive in one. The first `few` of a turn pass as they come. To be called before the first piece is there; a second
 * call changes nothing.
 *
 * Node gives a piece of one byte an object of hundreds, and spends as much on it as on one of 64 KiB, most of that in the
 * stream, so they are joined before it. It parses up to 350 000 of them in one turn, in which nobody else is served. Where a
 * message has so many, the read that is under way is parsed to its end, 64 KiB at most; what comes after it is parsed in small
 * parts, and one part per turn whatever the number of such messages: they take turns with each other.
 */
export function joinPieces(message: IncomingMessage, short: number, few: number): void {
  if (joined.has(message)) return;
  joined.set(message, { short, few, held: [], bytes: 0, flush: undefined, count: 0, turn: -1, total: 0 });
  message.push = pushJoined;
}

/** How many short pieces of a message came since `joinPieces`; 0 without it. */
export const shortPieces = (message: IncomingMessage): number => joined.get(message)?.total ?? 0;

/** In place of the `push` of a message. */
function pushJoined(this: IncomingMessage, chunk: Buffer | null): boolean {
  const pieces = joined.get(this)!;
  if (chunk === null || chunk.length >= pieces.short) {
    if (pieces.held.length > 0) pushHeld(this, pieces);
    return push(this, chunk);
  }
  if (!turning) nextTurn();
  if (pieces.turn !== turn) pieces.count = 0;
  pieces.turn = turn;
  pieces.count += 1;
  pieces.total += 1;
  if (pieces.count === PIECES) divide(this);
  if (pieces.count <= pieces.few && pieces.held.length === 0) return push(this, chunk);
  pieces.held.push(chunk);
  pieces.bytes += chunk.length;
  if (pieces.held.length === 1) pieces.flush = setImmediate(endOfTurn, this, pieces);
  else if (pieces.held.length === JOINED_PIECES || pieces.bytes >= JOINED_BYTES)
    return pushHeld(this, pieces);
  return true;
}

function pushHeld(message: IncomingMessage, pieces: Pieces): boolean {
  const { held, bytes } = pieces;
  clearImmediate(pieces.flush);
  pieces.held = [];
  pieces.bytes = 0;
  if (message.destroyed) return true;
  return push(message, held.length === 1 ? held[0]! : Buffer.concat(held, bytes));
}

/** Each message has its own: what its pieces bring about runs in its own asynchronous context. */
function endOfTurn(message: IncomingMessage, pieces: Pieces): void {
  // As Node's parser does where the stream has enough.
  if (!pushHeld(message, pieces)) message.socket.pause();
}

function nextTurn(): void {
  turning = true;
  setImmediate(() => {
    turn += 1;
    turning = false;
    const [first] = waiting;
    if (first === undefined) return;
    waiting.delete(first);
    parseOn(first);
    if (waiting.size > 0 && !turning) nextTurn();
  });
}

const nothing = (): void => {};

/** From the next read on, the connection of a message is parsed in turns, until the message is over. */
function divide(message: IncomingMessage): void {
  const { socket } = message;
  const known = divided.get(socket);
  if (known?.message === message) return;
  if (known !== undefined) known.message = message;
  else {
    divided.set(socket, { chunks: [], ended: false, message });
    // With a listener for its data the parser of a server takes what the stream emits, no longer what the handle reads.
    socket.on('data', nothing);
    socket.push = pushLater;
    socket._read = readOnceParsed;
  }
  const over = (): void => {
    const unparsed = divided.get(socket);
    if (unparsed?.message !== message) return;
    unparsed.message = undefined;
    if (unparsed.chunks.length === 0) unite(socket);
  };
  message.once('end', over);
  message.once('close', over);
}

/** The connection is parsed as it is read again. */
function unite(socket: Socket): void {
  divided.delete(socket);
  socket.off('data', nothing);
  Reflect.deleteProperty(socket, 'push');
  Reflect.deleteProperty(socket, '_read');
}

/** In place of the `push` of a divided connection. Returns false: nothing more is read before this is parsed. */
function pushLater(this: Socket, chunk: Buffer | null): boolean {
  const unparsed = divided.get(this)!;
  if (chunk !== null) unparsed.chunks.push(chunk);
  else if (unparsed.chunks.length === 0) return push(this, null);
  else unparsed.ended = true;
  waiting.add(this);
  if (!turning) nextTurn();
  return false;
}

/** In place of its `_read`, with which the stream asks for more after each part. */
function readOnceParsed(this: Socket, size: number): void {
  if (divided.get(this)!.chunks.length === 0) Socket.prototype._read.call(this, size);
}

const push = (stream: Readable, chunk: Buffer | null): boolean => Readable.prototype.push.call(stream, chunk);

/** Gives the next part to the parser. */
function parseOn(socket: Socket): void {
  const unparsed = divided.get(socket);
  if (unparsed === undefined || socket.destroyed) return;
  const { chunks } = unparsed;
  const chunk = chunks.shift()!;
  if (chunk.length > PARSED_BYTES) chunks.unshift(chunk.subarray(PARSED_BYTES));
  if (chunks.length > 0) waiting.add(socket);
  push(socket, chunk.subarray(0, PARSED_BYTES));
  if (chunks.length > 0) return;
  if (unparsed.ended) push(socket, null);
  if (unparsed.message === undefined) unite(socket);
}
