/** What changed between two manifests that were enforced one after the other, for a person to judge. */

/** One difference between two manifests. `path`: JSON pointer (RFC 6901); a value that is not there is undefined. */
export interface ManifestChange {
  readonly path: string;
  readonly concerns: 'policies' | 'measurements' | 'tcb' | 'other';
  readonly before?: unknown;
  readonly after?: unknown;
}

/** What a change is about, by the first pattern that its JSON pointer matches. */
const CONCERNS: readonly (readonly [RegExp, ManifestChange['concerns']])[] = [
  [/^\/Policies\b/, 'policies'],
  [/^\/ReferenceValues\/.*(?:TCB|Tcb|tcb|Mitigation|Svn|SVN)/, 'tcb'],
  [/^\/ReferenceValues\b/, 'measurements'],
];

/** More would be no change of a manifest but another manifest; a page must not be swelled by it. */
const MOST_CHANGES = 500;

/**
 * The differences between two JSON values, by JSON pointer (RFC 6901), in the order of the second with removed members last.
 * Objects are compared member by member, arrays element by element, and all else as a whole.
 */
export function manifestChanges(before: unknown, after: unknown): readonly ManifestChange[] {
  return differences(before, after, '').slice(0, MOST_CHANGES);
}

function differences(before: unknown, after: unknown, path: string): ManifestChange[] {
  if (Object.is(before, after)) return [];
  const [left, right] = [members(before), members(after)];
  if (left === undefined || right === undefined || Array.isArray(before) !== Array.isArray(after)) {
    return [{ path, concerns: concernOf(path), ...known('before', before), ...known('after', after) }];
  }
  const names = new Set([...right.keys(), ...left.keys()]);
  return [...names].flatMap((name) =>
    differences(
      left.get(name),
      right.get(name),
      `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`,
    ),
  );
}

const members = (value: unknown): ReadonlyMap<string, unknown> | undefined =>
  typeof value === 'object' && value !== null ? new Map(Object.entries(value)) : undefined;

const known = (name: 'before' | 'after', value: unknown): object =>
  value === undefined ? {} : { [name]: value };

const concernOf = (path: string): ManifestChange['concerns'] =>
  CONCERNS.find(([pattern]) => pattern.test(path))?.[1] ?? 'other';
