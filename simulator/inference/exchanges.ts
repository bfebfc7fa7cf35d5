/**
 * A log of how the inference side handled each request: the rules of the wire that the request broke, the
 * response, and when the client left. The recorder keeps the bytes. Tests assert that `violations()` is
 * empty.
 */

export interface Exchange {
  readonly method: string;
  /** Path and query, as sent. */
  readonly target: string;
  readonly receivedAt: number;
  /** Model that the decrypted body asks for; empty until it is known. */
  model: string;
  secretId: string;
  /**
   * The beginning of the decrypted request (JSON text, or names of form fields), to show what the model saw.
   */
  opened: string;
  /** Rules of the wire that this request broke, whether it got a response or not. */
  readonly violations: string[];
  /** Faults that were armed for it. */
  readonly faults: string[];
  /** Status sent; 0 if none was. */
  status: number;
  /** Why the server refused, if it did. */
  rejection: string;
  /**
   * Why the model's response could not be had or completed although the client was still there; empty if
   * nothing failed.
   */
  failure: string;
  /** How many pieces were written: the events of a stream, or one for a unary response. */
  written: number;
  /**
   * When the connection closed before the response was complete, because of the client or a fault; wall
   * clock, ms.
   */
  closedEarlyAt: number | undefined;
  /** When the server had finished the exchange and stopped generating; wall clock, ms. */
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

/** Beyond this many exchanges, the oldest is dropped. */
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
