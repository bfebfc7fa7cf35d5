/** Why no upstream response came, or not all of it, in an error of ours, and whether the request may be sent again. */

import { PrivatemodeError } from '../errors.ts';
import { CLOSED_DURING_UPLOAD, ERRNO, NO_RESPONSE, RESET } from './errno.ts';
import { describeHttp2Only } from './http2-only.ts';
import { describeTlsFailure } from './tls-failure.ts';

/** Why an attempt failed before any response header; `retry`: what shows that the request may be sent again, if anything does. */
export class UpstreamFailure extends PrivatemodeError {
  declare readonly retry: 'connection_reset' | 'stale_connection' | undefined;

  constructor(error: PrivatemodeError, retry?: UpstreamFailure['retry']) {
    super(error.code, error.message, error);
    if (retry !== undefined) this.retry = retry;
  }
}

/** The facts about an attempt when it fails. */
interface AttemptState {
  readonly host: string;
  readonly heard: boolean; // any byte of a response, an informational one included
  readonly reused: boolean; // a connection that had been used before, or opened ahead
  readonly age: number | undefined; // ms since it had a connection; undefined: it never had one
  readonly sent: boolean; // the request has left completely
}

/** ms in which a connection that was closed while it idled is found out. A remote that thought longer was alive. */
const STALE_WITHIN = 2_000;

/** The failure of an attempt. What we ended ourselves is never sent again, and nothing after the first byte of a response. */
export function upstreamFailure(
  thrown: unknown,
  { host, heard, reused, age, sent }: AttemptState,
): UpstreamFailure {
  const error = failureBeforeResponse(thrown, host);
  if (thrown instanceof PrivatemodeError || heard) return new UpstreamFailure(error);
  const isStale = reused && age !== undefined && age < STALE_WITHIN;
  if (isStale) return new UpstreamFailure(error, 'stale_connection');
  if (error.code !== 'upstream_reset') return new UpstreamFailure(error);
  // Whether such a reset is seen by reading or by writing is chance. It may hide a response: 413, and closed.
  if (age !== undefined && !sent) return new UpstreamFailure(new PrivatemodeError(...CLOSED_DURING_UPLOAD));
  // "read: connection reset by peer" (docs/protocol/inference.md 10). Node tells it from one seen while writing by `syscall` alone.
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  const readReset = code === 'ECONNRESET' && syscall === 'read';
  return new UpstreamFailure(error, readReset ? 'connection_reset' : undefined);
}

/** What node:https or fetch reported before any response header, as one of our errors. */
function failureBeforeResponse(thrown: unknown, host: string): PrivatemodeError {
  if (thrown instanceof PrivatemodeError) return thrown;
  const refused = describeTlsFailure(thrown, host) ?? describeHttp2Only(thrown, host);
  if (refused !== undefined) return refused;
  const { code: errno = '', syscall } = thrown as NodeJS.ErrnoException;
  if (errno.startsWith('HPE_'))
    return new PrivatemodeError('response_malformed', 'the service answered with something that is not HTTP');
  const whileWriting = errno === 'ECONNRESET' && syscall === 'write';
  const words = whileWriting ? CLOSED_DURING_UPLOAD : (ERRNO[errno]?.service ?? RESET.service);
  return new PrivatemodeError(...words);
}

/** The head of a response did not come in time. */
export const noResponse = (): PrivatemodeError => new PrivatemodeError(...NO_RESPONSE);

/** Nothing more of a response came in time. */
export const stalled = (): PrivatemodeError =>
  new PrivatemodeError('stream_idle_timeout', 'the service stopped sending in the middle of the answer');

/** The connection ended before the response did. */
export const brokenOff = (cause?: unknown): PrivatemodeError =>
  new PrivatemodeError(
    'stream_unfinished',
    'the connection to the service broke in the middle of the answer',
    {
      cause,
    },
  );

/** ms in which the rest of a response that is complete must end, for its connection to be used again. */
export const LINGER = 5_000;
