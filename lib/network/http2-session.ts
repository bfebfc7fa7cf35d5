/** One HTTP/2 connection that many requests share (RFC 9113). */
import type { OutgoingHttpHeaders } from 'node:http';
import { type ClientHttp2Stream, connect, constants, sensitiveHeaders } from 'node:http2';
import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { joinPieces, pushJoined } from './join-pieces.ts';

export type Http2Session = Awaited<ReturnType<typeof openHttp2Session>>;

export interface Http2Options {
  /** ms until the server has sent its SETTINGS. */
  readonly timeout: number;
  /** ms of silence, while responses are due, after which the server is pinged. Default 15 s. */
  readonly silence?: number;
  /** ms for the answer to a ping, and for the server to close its side of the connection after ours. Default 10 s. */
  readonly patience?: number;
}

/** Bytes of a response that the server may send ahead of its reader: that much memory a slow reader can take. */
const STREAM_WINDOW = 256 * 1024;
/** Bytes for all streams together; Node gives them back as they come, so that a slow reader stops only its own stream. */
const SESSION_WINDOW = 16 * 1024 * 1024;
/** Bytes of a response head, as much as Node's HTTP/1.1 parser takes. */
const LONGEST_HEAD = 16 * 1024;

/** Codes by which a server says that it has not begun with the request (RFC 9113 8.7), or wants it over HTTP/1.1. */
const REFUSALS: ReadonlySet<number | undefined> = new Set([
  constants.NGHTTP2_REFUSED_STREAM,
  constants.NGHTTP2_HTTP_1_1_REQUIRED,
]);

/**
 * Speaks HTTP/2 over `socket`, which has negotiated it. Resolves once the server has sent its SETTINGS: before, nobody knows how
 * many streams it takes. Rejects where they do not come in time, or the connection ends first.
 */
export async function openHttp2Session(socket: TLSSocket, options: Http2Options) {
  const { timeout, silence = 15_000, patience = 10_000 } = options;
  const session = connect('https://service', {
    createConnection: () => socket,
    maxReservedRemoteStreams: 0,
    settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxHeaderListSize: LONGEST_HEAD },
  });
  let open = 0; // streams
  let uploading = 0; // bytes of bodies that have not left completely
  let unheard = 0; // bytes that had been read when the session last idled
  let idleSince = Date.now();
  let lastStream = Number.POSITIVE_INFINITY; // that the server has begun with
  let watch: NodeJS.Timeout | undefined;

  /** The session is over. Node would wait for a server that does not read, or close its side, as long as that likes (docs/hazards.md 36). */
  function part(): void {
    const late = setTimeout(() => socket.destroy(), patience).unref();
    socket.once('close', () => clearTimeout(late));
  }
  const giveUp = (): void => {
    session.destroy();
    part();
  };

  session.on('error', () => {}); // its streams report it
  session.on('goaway', (_code: number, last: number) => {
    lastStream = last;
    if (open === 0) part();
  });
  session.once('connect', () => session.setLocalWindowSize(SESSION_WINDOW));
  session.unref();
  // http-proxy-3 makes one for each request, and with the first Node loads its fetch: tens of ms that no request need wait.
  new Headers();
  const late = setTimeout(giveUp, timeout);
  await new Promise<unknown>((resolve, reject) => {
    session.once('remoteSettings', resolve);
    session.once('close', () => reject(new Error('closed before its settings came')));
  }).finally(() => clearTimeout(late));

  /** Pings a server from which nothing came for a while, and gives the connection up where that is not answered. */
  function listen(heard: number): void {
    clearTimeout(watch);
    watch = setTimeout(() => {
      if (open === 0 || session.destroyed) return;
      if (socket.bytesRead !== heard) return listen(socket.bytesRead);
      const dead = setTimeout(giveUp, patience);
      session.once('close', () => clearTimeout(dead));
      const answered = (): void => {
        clearTimeout(dead);
        if (open > 0 && !session.destroyed) listen(socket.bytesRead);
      };
      if (!session.ping(answered)) giveUp();
    }, silence).unref();
  }

  function over(): void {
    if (--open > 0) return;
    clearTimeout(watch);
    unheard = socket.bytesRead;
    idleSince = Date.now();
    if (session.closed || session.destroyed) part();
  }

  /** Takes no more requests; those under way go on. */
  function close(): void {
    session.close();
    if (open === 0) part();
  }

  return {
    /** ms since 1970 since when no request is under way; undefined: one is. */
    idleSince: (): number | undefined => (open === 0 ? idleSince : undefined),
    isUsable: (): boolean => !session.closed && !session.destroyed,
    /**
     * Begins a request with `bytes` of body. undefined where it would have to wait: too many are under way, or its body is larger than
     * what the server takes ahead; the caller has HTTP/1.1 then. `headers` are those of an HTTP/1.1 request.
     */
    request(method: string, path: string, headers: OutgoingHttpHeaders, bytes: number) {
      if (session.closed || session.destroyed) return undefined;
      const { maxConcurrentStreams = Number.POSITIVE_INFINITY, initialWindowSize = 0 } =
        session.remoteSettings;
      if (open >= maxConcurrentStreams || bytes > initialWindowSize) return undefined;
      if (bytes > 0 && bytes + uploading > (session.state.remoteWindowSize ?? 0)) return undefined;
      const stream = session.request(headOf(method, path, headers), { endStream: bytes === 0 });
      if (stream.id === undefined) close(); // it has used up the numbers of its streams
      const heard = socket.bytesRead;
      const wasIdle = open === 0 || heard === unheard;
      if (open++ === 0) listen(heard);
      let unsent = bytes;
      const uploaded = (): void => {
        uploading -= unsent;
        unsent = 0;
      };
      uploading += bytes;
      stream.once('finish', uploaded).once('close', uploaded).once('close', over);
      endVisibly(stream);
      return {
        stream,
        /** Whether nothing was heard since the connection idled, and it is gone: it may have been closed before; to be asked once it failed. */
        isStale: (): boolean => wasIdle && session.destroyed && socket.bytesRead === heard,
        /** Whether the server has certainly not begun with it; to be asked once it failed. */
        isRefused: (): boolean =>
          stream.id === undefined || stream.id > lastStream || REFUSALS.has(stream.rstCode),
      };
    },
    close,
    destroy: giveUp,
    /** Told, maybe twice, that it takes no more requests. */
    onceGone(told: () => void): void {
      session.once('goaway', told);
      session.once('close', told);
    },
    onceClosed: (told: () => void): void => void session.once('close', told),
  };
}

/** The head of a request. Of names that differ in case alone the last counts, as over HTTP/1.1; here both would go out (docs/hazards.md 35). */
function headOf(method: string, path: string, headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const head: OutgoingHttpHeaders = { ':method': method, ':path': path };
  for (const [name, value] of Object.entries(headers)) head[name.toLowerCase()] = value;
  head[':authority'] = head['host'];
  delete head['host'];
  // Kept out of the table that all requests share (RFC 7541 7.1.3).
  return Object.assign(head, { [sensitiveHeaders]: ['authorization'] });
}

/** Bytes; no event that is encrypted is shorter. */
const SHORT_PIECE = 128;
const FEW_PIECES = 16;

/** Makes a stream whose response is cut off fail, where Node would end it, and tells the server where we end it ourselves. */
function endVisibly(stream: ClientHttp2Stream): void {
  joinPieces(stream, SHORT_PIECE, FEW_PIECES);
  stream.push = pushUnlessCut;
  stream.destroy = destroyCancelled;
}

/**
 * In place of the `push` of a stream. Node pushes the end also for RST_STREAM with NO_ERROR, and where a stream is destroyed without
 * an error: CANCEL, the end of the connection (docs/hazards.md 33). A genuine end comes while the stream is open.
 */
function pushUnlessCut(this: ClientHttp2Stream, chunk: Buffer | null): boolean {
  if (chunk !== null) return pushJoined.call(this, compact(chunk));
  if (!(this.closed || this.destroyed) || ended(this)) return pushJoined.call(this, chunk);
  if (!this.destroyed) process.nextTick(fail, this); // Node goes on with it and throws where it is destroyed by now
  return false;
}

/** Part of a buffer from which on a piece keeps it. */
const LARGE_PART = 1 / 16;

/** A piece without the rest of the buffer that it was read into: frames of other kinds, whose length no window limits. */
const compact = (piece: Buffer): Buffer =>
  piece.length < LARGE_PART * piece.buffer.byteLength ? Buffer.from(piece) : piece;

const fail = (stream: ClientHttp2Stream): void => void stream.destroy(new Error('the stream was reset'));

/** END_STREAM came, read or not. */
const ended = (stream: ClientHttp2Stream): boolean =>
  (stream as unknown as { readonly _readableState: { readonly ended: boolean } })._readableState.ended;

const endUnsaid = (done: () => void): void => done();

/** In place of its `destroy`, which would send NO_ERROR: the server goes on with what nobody reads. */
function destroyCancelled(this: ClientHttp2Stream, error?: Error): ClientHttp2Stream {
  if (!this.closed && !this.destroyed) {
    this._final = endUnsaid; // close() would send END_STREAM first (docs/hazards.md 34)
    this.close(constants.NGHTTP2_CANCEL);
  }
  return Duplex.prototype.destroy.call(this, error) as ClientHttp2Stream;
}
