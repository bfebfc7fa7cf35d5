import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** What went wrong, by the code of the error; only evidence that fails is a failed attestation. */
const CAUSES: Readonly<Partial<Record<ErrorCode, string>>> = {
  upstream_unreachable: 'The service cannot be reached',
  upstream_connect_timeout: 'The service does not answer in time',
  upstream_reset: 'The service closed the connection',
  upstream_redirect: 'The service answered with a redirect',
  upstream_tls_untrusted: 'A TLS certificate is not trusted',
  control_api_failed: 'The service answered with an error',
  api_key_rejected: 'The service does not accept the API key',
  manifest_unavailable: 'The manifest cannot be fetched',
  manifest_mismatch: 'The service does not run under the expected manifest',
  manifest_unsupported: 'The manifest needs a newer version of this program',
  manifest_invalid: 'The manifest cannot be used',
  manifest_log_failed: 'The workspace cannot be written',
  collateral_unavailable: 'The certificates or revocation lists of AMD or Intel cannot be fetched',
  secret_exchange_failed: 'The secret exchange failed',
  attestation_failed: 'Attestation of the remote failed',
  evidence_malformed: 'The evidence of the remote cannot be read',
  resources_exhausted: 'This machine has no resources left for a connection',
};

/**
 * One line for the log: the cause, and when the next renewal begins at the latest, since a waiting request starts one sooner.
 * `retryIn` in ms; undefined: when a client sends a key.
 */
export function failureMessage({ code }: PrivatemodeError, retryIn: number | undefined): string {
  const what = CAUSES[code] ?? 'The remote could not be verified';
  if (retryIn === undefined) return `${what}; the next request with an API key tries again`;
  const seconds = Math.max(1, Math.round(retryIn / 1000));
  return `${what}; trying again in ${seconds} ${seconds === 1 ? 'second' : 'seconds'} at the latest`;
}
