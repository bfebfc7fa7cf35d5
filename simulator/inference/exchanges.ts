/**
 * What the inference side made of each request, beside the bytes that the recorder keeps: which rules of
 * the wire it broke, what was answered, and when the client left. Tests assert `violations()` empty.
 */

export interface Exchange {
  readonly method: string;
  /** Path and query, as sent. */
  readonly target: string;
  readonly receivedAt: number;
  /** Model asked for, from the opened body; empty until it is known. */
  model: string;
  secretId: string;
  /** The beginning of the decrypted request (JSON text, names of form fields), to tell what the model saw. */
  opened: string;
  /** Rules of the wire that this request broke, whether it was answered or not. */
  readonly violations: string[];
  /** Faults that were armed for it. */
  readonly faults: string[];
  /** Status sent; 0 if none was. */
  status: number;
  /** Why the server refused, if it did. */
  rejection: string;
  /** Why a response could not be given to its end although the client was there; empty if nothing failed. */
  failure: string;
  /** Pieces written: events of a stream, or one for a unary response. */
  written: number;
  /**
   * When the connection closed before the response was complete (the client's doing, or a fault's); wall
   * clock, ms.
   */
  closedEarlyAt: number | undefined;
  /** When the server was done with it, generation stopped; wall clock, ms. */
  finishedAt: number | undefined;
}

export interface ExchangeLog {
  all(): readonly Exchange[];
  last(): Exchange | undefined;
  /** Every violation so far, each with the request it belongs to. */
  violations(): string[];
  /** Exchanges not finished yet. */
  inFlight(): number;
  clear(): void;
}

/** The oldest exchange is forgotten beyond this many. */
const MAX_EXCHANGES = 1000;

export function createExchangeLog(): {
  log: ExchangeLog;
  begin: (method: string, target: string) => Exchange;
  finish: (exchange: Exchange) => void;
} {
  let exchanges: Exchange[] = [];
  let running = 0;
  return {
    log: {
      all: () => [...exchanges],
      last: () => exchanges.at(-1),
      violations: () =>
        exchanges.flatMap(({ method, target, violations }) =>
          violations.map((violation) => `${method} ${target}: ${violation}`),
        ),
      inFlight: () => running,
      clear() {
        exchanges = [];
      },
    },
    begin(method, target) {
      const exchange: Exchange = {
        method,
        target,
        receivedAt: Date.now(),
        model: '',
        secretId: '',
        opened: '',
        violations: [],
        faults: [],
        status: 0,
        rejection: '',
        failure: '',
        written: 0,
        closedEarlyAt: undefined,
        finishedAt: undefined,
      };
      exchanges.push(exchange);
      if (exchanges.length > MAX_EXCHANGES) exchanges.shift();
      running++;
      return exchange;
    },
    finish(exchange) {
      exchange.finishedAt = Date.now();
      running--;
    },
  };
}
