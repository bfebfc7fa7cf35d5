/**
 * What a client may use of the gateway in a time, and what keeps count of it: this process (count-requests.ts), the process of the
 * primary for its workers, or a Redis that several replicas share.
 */

import type { ClientEntry, Limits } from '../clients/clients-file.ts';
import { PrivatemodeError } from '../errors.ts';

/** The client for which a request is counted. */
export type LimitedClient = Pick<ClientEntry, 'name' | 'limits'>;

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

/** Whether what a store gives back is a number of requests or tokens: whole, exact and not negative. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

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
