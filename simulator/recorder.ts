/**
 * What the simulator keeps of the requests that reach it: their bytes, which tests search for text that must
 * not leave the client in clear, and how the inference side handled each.
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
  /** Body bytes as received, at most `MAX_BODY_BYTES` of them. */
  readonly body: Buffer;
  /** How many body bytes were received so far, kept or not. */
  readonly bodyBytes: number;
}

/** The requests that the service saw. */
export type Recorder = ReturnType<typeof createRecorder>['recorder'];

/** Body bytes kept of one request. */
const MAX_BODY_BYTES = 4 * 1024 * 1024;

/** Makes a recorder of the last requests, and the tap that the server puts on each. */
export function createRecorder(maxRequests = 1000) {
  let recordings: RecordedRequest[] = [];
  return {
    recorder: {
      requests: (): readonly RecordedRequest[] => [...recordings],
      /** Those that contain these bytes in path, headers or body (a string is searched as UTF-8). */
      containing: (needle: string | Uint8Array): readonly RecordedRequest[] =>
        recordings.filter(
          ({ path, headers, body }) =>
            Buffer.from([path, ...Object.entries(headers)].join('\n')).includes(needle) ||
            body.includes(needle),
        ),
      clear() {
        recordings = [];
      },
    },
    tap(request: IncomingMessage) {
      if (maxRequests === 0) return;
      const { method = '', url = '', headers } = request;
      const chunks: Buffer[] = [];
      const recording = {
        ...{ method, path: url, bodyBytes: 0 },
        headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)])),
        get body() {
          return Buffer.concat(chunks);
        },
      };
      recordings.push(recording);
      if (recordings.length > maxRequests) recordings.shift();
      // Readable's own on('data') would start the flow. EventEmitter's `on` only listens to what the handler
      // reads.
      EventEmitter.prototype.on.call(request, 'data', (chunk: Buffer) => {
        const room = MAX_BODY_BYTES - recording.bodyBytes;
        recording.bodyBytes += chunk.length;
        if (room > 0 && recordings.includes(recording)) chunks.push(chunk.subarray(0, room));
      });
    },
  };
}

/** How the inference side handled one request. */
export interface Exchange {
  readonly method: string;
  /** Path and query, as sent. */
  readonly target: string;
  /** Model that the decrypted body asks for; empty until it is known. */
  model: string;
  secretId: string;
  /** The beginning of the decrypted request (JSON text, or names of form fields): what the model saw. */
  opened: string;
  /** Rules of the wire that this request broke, whether it got a response or not. */
  readonly violations: string[];
  /** Faults that were armed for it. */
  readonly faults: string[];
  /** Status sent; 0 if none was. */
  status: number;
  /** Why the model had no whole response although the client was still there; empty if nothing failed. */
  failure: string;
  /** How many pieces were written: the events of a stream, or one for a unary response. */
  written: number;
  /** When the connection closed before the response was complete, because of the client or a fault; in ms. */
  closedEarlyAt?: number;
}

/** Beyond this many exchanges, the oldest is dropped. */
const MAX_EXCHANGES = 1000;

export type ExchangeLog = ReturnType<typeof createExchangeLog>['log'];

/** Makes a log, and what begins and finishes an exchange in it. */
export function createExchangeLog() {
  let exchanges: Exchange[] = [];
  let running = 0;
  return {
    log: {
      all: (): readonly Exchange[] => [...exchanges],
      last: (): Exchange | undefined => exchanges.at(-1),
      /** Every violation so far, each with the request it belongs to. Tests assert that there is none. */
      violations: (): string[] =>
        exchanges.flatMap(({ method, target, violations }) =>
          violations.map((violation) => `${method} ${target}: ${violation}`),
        ),
      /** Exchanges not finished yet. */
      inFlight: () => running,
      clear() {
        exchanges = [];
      },
    },
    begin({ method = '', url = '' }: IncomingMessage): Exchange {
      const exchange: Exchange = {
        ...{ method, target: url, model: '', secretId: '', opened: '', violations: [], faults: [] },
        ...{ status: 0, failure: '', written: 0 },
      };
      exchanges.push(exchange);
      if (exchanges.length > MAX_EXCHANGES) exchanges.shift();
      running++;
      return exchange;
    },
    finish() {
      running--;
    },
  };
}
