/**
 * What a client may use of the gateway in a time, and what keeps count of it: this process (count-requests.ts), the process of the
 * primary for its workers, or a Redis that several replicas share.
 */

import { PrivatemodeError } from '../errors.ts';

/** Of one client; undefined: no limit. */
export interface Limits {
  /** Requests that are admitted within any 60 s. */
  readonly requestsPerMinute: number | undefined;
  /** Tokens in and out of a day (UTC). A request is admitted while fewer are counted, so the last one may go beyond. */
  readonly tokensPerDay: number | undefined;
  /** Requests that run at the same time. */
  readonly maxConcurrent: number | undefined;
}

/** The form of a client's name, which appears in logs, receipts and the names of keys. */
export const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

/** The client for which a request is counted. */
export interface LimitedClient {
  readonly name: string;
  readonly limits: Limits;
}

/** The place of a request that runs. */
export interface Permit {
  /** To be called once, when the request is over. `tokens`: in and out, as the service counted them; 0 where it did not say. */
  release(tokens: number): void;
}

export interface RequestCounts {
  /**
   * Counts a request and gives it a place, at once where that needs nobody else. Throws, or rejects with, requests_per_minute_reached,
   * tokens_per_day_reached and max_concurrent_reached, each with the seconds after which it is worth trying again, and
   * limits_unavailable where nobody can keep count. A request that is refused is not counted.
   */
  admit(client: LimitedClient): Permit | Promise<Permit>;
  /** Stores what is not stored yet. */
  close(): Promise<void>;
}

/** The unit of each limit, as its refusal names it. */
const LIMITS = {
  tokensPerDay: { code: 'tokens_per_day_reached', one: 'token per day (UTC)', more: 'tokens per day (UTC)' },
  requestsPerMinute: {
    code: 'requests_per_minute_reached',
    one: 'request per minute',
    more: 'requests per minute',
  },
  maxConcurrent: {
    code: 'max_concurrent_reached',
    one: 'request at the same time',
    more: 'requests at the same time',
  },
} as const satisfies Record<keyof Limits, unknown>;

/** What refuses a request of a client that has reached `limit`. `seconds`: after so long it is worth trying again; at least one. */
export function limitReached(limit: keyof Limits, limits: Limits, seconds: number): PrivatemodeError {
  const { code, one, more } = LIMITS[limit];
  const most = limits[limit];
  return new PrivatemodeError(
    code,
    `this client has reached its limit of ${most} ${most === 1 ? one : more}`,
    {
      retryAfter: Math.max(1, Math.ceil(seconds)),
    },
  );
}
