/**
 * The limits of clients, and the interface of what counts their requests and tokens: this process
 * (count-requests.ts), or a Redis that several instances share.
 */

import type { ClientEntry, Limits } from '../access/clients-file.ts';
import { PrivatemodeError } from '../errors.ts';

/** The client for which a request is counted. */
export type LimitedClient = Pick<ClientEntry, 'name' | 'limits'>;

/** The place of a running request. */
export interface Permit {
  /**
   * Called once, when the request is over. `tokens`: input and output, as the service counted them; 0 if it
   * did not say.
   */
  release(tokens: number): void;
}

export interface RequestCounts {
  /**
   * Counts a request and gives it a place; returns the permit at once if no store has to be asked.
   * Throws, or rejects with, requests_per_minute_reached, tokens_per_day_reached and max_concurrent_reached,
   * each with the seconds after which it is worth trying again, and limits_unavailable if nobody can keep
   * count. A refused request is not counted.
   */
  admit(client: LimitedClient): Permit | Promise<Permit>;
  /** Stores the counts that are not stored yet. */
  close(): Promise<void>;
}

/** Whether a value from a store is a number of requests or tokens: whole, exact and not negative. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

/** The error code of each limit, and its unit as the message names it. */
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

/**
 * The error for a request of a client that has reached `limit`. `seconds`: after so long it is worth trying
 * again; at least one.
 */
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
