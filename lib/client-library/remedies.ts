/**
 * What to do about an error, said to an application: its options and packages in place of the proxy's flags
 * and files.
 */
import { type Blame, type ErrorCode, PrivatemodeError, ERRORS as TABLE } from '../errors.ts';
import type { ClientConfig } from './options.ts';

/**
 * Every error code of this package, with the HTTP status of its response, whose fault it is (`blame`), and
 * what to do (`remedy`).
 */
export const ERRORS = Object.fromEntries(
  Object.entries(TABLE).map(([code, { status, blame, remedies }]) => [
    code,
    { status, blame, remedy: remedies.application ?? remedies.operator },
  ]),
) as Readonly<Record<ErrorCode, { readonly status: number; readonly blame: Blame; readonly remedy: string }>>;

/** For a service on this machine that fails without unsafeTrustRoots: it may be a simulator. */
const SIMULATOR =
  'If the service is a simulator, set the option unsafeTrustRoots to the roots in the directory that it printed, and cdnBaseUrl and collateralUrls to its URL.';
const OTHER_SIMULATOR =
  'The roots in the option unsafeTrustRoots may be those of another simulator: take those in the directory that the running one printed.';
const LOOPBACK = /^(?:localhost|127\.[\d.]+|\[::1\])$/;

const PINNED =
  'Nothing was sent. Review the manifest that the service runs under now, which verify() without the option manifest gives as manifestText; then set the option manifest to it, or leave the option out to follow the published one.';

/** The options that decide what to do about a failed verification. */
export type VerifiedOptions = Pick<ClientConfig, 'apiEndpoint' | 'manifest' | 'unsafeTrustRoots'>;

/**
 * What to do about a failed verification, by the options `given`; undefined if the table of errors says it.
 */
function verifiedRemedy(error: PrivatemodeError, given: VerifiedOptions): string | undefined {
  const { code, detail } = error;
  const missing = detail?.missingRoot;
  if (missing !== undefined) return `${missing} is missing in the option unsafeTrustRoots: add its roots.`;
  const remedy = code === 'manifest_mismatch' && given.manifest !== undefined ? PINNED : undefined;
  const isLocal = LOOPBACK.test(given.apiEndpoint.hostname);
  const hasRoots = given.unsafeTrustRoots !== undefined;
  const isLikely = isLocal && (code === 'attestation_failed' || (code === 'manifest_mismatch' && !hasRoots));
  if (!isLikely) return remedy;
  return `${hasRoots ? OTHER_SIMULATOR : SIMULATOR} Else: ${remedy ?? ERRORS[code].remedy}`;
}

/**
 * The remedy to show. An error with a remedy of its own keeps it, unless it is that of its cause: then the
 * cause decides. If a network error caused it, that error's remedy is shown instead of the table's: always
 * for `not_ready`; for other errors if the cause has a remedy of its own, as in a browser's page (CORS).
 */
function remedyOf({ code, remedy, cause }: PrivatemodeError): string {
  const isOwn = remedy !== TABLE[code].remedies.operator;
  if (isOwn && cause instanceof PrivatemodeError && cause.remedy === remedy) return remedyOf(cause);
  if (isOwn) return remedy;
  const { remedy: ours } = ERRORS[code];
  if (!(cause instanceof PrivatemodeError && cause.blame === 'network')) return ours;
  const better = remedyOf(cause);
  return code === 'not_ready' || better !== ERRORS[cause.code].remedy ? better : ours;
}

/**
 * The same error with a remedy for an application. `given`: the application's options, if the error can be
 * about verification.
 */
export function toApplication(error: PrivatemodeError, given?: VerifiedOptions): PrivatemodeError {
  const { code, message, retryAfter, cause, api, detail } = error;
  const remedy = (given && verifiedRemedy(error, given)) ?? remedyOf(error);
  return remedy === error.remedy
    ? error
    : new PrivatemodeError(code, message, { cause, retryAfter, api, detail, remedy });
}
