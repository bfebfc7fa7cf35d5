/**
 * Records every request that reaches the simulator, so that tests can search them for text that must not
 * leave the client in clear.
 */
import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';

/** One request as it came over the wire. */
export interface RecordedRequest {
  readonly method: string;
  /** Path and query, as sent. */
  readonly path: string;
  /** Names lower-cased; repeated headers joined as Node joins them. */
  readonly headers: Readonly<Record<string, string>>;
  /** Every header as sent: name, value, name, value … */
  readonly rawHeaders: readonly string[];
  /** Body bytes as received, at most `maxBodyBytes` of them. */
  readonly body: Buffer;
  /** How many body bytes were received so far, kept or not. */
  readonly bodyBytes: number;
  /** Wall clock, ms since 1970. */
  readonly receivedAt: number;
}

/**
 * The requests that the service saw. Tests search them for text that must never leave the client in clear.
 */
export interface Recorder {
  requests(): readonly RecordedRequest[];
  /** The requests that contain these bytes in path, headers or body (a string is searched as UTF-8). */
  containing(needle: string | Uint8Array): readonly RecordedRequest[];
  clear(): void;
}

export interface RecorderLimits {
  /** Beyond this many requests, the oldest is dropped. */
  readonly maxRequests: number;
  /** Body bytes kept per request. */
  readonly maxBodyBytes: number;
  /** Body bytes kept of all requests; beyond them, the oldest requests are dropped. */
  readonly maxTotalBytes: number;
}

/** A test must find all requests that it searches, so only the program limits the sum of their bytes. */
export const RECORDER_LIMITS: RecorderLimits = {
  maxRequests: 1000,
  maxBodyBytes: 4 * 1024 * 1024,
  maxTotalBytes: Infinity,
};

class Recording implements RecordedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly rawHeaders: readonly string[];
  readonly receivedAt = Date.now();
  readonly #chunks: Buffer[] = [];
  readonly #maxBodyBytes: number;
  /** Body bytes kept. */
  kept = 0;
  bodyBytes = 0;

  constructor(request: IncomingMessage, maxBodyBytes: number) {
    this.method = request.method ?? '';
    this.path = request.url ?? '';
    this.headers = Object.fromEntries(
      Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
    );
    this.rawHeaders = request.rawHeaders;
    this.#maxBodyBytes = maxBodyBytes;
  }

  append(chunk: Buffer): void {
    this.bodyBytes += chunk.length;
    const room = this.#maxBodyBytes - this.kept;
    if (room <= 0) return;
    const kept = chunk.subarray(0, room);
    this.#chunks.push(kept);
    this.kept += kept.length;
  }

  get body(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

/** Makes a recorder, and the tap that the server puts on every request; handlers need not know of it. */
export function createRecorder(limits: RecorderLimits = RECORDER_LIMITS): {
  recorder: Recorder;
  tap: (request: IncomingMessage) => void;
} {
  let recordings: Recording[] = [];
  return {
    recorder: {
      requests: () => [...recordings],
      containing: (needle) =>
        recordings.filter(
          ({ path, rawHeaders, body }) =>
            Buffer.from(`${path}\n${rawHeaders.join('\n')}`).includes(needle) || body.includes(needle),
        ),
      clear() {
        recordings = [];
      },
    },
    tap(request) {
      if (limits.maxRequests === 0) return;
      const recording = new Recording(request, limits.maxBodyBytes);
      recordings.push(recording);
      if (recordings.length > limits.maxRequests) recordings.shift();
      // Readable's own on('data') would start the flow. EventEmitter's `on` only listens to what the handler
      // reads.
      EventEmitter.prototype.on.call(request, 'data', (chunk: Buffer) => {
        if (!recordings.includes(recording)) return;
        recording.append(chunk);
        while (recordings.reduce((sum, { kept }) => sum + kept, 0) > limits.maxTotalBytes) recordings.shift();
      });
    },
  };
}
