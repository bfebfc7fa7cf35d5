/** Errors of the library: what a failed fetch means, and remedies that name options, not flags and files. */
import { type Blame, type ErrorCode, PrivatemodeError, ERRORS as TABLE } from '../errors.ts';
import { transportError } from '../network/transport-errors.ts';

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

/** Finds the error whose code says why a fetch failed: the thrown error's cause, or the thrown error. */
export function codedCause(thrown: unknown): NodeJS.ErrnoException | undefined {
  const error = thrown instanceof Error ? ((thrown.cause ?? thrown) as NodeJS.ErrnoException) : undefined;
  return typeof error?.code === 'string' ? error : undefined;
}

/** Codes of waits that undici ends by itself, whatever our options say. Undici is the fetch of Node. */
const RUNTIME_LIMITS = new Map<unknown, ErrorCode>([
  ['UND_ERR_HEADERS_TIMEOUT', 'first_byte_timeout'],
  ['UND_ERR_BODY_TIMEOUT', 'stream_idle_timeout'],
]);

/** The error for a wait that the runtime ended. Undefined if the runtime ended no wait. */
export function runtimeLimit(thrown: unknown): PrivatemodeError | undefined {
  const code = RUNTIME_LIMITS.get(codedCause(thrown)?.code);
  const remedy =
    'Set the option fetch to one that waits longer, as "Runtimes" in the README of privatemode-ai shows.';
  return code && new PrivatemodeError(code, 'the runtime stopped waiting', { cause: thrown, remedy });
}

/**
 * The error for a fetch that gave no response: what the runtime says about it, else upstream_unreachable. A
 * browser does not tell a page why a fetch failed, so the message also names CORS in browsers.
 */
export function unreachable(host: string, cause: unknown): PrivatemodeError {
  const known = transportError(host, codedCause(cause) ?? (cause as Error | undefined)?.cause ?? cause);
  if (known instanceof PrivatemodeError) return known;
  const { location: page } = globalThis as { readonly location?: { readonly origin: string } };
  const cors = page ? `, or does not allow pages of ${page.origin} to ask it (CORS)` : '';
  const remedy =
    page &&
    'Check the network, and in the console of the browser whether CORS is the reason; "Runtimes" in the README of privatemode-ai says what to do then.';
  return new PrivatemodeError('upstream_unreachable', `${host} cannot be reached${cors}`, { cause, remedy });
}
