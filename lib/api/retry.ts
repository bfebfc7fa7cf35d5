/**
 * When a request is tried a second time, and how (docs/protocol/inference.md 10; at most one retry of any kind).
 * Nothing else is ever sent twice: a retry can run the inference twice.
 */
export interface RetryRow {
  readonly id: 'no_secret' | 'connection_reset' | 'stale_connection';
  readonly why: string;
  /** ms to wait before the second attempt. */
  readonly delay: number;
  /** Replace the secret first: the service has forgotten it. */
  readonly renew: boolean;
  /** Use a connection of its own. */
  readonly fresh: boolean;
}

export const RETRIES: readonly RetryRow[] = [
  { id: 'no_secret', why: 'the service does not know the secret', delay: 0, renew: true, fresh: false },
  {
    id: 'connection_reset',
    why: 'the connection was reset while reading',
    delay: 50,
    renew: false,
    fresh: true,
  },
  { id: 'stale_connection', why: 'an idle connection had been closed', delay: 0, renew: false, fresh: true },
];

const NO_SECRET = 'no secret for ID';

/** The row for an answer that the service marked as unencrypted, or undefined. */
export const retryForAnswer = (status: number, plainBody: string): RetryRow | undefined =>
  status === 500 && plainBody.includes(NO_SECRET) ? retryForFailure('no_secret') : undefined;

/** The row for a connection that failed before a response began; undefined where it must not be tried again. */
export const retryForFailure = (failure: RetryRow['id'] | undefined): RetryRow | undefined =>
  RETRIES.find(({ id }) => id === failure);
