export interface RequestTarget {
  /** Canonical: no doubled slashes, `/v1` once. */
  readonly path: string;
  /** With its question mark, exactly as received; or empty. */
  readonly query: string;
}

/**
 * Reads the target of a request line exactly as it came over the wire, or returns words on what is wrong with it.
 * Whatever a later parser could read differently is refused, so that nothing is sealed for one path and delivered to
 * another (trap 8). Nothing of the target is quoted: it may hold anything.
 */
export function parseTarget(raw: string): RequestTarget | string {
  if (!raw.startsWith('/')) return 'the request target is not a path';
  if (/[^\x21-\x7e]/.test(raw))
    return 'the request target contains blanks, control characters or non-ASCII text';
  if (raw.includes('#')) return 'the request target contains a fragment';
  const path = raw.split('?', 1)[0] as string;
  if (path.includes('\\') || /%5c/i.test(path)) return 'the path contains a backslash';
  if (/%(?![0-9a-f]{2})/i.test(path)) return 'the path contains a percent sign that starts no escape';
  if (/%[01][0-9a-f]|%7f/i.test(path)) return 'the path contains an escaped control character';
  const segments = path.replace(/%2e/gi, '.').split(/\/|%2f/i);
  if (segments.includes('.') || segments.includes('..')) return 'the path contains dot segments';
  return { path: canonical(path), query: raw.slice(path.length) };
}

/** Base URLs are pasted with and without `/v1` and with a trailing slash: `//v1/x` and `/v1/v1/x` mean `/v1/x`. */
const canonical = (path: string): string =>
  path.replace(/\/{2,}/g, '/').replace(/^(?:\/v1)+(?=\/v1(?:\/|$))/, '');

/** Enough to recognise a parameter by; what else stands in its place may be content. */
const PARAMETER_NAME = /^[\w.-]{1,40}(?==)/;

/**
 * Keeps the parameters of a query whose names are allowed, each as received. Names must be written plainly: an escaped one
 * is not recognised, and a value with `;`, where some parsers begin another parameter, is not kept. `kept` has its question
 * mark, or is empty; `dropped` holds the names of the others, `?` where there is none that could be told.
 */
export function filterQuery(
  query: string,
  allowed: readonly string[],
): { readonly kept: string; readonly dropped: readonly string[] } {
  const parameters = query
    .slice(1)
    .split('&')
    .filter((parameter) => parameter !== '');
  const isKept = (parameter: string): boolean =>
    allowed.includes(parameter.split('=', 1)[0] as string) && !parameter.includes(';');
  const kept = parameters.filter(isKept).join('&');
  const dropped = parameters
    .filter((parameter) => !isKept(parameter))
    .map((parameter) => PARAMETER_NAME.exec(parameter)?.[0] ?? '?');
  return { kept: kept === '' ? '' : `?${kept}`, dropped };
}
