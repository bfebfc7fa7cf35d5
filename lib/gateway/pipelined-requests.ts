/**
 * Requests that a client sends ahead of their responses (RFC 9112 9.3.2): each waits until the response
 * before it is over.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { inTurn, joinPieces } from '../network/join-pieces.ts';
import { isArriving } from './own-response.ts';
import { SHORT_PIECE } from './receive-body.ts';

/** Requests that may wait on a connection, and their bytes. A client that sends more loses its connection. */
const MOST_WAITING = 4096;
const MOST_WAITING_BYTES = 4 * 1024 * 1024;

/** A connection on which requests have waited. */
interface Line {
  /** For each request that waits: how many bytes of the connection had been read when it came. */
  readonly waiting: number[];
  /** The last request that came before the connection was paused; undefined: it is not paused. */
  newest: IncomingMessage | undefined;
}

/**
 * Makes a listener for requests that calls `begin` for one request of a connection at a time. If no response
 * is under way on the connection, it calls `begin` at once. Otherwise the requests wait in order of arrival,
 * and each begins in its own turn of the event loop. A request never begins once its connection has ended.
 *
 * Node parses in one go all that one read of a connection brings, 64 KiB at most. While requests wait, the
 * connection is paused after each read until it has its turn (`inTurn`). Then it is read on, also to notice
 * that the client has left. `gaveUp` is called when a connection is ended because too many requests wait on
 * it, or too many of their bytes.
 */
export function oneAtATime(
  begin: (req: IncomingMessage, res: ServerResponse) => void,
  gaveUp: () => void,
): (req: IncomingMessage, res: ServerResponse) => void {
  const lines = new WeakMap<Socket, Line>();

  function newLine(socket: Socket): Line {
    const line: Line = { waiting: [], newest: undefined };
    // Node resumes a connection at the end of each request, and reads it even if it was paused meanwhile
    // (docs/hazards.md 39). So it is paused again, and 'pause' is emitted again for Node's parser.
    socket.on('resume', () => {
      if (line.newest !== undefined) socket.pause();
      if (socket.isPaused()) socket.emit('pause');
    });
    lines.set(socket, line);
    return line;
  }

  function readOn(socket: Socket, line: Line): void {
    const { waiting, newest } = line;
    line.newest = undefined;
    const [readBefore = socket.bytesRead] = waiting;
    if (waiting.length > MOST_WAITING || socket.bytesRead - readBefore > MOST_WAITING_BYTES) {
      gaveUp();
      socket.destroy();
    } else if (newest !== undefined && newest.readableLength < newest.readableHighWaterMark) {
      socket.resume(); // otherwise the reader of that request's body resumes it
    }
  }

  function receive(req: IncomingMessage, res: ServerResponse): void {
    const { socket } = req;
    if (res.socket !== null) return void begin(req, res);
    const line = lines.get(socket) ?? newLine(socket);
    line.waiting.push(socket.bytesRead);
    if (isArriving(req)) joinPieces(req, SHORT_PIECE, 0); // its first pieces are buffered while it waits
    if (line.newest === undefined) inTurn(() => readOn(socket, line));
    line.newest = req;
    socket.pause();
    // Node gives a response its connection when the response before it is over.
    res.once('socket', () =>
      setImmediate(() => {
        line.waiting.shift();
        if (socket.writable) begin(req, res);
      }),
    );
  }
  return receive;
}
