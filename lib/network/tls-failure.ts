/**
 * Explains why TLS refused the certificate of a server: which host showed which certificate, and what to do.
 */
import type { TLSSocket } from 'node:tls';
import { CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';

/**
 * What a server showed, keyed by the error that its refusal raised. That error travels through undici and
 * node:https unchanged.
 */
const presentedBy = new WeakMap<object, string>();

/** Codes for a chain that ends at no authority we trust. */
const UNKNOWN_AUTHORITY: ReadonlySet<string> = new Set([
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'CERT_UNTRUSTED',
  'CERT_SIGNATURE_FAILURE',
]);

/** The other results of OpenSSL's verification and of Node's own, as text. */
const REFUSALS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'it has expired',
  CERT_NOT_YET_VALID: 'it is not valid yet',
  CRL_HAS_EXPIRED: 'its revocation list has expired',
  CRL_NOT_YET_VALID: 'its revocation list is not valid yet',
  CERT_REVOKED: 'it was revoked',
  CERT_REJECTED: 'it was rejected',
  CERT_CHAIN_TOO_LONG: 'its chain is too long',
  PATH_LENGTH_EXCEEDED: 'its chain is longer than its issuer allows',
  INVALID_CA: 'its issuer is not a certificate authority',
  INVALID_PURPOSE: 'it is not meant for servers',
  ERROR_IN_CERT_NOT_BEFORE_FIELD: 'its dates cannot be read',
  ERROR_IN_CERT_NOT_AFTER_FIELD: 'its dates cannot be read',
  HOSTNAME_MISMATCH: 'it is for another host',
  ERR_TLS_CERT_ALTNAME_INVALID: 'it is for another host',
};
/** Codes whose likeliest cause is a wrong clock of this machine, which no CA bundle mends. */
const OUT_OF_TIME: ReadonlyMap<string, 'early' | 'late'> = new Map([
  ['CERT_HAS_EXPIRED', 'late'],
  ['CERT_NOT_YET_VALID', 'early'],
  ['CRL_HAS_EXPIRED', 'late'],
  ['CRL_NOT_YET_VALID', 'early'],
]);

/**
 * Remembers the certificate that `socket` is shown, in case Node refuses it. Node tears the connection down
 * before it reports the refusal. So this looks earlier: at 'secure', when the handshake is done and nothing
 * is judged yet.
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

/**
 * Turns the refusal of a certificate into upstream_tls_untrusted, which says which host presented what, and
 * what to do. Undefined if `thrown` is about something else. `host` is the name if the connection was not one
 * of ours.
 */
export function describeTlsFailure(thrown: unknown, host = 'the server'): PrivatemodeError | undefined {
  if (!(thrown instanceof Error) || thrown instanceof PrivatemodeError) return undefined;
  const code = (thrown as NodeJS.ErrnoException).code ?? '';
  const what = presentedBy.get(thrown) ?? `${host} presented a certificate`;
  const untrusted = (message: string, options?: object): PrivatemodeError =>
    new PrivatemodeError('upstream_tls_untrusted', message, { ...options, cause: thrown });
  if (UNKNOWN_AUTHORITY.has(code)) return untrusted(`certificate signed by unknown authority: ${what}`);
  if (!Object.hasOwn(REFUSALS, code)) return describeTlsFailure(thrown.cause, host);
  const refused = `${what} that is refused: ${REFUSALS[code]}`;
  const clock = OUT_OF_TIME.get(code);
  if (clock === undefined) return untrusted(refused);
  const [day, time = ''] = new Date().toISOString().split('T');
  // To the hour, because the log has one line for as long as the message stays the same.
  const advice = `Check the clock of this machine, which says ${day}, past ${time.slice(0, 2)}:00 UTC`;
  return untrusted(`${refused}. ${advice}`, { remedy: CLOCK_REMEDY, detail: { clock } });
}

/** The common name (else the organisation) of a certificate's party: foreign text, so printable and short. */
function nameOf(party: { readonly CN?: string | string[]; readonly O?: string | string[] } | undefined) {
  const name = [party?.CN ?? party?.O ?? 'nobody'].flat().join(', ');
  return name.replace(/[^\x20-\x7e]+/g, '?').slice(0, 100);
}
