/** Turns failures that Node, undici, OpenSSL and the service report into our errors. */
import type { TLSSocket } from 'node:tls';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';

type Row = readonly [codes: RegExp, code: ErrorCode, text: string];
const HTTP2_ONLY = 'offers HTTP/2 only, and this program speaks HTTP/1.1';
const NOTHING_LEFT = 'cannot be connected to: no file descriptor or local port is left';
// The agent pi asks again only after words that it knows, such as "connection lost".
const BROKEN_OFF = 'connection lost: the service broke off in the middle of the answer';
const CLOSED = 'the service closed the connection while the request was sent';

/** For each code of an error: our code, and what the host did, in words that follow the host's name. */
const DONE: readonly Row[] = [
  [/^(?:HPE_|HTTPParserError$)/, 'response_malformed', 'answered with something that is not HTTP'],
  [/^ECONNREFUSED$/, 'upstream_unreachable', 'refused the connection'],
  [/^ENOTFOUND$/, 'upstream_unreachable', 'does not resolve'],
  [/^EAI_AGAIN$/, 'upstream_unreachable', 'does not resolve now'],
  [/^ERR_SSL_(?:WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)$/, 'upstream_unreachable', 'does not speak TLS'],
  [/^ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL$/, 'upstream_http2_only', HTTP2_ONLY],
  [/^(?:ECONNRESET|EPIPE|UND_ERR_SOCKET)$/, 'upstream_reset', 'closed the connection before it answered'],
  [/^(?:ETIMED|UND_ERR_CONNECT_TIME)OUT$/, 'upstream_connect_timeout', 'could not be connected to in time'],
];
/** The rows for requests. Attestation, which is tried again (lib/session/epoch.ts), needs DONE alone. */
const DONE_TO_REQUEST: readonly Row[] = [
  [/^(?:EMFILE|ENFILE|EADDRNOTAVAIL)$/, 'resources_exhausted', NOTHING_LEFT],
  ...DONE,
];

function did(host: string, code: string, rows: readonly Row[], cause?: unknown): PrivatemodeError {
  const row = rows.find(([codes]) => codes.test(code));
  const [, ours, text] = row ?? ([code, 'upstream_unreachable', `cannot be reached (${code})`] as const);
  return new PrivatemodeError(ours, `${host} ${text}`, { cause });
}

const UNKNOWN_AUTHORITY = /^(?:UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_UNTRUSTED$|CERT_SIGNATURE_FAILURE$)/;
/** Refused certificates: codes of OpenSSL and Node, the reason, and whether our clock is early or late. */
const REFUSALS: readonly (readonly [codes: RegExp, reason?: string, clock?: 'early' | 'late'])[] = [
  [UNKNOWN_AUTHORITY],
  [/^CERT_HAS_EXPIRED$/, 'it has expired', 'late'],
  [/^CERT_NOT_YET_VALID$/, 'it is not valid yet', 'early'],
  [/^(?:HOSTNAME_MISMATCH|ERR_TLS_CERT_ALTNAME_INVALID)$/, 'it is for another host'],
  [/^(?:CERT_|ERROR_IN_CERT_|INVALID_CA$|INVALID_PURPOSE$|PATH_LENGTH_EXCEEDED$)/],
];

/** Words about a refused certificate, by the error. Undici and node:https pass on this error unchanged. */
const presentedBy = new WeakMap<object, string>();

/** Remembers the certificate of the other end. When Node reports a refusal, the socket has lost it. */
export function watchCertificate(socket: TLSSocket, host: string): TLSSocket {
  let presented: string | undefined;
  socket.prependListener('secure', () => {
    const { subject, issuer } = socket.getPeerCertificate() ?? {};
    presented = `${host} presented a certificate for "${nameOf(subject)}" issued by "${nameOf(issuer)}"`;
  });
  return socket.prependListener('error', (error: Error) => {
    if (presented !== undefined) presentedBy.set(error, presented);
  });
}

/** The name in a certificate, as short and printable text, whatever the certificate contains. */
function nameOf(party: Partial<Record<'CN' | 'O', string | string[]>> | undefined) {
  const name = [party?.CN ?? party?.O ?? 'nobody'].flat().join(', ');
  return name.replace(/[^\x20-\x7e]+/g, '?').slice(0, 100);
}

/** Returns upstream_tls_untrusted if the error is about a certificate of `host`, else undefined. */
export function describeRefusal(thrown: unknown, host: string): PrivatemodeError | undefined {
  if (!(thrown instanceof Error) || thrown instanceof PrivatemodeError) return undefined;
  const { code = '' } = thrown as NodeJS.ErrnoException;
  const row = REFUSALS.find(([codes]) => codes.test(code));
  if (row === undefined) return describeRefusal(thrown.cause, host);
  const [, reason = code, clock] = row;
  const what = presentedBy.get(thrown) ?? `${host} presented a certificate`;
  const text = UNKNOWN_AUTHORITY.test(code)
    ? `certificate signed by unknown authority: ${what}`
    : `${what} that is refused: ${reason}`;
  const more = clock && { remedy: CLOCK_REMEDY, detail: { clock } };
  return new PrivatemodeError('upstream_tls_untrusted', text, { ...more, cause: thrown });
}

/** Turns what a control call threw into our error about `host`. An error without a code stays as it is. */
export function transportError(host: string, thrown: unknown): unknown {
  if (thrown instanceof PrivatemodeError) return thrown;
  const { code, name } = (thrown ?? {}) as { readonly code?: unknown; readonly name?: unknown };
  const known = code ?? (name === 'HTTPParserError' ? name : undefined); // undici may leave out its code
  const error = typeof known === 'string' ? did(host, known, DONE, thrown) : thrown;
  return describeRefusal(thrown, host) ?? error;
}

/** Why an attempt failed before any response header. `retry`: the reason to repeat the attempt, if any. */
export class UpstreamFailure extends PrivatemodeError {
  declare readonly retry: 'connection_reset' | 'stale_connection' | undefined;

  constructor(error: PrivatemodeError, retry?: UpstreamFailure['retry']) {
    super(error.code, error.message, error);
    if (retry !== undefined) this.retry = retry;
  }
}

interface AttemptState {
  readonly host: string;
  readonly heard: boolean; // whether a byte of a response has come, even of an informational response
  readonly reused: boolean; // whether the connection had been used before, or opened ahead
  readonly age: number | undefined; // ms since the attempt got a connection; undefined if it got none
  readonly sent: boolean; // whether the request was sent completely
  readonly times: Pick<Times, 'staleWithin'>;
}

/** Makes an attempt's failure from an error of node:https or fetch, or from our error that ended it. */
export function upstreamFailure(thrown: unknown, { host, heard, reused, age, sent, times }: AttemptState) {
  if (thrown instanceof PrivatemodeError) return new UpstreamFailure(thrown);
  const { code = '', syscall } = thrown as NodeJS.ErrnoException;
  const hasRow = DONE_TO_REQUEST.some(([codes]) => codes.test(code));
  // Once there was a connection, an unknown code counts as a reset.
  const known = hasRow || (age === undefined && code !== '') ? code : 'ECONNRESET';
  let error = describeRefusal(thrown, host) ?? did('the service', known, DONE_TO_REQUEST);
  const whileWriting = code === 'EPIPE' || (code === 'ECONNRESET' && syscall === 'write');
  // Either a read or a write reports the reset. A reset may hide a response (docs/architecture.md H6).
  if (whileWriting || (error.code === 'upstream_reset' && age !== undefined && !sent))
    error = new PrivatemodeError('upstream_closed_during_upload', CLOSED);
  if (heard) return new UpstreamFailure(error);
  if (reused && age !== undefined && age < times.staleWithin)
    return new UpstreamFailure(error, 'stale_connection');
  // The reference retries after "read: connection reset by peer" (docs/protocol/inference.md 10).
  const readReset = error.code === 'upstream_reset' && code === 'ECONNRESET' && syscall === 'read';
  return new UpstreamFailure(error, readReset ? 'connection_reset' : undefined);
}

export const noConnection = () =>
  new PrivatemodeError('upstream_connect_timeout', 'no connection to the service in time');
export const noResponse = () =>
  new PrivatemodeError('first_byte_timeout', 'the service did not begin to answer in time');
export const stalled = () =>
  new PrivatemodeError('stream_idle_timeout', 'the service stopped sending in the middle of the answer');
export const brokenOff = (cause?: unknown) =>
  new PrivatemodeError('stream_unfinished', BROKEN_OFF, { cause });

/** Limit in bytes: an error that asks for a newer client is short, so a longer body is not searched. */
export const MOST_SEARCHED = 4096;
/** The version in an error that asks for a newer client: docs/protocol/inference.md 11. */
const MINIMUM = /\bminimum (?:client )?version v(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)(?![\w.]*\w)/i;

/** Returns client_too_old if a newer client is wanted. Only digits of an unauthenticated error are quoted. */
export function clientTooOld(body: Uint8Array, announced: string): PrivatemodeError | undefined {
  if (body.length > MOST_SEARCHED) return undefined;
  const message = new TextDecoder('latin1').decode(body);
  const wanted = MINIMUM.exec(message)?.[1];
  if (wanted === undefined) return undefined;
  const text = `the service says, in a text that nothing authenticates, that it wants a client of version ${wanted} or newer; this one announces ${announced}`;
  return new PrivatemodeError('client_too_old', text);
}
