import type { IncomingMessage } from 'node:http';

/** No client that means well sends more pieces at once: libuv reads 32 times 64 KiB from a connection in one turn. */
const PIECES = 256;

// There is one event loop, and these are about it.
const waiting = new Set<IncomingMessage>();
let turn = 0;
let turning = false;

/**
 * Counts the pieces of a body; to be called for each. Node spends as much on a piece of one byte as on one of 64 KiB, and reads up
 * to 350 000 of them in one turn of the event loop, in which nobody else is served. A request that sends so many is stopped after
 * the read that is under way, and takes turns with the others of its kind: one of them reads once per turn.
 */
export function countPieces(req: IncomingMessage): () => void {
  let pieces = 0;
  let counted = -1;
  return () => {
    if (!turning) nextTurn();
    if (counted !== turn) pieces = 0;
    counted = turn;
    pieces += 1;
    if (pieces === PIECES) stop(req);
  };
}

function nextTurn(): void {
  turning = true;
  setImmediate(() => {
    turn += 1;
    const [first] = waiting;
    turning = false;
    if (first === undefined) return;
    resume(first);
    if (waiting.size > 0) nextTurn();
  });
}

const readNothing = (): void => {};

function stop(req: IncomingMessage): void {
  // The stream asks for more after each piece of the read that is under way, which would resume the socket. It need not ask:
  // its data is taken as it comes, and the socket resumed here.
  req._read = readNothing;
  req.socket.pause();
  waiting.add(req);
}

function resume(req: IncomingMessage): void {
  waiting.delete(req);
  if (!req.socket.destroyed) req.socket.resume();
}
