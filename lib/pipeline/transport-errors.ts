import { PrivatemodeError } from '../errors.ts';
import { describeTlsFailure } from '../network/outbound.ts';

interface NodeError extends Error {
  readonly code?: string;
  readonly syscall?: string;
}

/** Errno → what to tell the client. `read`/`write` variants of ECONNRESET are told apart by syscall (trap 3). */
const BY_CODE: Record<string, () => PrivatemodeError> = {
  ECONNREFUSED: () => new PrivatemodeError('upstream_unreachable', 'the service refused the connection'),
  ENOTFOUND: () =>
    new PrivatemodeError('upstream_unreachable', 'the host name of the service does not resolve'),
  EAI_AGAIN: () =>
    new PrivatemodeError('upstream_unreachable', 'the host name of the service does not resolve now'),
  EHOSTUNREACH: () => new PrivatemodeError('upstream_unreachable', 'no route to the service'),
  ENETUNREACH: () => new PrivatemodeError('upstream_unreachable', 'no route to the service'),
  ETIMEDOUT: () =>
    new PrivatemodeError('upstream_connect_timeout', 'the connection to the service timed out'),
  EPIPE: () => closedDuringUpload(),
  EMFILE: () => exhausted('file descriptor'),
  ENFILE: () => exhausted('file descriptor'),
  EADDRNOTAVAIL: () => exhausted('local port'),
};

/**
 * Translates what node:https reported before any response header into one of our errors.
 * `connectionReset` is true for a reset seen while reading, the one transport error that may be tried again
 * (inference.md section 10: "read: connection reset by peer").
 */
export function classifyTransportError(thrown: unknown): {
  error: PrivatemodeError;
  connectionReset: boolean;
} {
  if (thrown instanceof PrivatemodeError) return { error: thrown, connectionReset: false };
  const { code, syscall } = thrown as NodeError;
  const tls = describeTlsFailure(thrown);
  if (tls !== undefined) return { error: tls, connectionReset: false };
  if (code === 'ECONNRESET' && syscall === 'read') return { error: reset(), connectionReset: true };
  if (code === 'ECONNRESET' && syscall === 'write')
    return { error: closedDuringUpload(), connectionReset: false };
  if (code?.startsWith('HPE_')) return { error: notHttp(), connectionReset: false };
  const known = code === undefined ? undefined : BY_CODE[code];
  return { error: known === undefined ? reset() : known(), connectionReset: false };
}

const exhausted = (what: string): PrivatemodeError =>
  new PrivatemodeError('resources_exhausted', `no ${what} is left for a connection to the service`);

const reset = (): PrivatemodeError =>
  new PrivatemodeError('upstream_reset', 'the service closed the connection before it answered');

const notHttp = (): PrivatemodeError =>
  new PrivatemodeError('response_malformed', 'the service answered with something that is not HTTP');

export const closedDuringUpload = (): PrivatemodeError =>
  new PrivatemodeError(
    'upstream_closed_during_upload',
    'the service closed the connection while the request was sent',
  );
