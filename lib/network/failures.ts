/** Turns what Node, undici and OpenSSL report about a connection into our errors. */
import type { TLSSocket } from 'node:tls';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';

type Words = readonly [code: ErrorCode, text: string];

const RESET: Words = ['upstream_reset', 'closed the connection before it answered'];
const NOT_TLS: Words = ['upstream_unreachable', 'does not speak TLS'];
const TIMEOUT: Words = ['upstream_connect_timeout', 'could not be connected to in time'];

/** What a host did, or `the service` on the data path, by the code of the error. */
const DONE: Readonly<Record<string, Words>> = {
  ECONNREFUSED: ['upstream_unreachable', 'refused the connection'],
  ENOTFOUND: ['upstream_unreachable', 'does not resolve'],
  EAI_AGAIN: ['upstream_unreachable', 'does not resolve now'],
  ERR_SSL_WRONG_VERSION_NUMBER: NOT_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NOT_TLS,
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: [
    'upstream_http2_only',
    'offers HTTP/2 only, and this program speaks HTTP/1.1',
  ],
  ECONNRESET: RESET,
  EPIPE: RESET,
  UND_ERR_SOCKET: RESET,
  ETIMEDOUT: TIMEOUT,
  UND_ERR_CONNECT_TIMEOUT: TIMEOUT,
};
/** What this machine lacks. */
const EXHAUSTED = /^(?:EMFILE|ENFILE|EADDRNOTAVAIL)$/;
const NOTHING_LEFT: Words = [
  'resources_exhausted',
  'cannot be connected to: no file descriptor or local port is left',
];
const NOT_HTTP: Words = ['response_malformed', 'answered with something that is not HTTP'];
const CLOSED = 'the service closed the connection while the request was sent';

/** Codes for a chain that ends at no authority we trust. */
const UNKNOWN_AUTHORITY = /^(?:UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_UNTRUSTED$|CERT_SIGNATURE_FAILURE$)/;
/** The other codes of OpenSSL and Node for a refused certificate, and the words for the likely ones. */
const REFUSED = /^(?:CERT_|ERROR_IN_CERT_|INVALID_CA$|INVALID_PURPOSE$|PATH_LENGTH_EXCEEDED$)/;
const REASONS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'it has expired',
  CERT_NOT_YET_VALID: 'it is not valid yet',
  HOSTNAME_MISMATCH: 'it is for another host',
  ERR_TLS_CERT_ALTNAME_INVALID: 'it is for another host',
};
/** How the clock of this machine is wrong; it is the likeliest cause. */
const CLOCK: Readonly<Record<string, 'early' | 'late'>> = {
  CERT_NOT_YET_VALID: 'early',
  CERT_HAS_EXPIRED: 'late',
};

/** What a server showed, keyed by the error of its refusal, which undici and node:https hand on unchanged. */
const presentedBy = new WeakMap<object, string>();

/**
 * Remembers the certificate that `socket` is shown, in case Node refuses it. Node tears the connection down
 * before it reports the refusal, so this looks at 'secure', when the handshake is done and nothing is judged.
 */
export function watchCertificate(socket: TLSSocket, host: string): void {
  let presented: string | undefined;
  socket.prependListener('secure', () => {
    const { subject, issuer } = socket.getPeerCertificate() ?? {};
    presented = `${host} presented a certificate for "${nameOf(subject)}" issued by "${nameOf(issuer)}"`;
  });
  socket.prependListener('error', (error: Error) => {
    if (presented !== undefined) presentedBy.set(error, presented);
  });
}

/** The common name (else the organisation) of a certificate's party: foreign text, so printable and short. */
function nameOf(party: { readonly CN?: string | string[]; readonly O?: string | string[] } | undefined) {
  const name = [party?.CN ?? party?.O ?? 'nobody'].flat().join(', ');
  return name.replace(/[^\x20-\x7e]+/g, '?').slice(0, 100);
}

/**
 * The error for a certificate that was refused, upstream_tls_untrusted: who showed which, and what to do.
 * Undefined if `thrown` is about something else. `host` is the name if the connection was not one of ours.
 */
export function describeRefusal(thrown: unknown, host: string): PrivatemodeError | undefined {
  if (!(thrown instanceof Error) || thrown instanceof PrivatemodeError) return undefined;
  const { code = '' } = thrown as NodeJS.ErrnoException;
  const what = presentedBy.get(thrown) ?? `${host} presented a certificate`;
  const untrusted = (text: string, options?: object): PrivatemodeError =>
    new PrivatemodeError('upstream_tls_untrusted', text, { ...options, cause: thrown });
  if (UNKNOWN_AUTHORITY.test(code)) return untrusted(`certificate signed by unknown authority: ${what}`);
  const reason = REASONS[code];
  if (reason === undefined && !REFUSED.test(code)) return describeRefusal(thrown.cause, host);
  const clock = CLOCK[code];
  const more = clock && { remedy: CLOCK_REMEDY, detail: { clock } };
  return untrusted(`${what} that is refused: ${reason ?? code}`, more);
}

/** What a call of the control path threw, as our error about `host`. An error without a code stays. */
export function transportError(host: string, thrown: unknown): unknown {
  if (thrown instanceof PrivatemodeError) return thrown;
  const { code } = (thrown ?? {}) as { readonly code?: unknown };
  const refused = describeRefusal(thrown, host);
  if (refused !== undefined || typeof code !== 'string') return refused ?? thrown;
  return did(host, DONE[code] ?? noWay(code), thrown);
}

const noWay = (code: string): Words => ['upstream_unreachable', `cannot be reached (${code})`];

const did = (host: string, [code, text]: Words, cause: unknown): PrivatemodeError =>
  new PrivatemodeError(code, `${host} ${text}`, { cause });

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
 * The failure of an attempt, from what node:https or fetch threw or the error with which we ended it. The
 * request is never sent again if we ended the attempt ourselves, or after the first byte of a response.
 */
export function upstreamFailure(thrown: unknown, state: AttemptState): UpstreamFailure {
  if (thrown instanceof PrivatemodeError) return new UpstreamFailure(thrown);
  const { host, heard, reused, age, sent, times } = state;
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  let error = beforeResponse(thrown, host, age !== undefined);
  const whileWriting = code === 'EPIPE' || (code === 'ECONNRESET' && syscall === 'write');
  // It is chance whether a reset shows while reading or while writing. During the upload it may hide a
  // response: the service may have sent a 413 and closed the connection.
  if (whileWriting || (error.code === 'upstream_reset' && age !== undefined && !sent))
    error = new PrivatemodeError('upstream_closed_during_upload', CLOSED);
  if (heard) return new UpstreamFailure(error);
  if (reused && age !== undefined && age < times.staleWithin)
    return new UpstreamFailure(error, 'stale_connection');
  // "read: connection reset by peer" (docs/protocol/inference.md 10). In Node, only `syscall` tells it from a
  // reset while writing.
  const readReset = error.code === 'upstream_reset' && code === 'ECONNRESET' && syscall === 'read';
  return new UpstreamFailure(error, readReset ? 'connection_reset' : undefined);
}

/** What node:https or fetch reported before any response header. `connected`: there was a connection. */
function beforeResponse(thrown: unknown, host: string, connected: boolean): PrivatemodeError {
  const { code = '' } = thrown as NodeJS.ErrnoException;
  const here = EXHAUSTED.test(code) ? NOTHING_LEFT : code.startsWith('HPE_') ? NOT_HTTP : undefined;
  const words = here ?? DONE[code] ?? (connected || code === '' ? RESET : noWay(code));
  return describeRefusal(thrown, host) ?? did('the service', words, undefined);
}

/** The error for a response whose head did not come in time. */
export const noResponse = (): PrivatemodeError =>
  new PrivatemodeError('first_byte_timeout', 'the service did not begin to answer in time');

/** The error for a response of which nothing more came in time. */
export const stalled = (): PrivatemodeError =>
  new PrivatemodeError('stream_idle_timeout', 'the service stopped sending in the middle of the answer');

/** The error for a response whose connection ended before it did. */
export const brokenOff = (cause?: unknown): PrivatemodeError => {
  const message = 'the connection to the service broke in the middle of the answer';
  return new PrivatemodeError('stream_unfinished', message, { cause });
};
