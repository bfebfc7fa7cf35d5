/** Remedies of errors in words for applications: they name options and packages, not flags and files. */
import { type Blame, type ErrorCode, PrivatemodeError, ERRORS as TABLE } from '../errors.ts';

/** Every error code: the HTTP status of its response, whose fault it is (`blame`), what to do (`remedy`). */
export const ERRORS = Object.fromEntries(
  Object.entries(TABLE).map(([code, { status, blame, remedies }]) => [
    code,
    { status, blame, remedy: remedies.application ?? remedies.operator },
  ]),
) as Readonly<Record<ErrorCode, { readonly status: number; readonly blame: Blame; readonly remedy: string }>>;

const PINNED =
  'Nothing was sent. Review the manifest that the service runs under now, which verify() without the option manifest gives as manifestText; then set the option manifest to it, or leave the option out to follow the published one.';

/**
 * Returns the error with a remedy for applications. The error's own remedy stays, unless it is the table's
 * remedy for operators. `manifest`: the manifest to which the client is pinned, if any.
 */
export function toApplication(
  error: PrivatemodeError,
  { manifest }: { readonly manifest?: Uint8Array | undefined } = {},
): PrivatemodeError {
  const { code, message, retryAfter, cause, api, detail } = error;
  const isOwn = error.remedy !== TABLE[code].remedies.operator;
  const ours = isOwn ? error.remedy : ERRORS[code].remedy;
  const remedy = code === 'manifest_mismatch' && manifest !== undefined ? PINNED : ours;
  if (remedy === error.remedy) return error;
  return new PrivatemodeError(code, message, { cause, retryAfter, api, detail, remedy });
}
