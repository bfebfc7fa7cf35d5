/** Requests that a client sends ahead of their responses (RFC 9112 9.3.2): how many run at the same time, and whose turn it is. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { joinPieces } from '../network/join-pieces.ts';
import { isArriving } from './own-response.ts';
import { SHORT_PIECE } from './receive-body.ts';

/** Requests of one connection that run at the same time. */
const MOST_OPEN = 16;
/** ms for which waiting requests are begun in one turn of the event loop, of all connections together. */
const TURN = 5;
/** Requests of one connection that wait, and bytes of them, beyond which nothing more of it is read. */
const MOST_WAITING = 4096;
const MOST_WAITING_BYTES = 4 * 1024 * 1024;
/** ms for which a connection is not read because none of so many can begin; a close of its client goes unnoticed meanwhile. */
const PATIENCE = 2_000;

interface Waiting {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

/** One connection. */
interface Line {
  readonly socket: Socket;
  /** Requests that were begun and whose responses are not over. */
  open: number;
  /** In order of arrival. */
  readonly waiting: Set<Waiting>;
  /** Bytes of the connection when the first of those that wait had come. */
  readBefore: number;
  /** The request that came last; undefined once its response is over. */
  newest: IncomingMessage | undefined;
  /** Nothing is read until its next turn. */
  isHeld: boolean;
  /** Runs while so many wait that nothing more is read. */
  patience: NodeJS.Timeout | undefined;
}

/**
 * A listener for requests that has them begun by `begin`: at once where nothing else is open on the connection, otherwise in order of
 * arrival, and with others' turns in between. A request that waits is not begun where its connection ends before. Node parses all that
 * one read of a connection brings, 64 KiB at most, in one go; while requests wait, there is one read per turn. `gaveUp`: a connection was
 * ended because so many wait on it, and none can begin.
 */
export function inTurns(
  begin: (req: IncomingMessage, res: ServerResponse) => void,
  gaveUp: () => void = () => {},
): (req: IncomingMessage, res: ServerResponse) => void {
  const lines = new WeakMap<Socket, Line>();
  const ready = new Set<Line>();
  let isDue = false;

  function callUp(line: Line): void {
    ready.add(line);
    if (!isDue) setImmediate(turn);
    isDue = true;
  }

  function start(line: Line, { req, res }: Waiting): void {
    line.open += 1;
    res.once('close', () => {
      line.open -= 1;
      if (line.newest === req) line.newest = undefined; // the value of a WeakMap may outlive it (docs/hazards.md 25)
      if (line.waiting.size > 0) callUp(line);
    });
    begin(req, res);
  }

  function wait(line: Line, request: Waiting): void {
    const { req, res } = request;
    if (line.waiting.size === 0) line.readBefore = line.socket.bytesRead;
    line.waiting.add(request);
    res.once('close', () => leave(line, request)); // with its connection
    if (isArriving(req)) joinPieces(req, SHORT_PIECE, 0); // the first ones are in the buffer while it waits
    line.isHeld = true;
    line.socket.pause();
    callUp(line);
  }

  function leave(line: Line, request: Waiting): void {
    if (!line.waiting.delete(request)) return;
    clearTimeout(line.patience);
    line.patience = undefined;
  }

  function turn(): void {
    isDue = false;
    const end = performance.now() + TURN;
    for (const line of ready) {
      if (performance.now() >= end) break;
      ready.delete(line);
      for (const request of line.waiting) {
        if (line.open >= MOST_OPEN) break;
        if (performance.now() >= end) {
          ready.add(line); // behind the others
          break;
        }
        leave(line, request);
        start(line, request);
      }
      readOn(line);
    }
    const [next] = ready;
    if (next !== undefined) callUp(next);
  }

  /** Reads the next part of a connection, also to notice its end. */
  function readOn(line: Line): void {
    const { socket, waiting, newest } = line;
    const bytes = waiting.size === 0 ? 0 : socket.bytesRead - line.readBefore;
    line.isHeld = waiting.size >= MOST_WAITING || bytes >= MOST_WAITING_BYTES;
    if (line.isHeld) {
      line.patience ??= setTimeout(() => {
        gaveUp();
        socket.destroy();
      }, PATIENCE);
    } else if (newest === undefined || newest.readableLength < newest.readableHighWaterMark) {
      socket.resume(); // otherwise whoever reads the body of that request resumes it
    }
  }

  function newLine(socket: Socket): Line {
    const waiting = new Set<Waiting>();
    const idle = { open: 0, waiting, readBefore: 0, newest: undefined, isHeld: false, patience: undefined };
    const line: Line = { socket, ...idle };
    // Node resumes a connection at the end of each request, later than it says so: the connection may have been paused meanwhile, and is
    // read all the same until somebody says once more that it is paused.
    socket.on('resume', () => {
      if (line.isHeld) socket.pause();
      if (socket.isPaused()) socket.emit('pause');
    });
    lines.set(socket, line);
    return line;
  }

  return (req, res) => {
    const { socket } = req;
    const line = lines.get(socket) ?? newLine(socket);
    line.newest = req;
    if (line.open === 0 && line.waiting.size === 0) start(line, { req, res });
    else wait(line, { req, res });
  };
}
