/** Why no upstream response came, in an error of ours, and whether the request may be sent again. */
import { PrivatemodeError } from '../errors.ts';
import { describeTlsFailure } from '../network/tls-failure.ts';

/** Why an attempt failed before any response header. */
export class UpstreamFailure extends Error {
  readonly error: PrivatemodeError;
  /** The row of the retry table (`api/retry.ts`) that this failure matches, if any. */
  readonly retry: 'connection_reset' | 'stale_connection' | undefined;

  constructor(error: PrivatemodeError, retry: UpstreamFailure['retry']) {
    super(error.message, { cause: error });
    this.error = error;
    this.retry = retry;
  }
}

/** What is known of an attempt when it fails. */
export interface AttemptState {
  /** Whether any byte of a response has come, an informational one included. */
  readonly heard: boolean;
  /** Whether it went out on a connection that had been used before. */
  readonly reused: boolean;
  /** ms since it had a connection; undefined: it never had one. */
  readonly age: number | undefined;
  /** Whether the request has left completely. */
  readonly sent: boolean;
}

/** ms in which a connection that was closed while it idled is found out. A remote that thought longer was alive. */
const STALE_WITHIN = 2_000;

/** The failure of an attempt. What we ended ourselves is never sent again, and nothing after the first byte of a response. */
export function upstreamFailure(
  thrown: unknown,
  { heard, reused, age, sent }: AttemptState,
): UpstreamFailure {
  const { error, connectionReset } = transportError(thrown);
  if (thrown instanceof PrivatemodeError || heard) return new UpstreamFailure(error, undefined);
  if (reused && age !== undefined && age < STALE_WITHIN)
    return new UpstreamFailure(error, 'stale_connection');
  // Whether such a reset is seen by reading or by writing is chance. It may hide a response: 413, and closed.
  if (age !== undefined && !sent && error.code === 'upstream_reset') {
    return new UpstreamFailure(closedDuringUpload(), undefined);
  }
  return new UpstreamFailure(error, connectionReset ? 'connection_reset' : undefined);
}

const message = (code: ConstructorParameters<typeof PrivatemodeError>[0], text: string) => () =>
  new PrivatemodeError(code, text);

const closedDuringUpload = message(
  'upstream_closed_during_upload',
  'the service closed the connection while the request was sent',
);
const reset = message('upstream_reset', 'the service closed the connection before it answered');
const noRoute = message('upstream_unreachable', 'no route to the service');
const exhausted = (what: string) =>
  message('resources_exhausted', `no ${what} is left for a connection to the service`);

/** By the code of Node's error; what is not here is a reset. */
const BY_CODE: Readonly<Record<string, () => PrivatemodeError>> = {
  ECONNREFUSED: message('upstream_unreachable', 'the service refused the connection'),
  ENOTFOUND: message('upstream_unreachable', 'the host name of the service does not resolve'),
  EAI_AGAIN: message('upstream_unreachable', 'the host name of the service does not resolve now'),
  EHOSTUNREACH: noRoute,
  ENETUNREACH: noRoute,
  ETIMEDOUT: message('upstream_connect_timeout', 'the connection to the service timed out'),
  EPIPE: closedDuringUpload,
  EMFILE: exhausted('file descriptor'),
  ENFILE: exhausted('file descriptor'),
  EADDRNOTAVAIL: exhausted('local port'),
};

/**
 * Translates what node:https reported before any response header into one of our errors. `connectionReset` is true for a
 * reset seen while reading (docs/protocol/inference.md 10: "read: connection reset by peer"): Node tells it from one seen
 * while writing by its `syscall` alone.
 */
function transportError(thrown: unknown): { error: PrivatemodeError; connectionReset: boolean } {
  if (thrown instanceof PrivatemodeError) return { error: thrown, connectionReset: false };
  const tls = describeTlsFailure(thrown);
  if (tls !== undefined) return { error: tls, connectionReset: false };
  const { code = '', syscall } = thrown as NodeJS.ErrnoException;
  if (code === 'ECONNRESET' && syscall === 'read') return { error: reset(), connectionReset: true };
  if (code === 'ECONNRESET' && syscall === 'write')
    return { error: closedDuringUpload(), connectionReset: false };
  if (code.startsWith('HPE_')) {
    const notHttp = 'the service answered with something that is not HTTP';
    return { error: new PrivatemodeError('response_malformed', notHttp), connectionReset: false };
  }
  return { error: (BY_CODE[code] ?? reset)(), connectionReset: false };
}
