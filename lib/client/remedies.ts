/** What to do about an error, said to an application: its options and packages in place of the proxy's flags and files. */
import { type ErrorCode, PrivatemodeError, ERRORS as TABLE } from '../errors.ts';

/** Rows that say something else than the table of all errors. */
const REMEDIES: Readonly<Partial<Record<ErrorCode, string>>> = {
  unknown_path: 'Use one of the endpoints that the service has, such as /v1/chat/completions.',
  not_supported:
    'Set the option responsesApi to true, which translates it, or use client.chat.completions.create().',
  body_too_large: 'Send a smaller body.',
  upstream_unreachable: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
  upstream_tls_untrusted:
    'Have the runtime trust the CA, that of a TLS inspection appliance or the ca.pem of a simulator: NODE_EXTRA_CA_CERTS in Node and Bun, DENO_CERT in Deno.',
  upstream_http2_only:
    'Set the option apiEndpoint to an address that speaks HTTP/1.1, or set the option fetch.',
  upstream_redirect: 'Check the option apiEndpoint; redirects are never followed.',
  upstream_connect_timeout: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
  first_byte_timeout: 'Try again, or raise the option firstByteTimeout.',
  stream_idle_timeout: 'Try again, or raise the option streamIdleTimeout.',
  shutting_down: 'Make a new client.',
  not_ready:
    'Try again in a moment, or raise the option verificationTimeout; the service is still being verified.',
  api_key_missing: 'Give the option apiKey, or set PRIVATEMODE_API_KEY.',
  api_key_rejected: 'Check the option apiKey; the service does not accept it.',
  attestation_failed:
    'Do not trust the service; verify() rejects with an error whose verdict has every check.',
  evidence_malformed: 'Do not trust the service; report this error.',
  manifest_mismatch:
    'Compare the option manifest, in exactly these bytes, with what the publisher of the service shows. Without a pin, try again in a moment; a deployment is being replaced.',
  client_too_old: 'Update privatemode-ai to the latest version.',
  manifest_unsupported: 'Update privatemode-ai to the latest version.',
  manifest_invalid: 'Check the option manifest, or leave it out to follow the published one.',
  manifest_unavailable: 'Check that the host of the option cdnBaseUrl can be reached.',
  collateral_unavailable: 'Check that the hosts of the option collateralUrls can be reached.',
  config_invalid: 'See the options in the README of privatemode-ai.',
  unsafe_roots_refused: 'Leave out unsafeTrustRoots, or set apiEndpoint and cdnBaseUrl to a simulator.',
  internal: 'Report this with the request id.',
};

/** Every code, as this package speaks of it. */
export const ERRORS: typeof TABLE = Object.fromEntries(
  Object.entries(TABLE).map(([code, row]) => [
    code,
    { ...row, remedy: REMEDIES[code as ErrorCode] ?? row.remedy },
  ]),
) as typeof TABLE;

/** What a simulator needs; one on this machine that fails so may lack it. */
const SIMULATOR =
  'If the service is a simulator, set the option unsafeTrustRoots to the roots in the directory that it printed, and cdnBaseUrl and collateralUrls to its URL.';
const LOOPBACK = /^(?:localhost|127\.[\d.]+|\[::1\])$/;

/** What to do where unsafeTrustRoots lacks something, or is likely to; undefined elsewhere. */
function rootsRemedy({ code, detail }: PrivatemodeError, host: string): string | undefined {
  const missing = detail?.missingRoot;
  if (missing !== undefined) return `${missing} is missing in the option unsafeTrustRoots: add its roots.`;
  const isLikely = LOOPBACK.test(host) && (code === 'attestation_failed' || code === 'manifest_mismatch');
  return isLikely ? `${SIMULATOR} Else: ${ERRORS[code].remedy}` : undefined;
}

/**
 * One that has a remedy of its own keeps that. Where the network was in the way, a cause may know better what to do: always than `not_ready`,
 * and where it has a remedy of its own, as in a page.
 */
function remedyOf({ code, remedy, cause }: PrivatemodeError): string {
  if (remedy !== TABLE[code].remedy) return remedy;
  const { remedy: ours } = ERRORS[code];
  if (!(cause instanceof PrivatemodeError && cause.blame === 'network')) return ours;
  const better = remedyOf(cause);
  return code === 'not_ready' || better !== ERRORS[cause.code].remedy ? better : ours;
}

/** The same error with a remedy for an application; `service`: its apiEndpoint, where the error can be about verification. */
export function toApplication(error: PrivatemodeError, service?: URL): PrivatemodeError {
  const { code, message, retryAfter, cause, api, detail } = error;
  const remedy = (service && rootsRemedy(error, service.hostname)) ?? remedyOf(error);
  return remedy === error.remedy
    ? error
    : new PrivatemodeError(code, message, { cause, retryAfter, api, detail, remedy });
}
