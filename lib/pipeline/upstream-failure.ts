import { PrivatemodeError } from '../errors.ts';
import { classifyTransportError, closedDuringUpload } from './transport-errors.ts';

/** Why an attempt failed before any response header. */
export class UpstreamFailure extends Error {
  readonly error: PrivatemodeError;
  /** The row of the retry table this failure matches, if any. */
  readonly retry: 'connection_reset' | 'stale_connection' | undefined;

  constructor(error: PrivatemodeError, retry: UpstreamFailure['retry']) {
    super(error.message, { cause: error });
    this.error = error;
    this.retry = retry;
  }
}

/** What is known of an attempt when it fails. */
export interface AttemptState {
  /** Whether any byte of an answer has come, an informational one included. */
  readonly answered: boolean;
  /** Whether it went out on a connection that had been used before. */
  readonly reused: boolean;
  /** ms since it had a connection; undefined: it never had one. */
  readonly age: number | undefined;
  /** Whether the request has left completely. */
  readonly sent: boolean;
}

/** ms in which a connection that was closed while it idled is found out. A remote that thought longer was alive. */
const STALE_WITHIN = 2_000;

/**
 * The failure of an attempt, and whether it may be tried again (trap 3 and 4): what we ended ourselves never, and
 * nothing after the first byte of an answer.
 */
export function failureOf(thrown: unknown, { answered, reused, age, sent }: AttemptState): UpstreamFailure {
  const { error, connectionReset } = classifyTransportError(thrown);
  if (thrown instanceof PrivatemodeError || answered) return new UpstreamFailure(error, undefined);
  if (reused && age !== undefined && age < STALE_WITHIN)
    return new UpstreamFailure(error, 'stale_connection');
  // Whether such a reset is seen by reading or by writing is chance. It may hide an answer: 413, and closed (trap 6).
  if (age !== undefined && !sent && error.code === 'upstream_reset') {
    return new UpstreamFailure(closedDuringUpload(), undefined);
  }
  return new UpstreamFailure(error, connectionReset ? 'connection_reset' : undefined);
}
