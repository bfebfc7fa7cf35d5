/**
 * Reads which manifests were enforced, according to the manifest log, and what changed from each to the next.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { JsonNumber, JsonObject, type JsonValue, parseStrictJson } from '../strict-json.ts';
import { LOG_LINE } from './manifest-log.ts';

/** A manifest that was enforced, with what changed against the one before it in the log. */
export interface EnforcedManifest {
  /** RFC 3339, as it stands in the log. */
  readonly since: string;
  /** Null where the file cannot be read. */
  readonly sha256: string | null;
  /** Name of the file below `<workspace>/manifests`. */
  readonly file: string;
  /** Undefined for the first manifest, and if this manifest or the one before it cannot be read. */
  readonly changes?: readonly ManifestChange[] | undefined;
}

/** The last `most` entries of the log, newest first. Empty if there is no log that can be read. */
export async function manifestHistory(workspace: string, most = 50): Promise<readonly EnforcedManifest[]> {
  const directory = join(workspace, 'manifests');
  const text = await readFile(join(directory, 'log.txt'), 'utf8').catch(() => '');
  const entries = text.split('\n').flatMap((line) => {
    const [, since, file] = LOG_LINE.exec(line.trimEnd()) ?? [];
    return since === undefined || file === undefined ? [] : [{ since, file }];
  });
  const read = entries.slice(-most - 1).map(async (entry) => {
    const bytes = await readFile(join(directory, entry.file)).catch(() => undefined);
    return { ...entry, bytes, json: bytes && parsed(bytes) };
  });
  const manifests = (await Promise.all(read)).map(({ bytes, json, ...entry }, i, all) => {
    const sha256 = bytes === undefined ? null : createHash('sha256').update(bytes).digest('hex');
    const before = all[i - 1]?.json;
    const changes = before === undefined || json === undefined ? undefined : manifestChanges(before, json);
    return { ...entry, sha256, changes };
  });
  return manifests.toReversed().slice(0, most);
}

const LIMITS = { depth: 16, values: 20_000 };

function parsed(bytes: Uint8Array): JsonValue | undefined {
  try {
    return parseStrictJson(bytes, LIMITS, (reason) => new SyntaxError(reason));
  } catch {
    return undefined;
  }
}

/**
 * One difference between two manifests. `path`: JSON pointer (RFC 6901); a value that is not there is
 * undefined. A number that JavaScript would write differently, such as one beyond 2^53, is its text as a
 * string.
 */
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

/**
 * How many changes are listed at most. More of them would mean another manifest rather than a change of one,
 * and would swell a page.
 */
const MOST_CHANGES = 500;

/**
 * The differences between two JSON values, by JSON pointer (RFC 6901), at most MOST_CHANGES. They stand in
 * the order of the second value, removed members last. Objects are compared member by member, arrays element
 * by element, numbers by their text, and everything else as a whole.
 */
export function manifestChanges(before: JsonValue, after: JsonValue): readonly ManifestChange[] {
  return differences(before, after, '').slice(0, MOST_CHANGES);
}

function differences(
  before: JsonValue | undefined,
  after: JsonValue | undefined,
  path: string,
): ManifestChange[] {
  if (before === after) return [];
  if (before instanceof JsonNumber && after instanceof JsonNumber && before.text === after.text) return [];
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

function members(value: JsonValue | undefined): ReadonlyMap<string, JsonValue> | undefined {
  if (Array.isArray(value)) return new Map(Object.entries(value as readonly JsonValue[]));
  return value instanceof JsonObject ? value : undefined;
}

const known = (name: 'before' | 'after', value: JsonValue | undefined): object =>
  value === undefined ? {} : { [name]: plain(value) };

/** The value as `JSON.parse` gives it, but for numbers that would become others. */
function plain(value: JsonValue): unknown {
  if (value instanceof JsonNumber) {
    const number = Number(value.text);
    return String(number) === value.text ? number : value.text;
  }
  if (value instanceof JsonObject)
    return Object.fromEntries(Array.from(value, ([name, member]) => [name, plain(member)]));
  return Array.isArray(value) ? value.map(plain) : value;
}

const concernOf = (path: string): ManifestChange['concerns'] =>
  CONCERNS.find(([pattern]) => pattern.test(path))?.[1] ?? 'other';
