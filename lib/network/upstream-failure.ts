/**
 * Says in one of our errors why no upstream response came, or not all of it, and whether the request may be
 * sent again.
 */

import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';
import { CLOSED_DURING_UPLOAD, ERRNO, NO_RESPONSE, RESET } from './errno.ts';
import { describeHttp2Only } from './http2-only.ts';
import { describeTlsFailure } from './tls-failure.ts';

/**
 * Why an attempt failed before any response header. `retry`: the reason why the request may be sent again;
 * undefined: it may not.
 */
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
  readonly times: Pick<Times, 'staleWithin'>;
}

/**
 * The failure of an attempt. The request is never sent again if we ended the attempt ourselves, or after the
 * first byte of a response.
 */
export function upstreamFailure(
  thrown: unknown,
  { host, heard, reused, age, sent, times }: AttemptState,
): UpstreamFailure {
  const error = failureBeforeResponse(thrown, host, age !== undefined);
  if (thrown instanceof PrivatemodeError || heard) return new UpstreamFailure(error);
  const isStale = reused && age !== undefined && age < times.staleWithin;
  if (isStale) return new UpstreamFailure(error, 'stale_connection');
  if (error.code !== 'upstream_reset') return new UpstreamFailure(error);
  // It is chance whether such a reset shows while reading or while writing. It may hide a response: the
  // service may have sent a 413 and closed the connection.
  if (age !== undefined && !sent) return new UpstreamFailure(new PrivatemodeError(...CLOSED_DURING_UPLOAD));
  // "read: connection reset by peer" (docs/protocol/inference.md 10). In Node, only `syscall` tells it from a
  // reset while writing.
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  const readReset = code === 'ECONNRESET' && syscall === 'read';
  return new UpstreamFailure(error, readReset ? 'connection_reset' : undefined);
}

/** Codes of the operating system and of its resolver; those of Node's own errors begin with ERR_. */
const SYSTEM_CODE = /^E(?!RR_)/;

/** Turns what node:https or fetch reported before any response header into one of our errors. */
function failureBeforeResponse(thrown: unknown, host: string, connected: boolean): PrivatemodeError {
  if (thrown instanceof PrivatemodeError) return thrown;
  const refused = describeTlsFailure(thrown, host) ?? describeHttp2Only(thrown, host);
  if (refused !== undefined) return refused;
  const { code: errno = '', syscall } = thrown as NodeJS.ErrnoException;
  if (errno.startsWith('HPE_'))
    return new PrivatemodeError('response_malformed', 'the service answered with something that is not HTTP');
  const whileWriting = errno === 'ECONNRESET' && syscall === 'write';
  if (whileWriting) return new PrivatemodeError(...CLOSED_DURING_UPLOAD);
  const known = ERRNO[errno]?.service;
  if (known === undefined && !connected && SYSTEM_CODE.test(errno))
    return new PrivatemodeError('upstream_unreachable', `the service cannot be reached (${errno})`);
  return new PrivatemodeError(...(known ?? RESET.service));
}

/** The error for a response whose head did not come in time. */
export const noResponse = (): PrivatemodeError => new PrivatemodeError(...NO_RESPONSE);

/** The error for a response of which nothing more came in time. */
export const stalled = (): PrivatemodeError =>
  new PrivatemodeError('stream_idle_timeout', 'the service stopped sending in the middle of the answer');

/** The error for a response whose connection ended before it did. */
export const brokenOff = (cause?: unknown): PrivatemodeError =>
  new PrivatemodeError(
    'stream_unfinished',
    'the connection to the service broke in the middle of the answer',
    {
      cause,
    },
  );

/**
 * Calls `late` after `ms`, unless the function that it returns is called before. If the event loop was
 * blocked, timers run before sockets are read. So `late` waits until what had arrived by then is read.
 */
export function afterSilence(clock: Clock, ms: number, late: () => void): () => void {
  let cancel = clock.after(
    ms,
    () => {
      cancel = clock.after(0, late, 'waiting');
    },
    'waiting',
  );
  return () => cancel();
}
