/** Reads the file of --clients, which says who may use the gateway, and for what (docs/team.md). */
import { ENDPOINTS } from '../api/endpoints.ts';
import { invalid, momentIn } from '../config/values.ts';
import {
  type JsonDefect,
  JsonNumber,
  JsonObject,
  type JsonValue,
  type Path,
  parseStrictJson,
  pathText,
} from '../strict-json.ts';
import { MOST_BYTES } from '../watch-files.ts';

/** The form of a client's name, which appears in logs, in receipts and in keys of the limits store. */
export const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

/** The prefix of a token, by which people and secret scanners distinguish a token from an API key. */
export const TOKEN_PREFIX = 'pmp_';

/** The most tokens in a clients file: more than a team needs. Each process holds a table of all tokens. */
const MOST_TOKENS = 4096;

/** The greatest value of a limit. Greater values would limit nothing; counts beyond 2^53 are not exact. */
const MOST_OF_A_LIMIT = 2 ** 31;

type Read<T> = (value: JsonValue, at: Path) => T;

/** Throws the error for a wrong value in the file. The error quotes no value, as a value may be a token. */
function refuse(at: Path, expected: string): never {
  throw invalid(`${pathText(at) || 'the file'}: expected ${expected}`);
}

const matching =
  (pattern: RegExp, expected: string): Read<string> =>
  (value, at) =>
    typeof value === 'string' && pattern.test(value) ? value : refuse(at, expected);

const oneOf =
  <const Word extends string>(words: readonly Word[]): Read<Word> =>
  (value, at) =>
    words.find((word) => word === value) ?? refuse(at, `one of ${words.join(', ')}`);

const listOf =
  <T>(read: Read<T>, expected = 'a list of at least one, in brackets', least = 1): Read<readonly T[]> =>
  (value, at) => {
    if (!Array.isArray(value) || value.length < least) return refuse(at, expected);
    return Object.freeze(value.map((item: JsonValue, i) => read(item, [...at, i])));
  };

const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  (value, at) =>
    value === undefined ? undefined : read(value, at);

const limit: Read<number> = (value, at) => {
  // The text of the number decides, because 1.0 and 1e3 are not accepted as whole numbers.
  const text = value instanceof JsonNumber ? value.text : '';
  if (/^[1-9]\d{0,9}$/.test(text) && Number(text) <= MOST_OF_A_LIMIT) return Number(text);
  const expected = `a whole number from 1 to ${MOST_OF_A_LIMIT}, in digits alone, without quotes`;
  return refuse(at, `${expected}; leave it out for no limit`);
};

const digest: Read<string> = (value, at) => {
  if (typeof value === 'string' && value.startsWith(TOKEN_PREFIX))
    refuse(at, 'the SHA-256 of a token, not the token, which whoever read this file knows now: make another');
  const expected =
    'the SHA-256 of a token, 64 lower-case hex digits; "privatemode-proxy clients new" makes a token and writes it';
  return matching(/^[0-9a-f]{64}$/, expected)(value, at);
};

/** Reads an RFC 3339 time, and returns the time in ms since 1970. */
const time: Read<number> = (value, at) =>
  (typeof value === 'string' ? momentIn(value) : undefined)?.getTime() ??
  refuse(at, 'a time such as 2027-01-31T00:00:00Z (RFC 3339), not a day alone');

/** The members that a client may have, and how each member is read. A member without a row is refused. */
const MEMBERS = {
  /** The name of the client, which no other client has. */
  name: matching(
    CLIENT_NAME,
    'a name of at most 64 letters, digits and . _ @ -, beginning with a letter or digit',
  ),
  /** The SHA-256 of each token of the client, in lower-case hex. No two clients have the same token. */
  tokens: listOf(digest, 'a list of at least one digest; to lock a client out, remove its whole entry'),
  /** When the client expires, in ms since 1970. From this time on, the client is refused. */
  expires: optional(time),
  /** The models that the client may use, or undefined for all models. */
  models: optional(
    listOf(
      matching(/^[^\x00-\x1f\x7f]{1,256}$/, 'the name of a model, in which * stands for any characters'),
    ),
  ),
  endpoints: optional(listOf(oneOf(ENDPOINTS.map(({ id }) => id)))),
  apiKey: optional(matching(/^@[^\0]+$/s, '@ and the path of a file; keys do not belong into this file')),
  /**
   * Which prompt cache the client uses. `client`: a cache of its own, whatever salt its requests have.
   * `own`: the cache of the salt in a request, or the client's own cache for a request without a salt.
   * `shared`: the same cache as without --clients.
   */
  cacheSalt: optional(oneOf(['client', 'shared', 'own'])),
  /** The number of requests that are admitted within any 60 s. */
  requestsPerMinute: optional(limit),
  /**
   * Input and output tokens of one day (UTC). The gateway admits a request while fewer tokens than the limit
   * are counted, so the last request may exceed the limit.
   */
  tokensPerDay: optional(limit),
  /** The number of requests that may run at the same time. */
  maxConcurrent: optional(limit),
};

/** The members that `defaults` may set for clients whose own entries do not have the member. */
const { name: _name, tokens: _tokens, apiKey: _apiKey, ...DEFAULTABLE } = MEMBERS;
const readDefaults = (value: JsonValue, at: Path) => membersOf(value, at, DEFAULTABLE);

const MEMBERS_OF_FILE = {
  $schema: optional(matching(/^/, 'a text')),
  defaults: optional(readDefaults),
  clients: listOf((value: JsonValue) => value, 'a list of clients, in brackets', 0),
};

/** One client of the file, completed with the defaults. The path of its key file has no `@` in front. */
export type ClientEntry = ReturnType<typeof entryOf>;
/** How much a client may use the gateway. An undefined member means no limit. */
export type Limits = ClientEntry['limits'];

/**
 * Reads the clients file. `needsKeys`: each client must have a key file, because no key is configured.
 * `name`: the name of the file in messages. Throws config_invalid with the JSON path of the mistake. The
 * error has no token, no digest, and no other value from the file.
 */
export function parseClientsFile(
  bytes: Uint8Array,
  { needsKeys, name = '--clients' }: { readonly needsKeys: boolean; readonly name?: string },
): readonly ClientEntry[] {
  try {
    return entriesOf(bytes, needsKeys);
  } catch (thrown) {
    throw invalid(`${name}: ${withoutSecrets((thrown as Error).message)}`);
  }
}

function entriesOf(bytes: Uint8Array, needsKeys: boolean): readonly ClientEntry[] {
  if (bytes.length > MOST_BYTES) refuse([], `at most ${MOST_BYTES} bytes`);
  const file = parseStrictJson(bytes, { depth: 4, values: 65_536 }, (reason, defect) =>
    invalid(withLine(reason, defect, bytes)),
  );
  const { clients, defaults } = membersOf(file, [], MEMBERS_OF_FILE);
  const entries = clients.map((value, i) => entryOf(value, ['clients', i], defaults));
  const names = new Map<string, number>();
  const digests = new Set<string>();
  // If two clients had the same name or token, nobody could tell which of these clients sends a request.
  for (const [i, { name, tokens, apiKeyFile }] of entries.entries()) {
    const at = ['clients', i];
    if (needsKeys && apiKeyFile === undefined)
      refuse([...at, 'apiKey'], 'a key file, since there is no --api-key');
    if (names.has(name))
      refuse([...at, 'name'], `a name that no other client has; clients[${names.get(name)}] has it too`);
    names.set(name, i);
    for (const [k, token] of tokens.entries()) {
      if (digests.has(token)) refuse([...at, 'tokens', k], 'a token that is in the file once');
      digests.add(token);
    }
  }
  if (digests.size > MOST_TOKENS) refuse(['clients'], `at most ${MOST_TOKENS} tokens`);
  return Object.freeze(entries);
}

function entryOf(value: JsonValue, at: Path, defaults: ReturnType<typeof readDefaults> | undefined) {
  const own = Object.entries(membersOf(value, at, MEMBERS)).filter(([, read]) => read !== undefined);
  const members = { ...defaults, ...Object.fromEntries(own) } as MembersOf<typeof MEMBERS>;
  const { apiKey, cacheSalt = 'client', ...others } = members;
  const { requestsPerMinute, tokensPerDay, maxConcurrent, ...rest } = others;
  const limits = Object.freeze({ requestsPerMinute, tokensPerDay, maxConcurrent });
  return Object.freeze({ ...rest, apiKeyFile: apiKey?.slice(1), cacheSalt, limits });
}

type Rows = Readonly<Record<string, Read<unknown>>>;
type MembersOf<R extends Rows> = { readonly [Name in keyof R]: ReturnType<R[Name]> };

/** Reads the members of an object by the table `rows`, which has a row for each allowed member. */
function membersOf<R extends Rows>(value: JsonValue, at: Path, rows: R): MembersOf<R> {
  if (!(value instanceof JsonObject))
    return refuse(at, at.length === 0 ? 'an object with the member "clients"' : 'an object');
  for (const name of value.keys()) {
    if (!Object.hasOwn(rows, name)) refuse([...at, name], `a known member: ${Object.keys(rows).join(', ')}`);
  }
  const read = Object.entries(rows).map(([name, row]) => [
    name,
    row(value.get(name) as JsonValue, [...at, name]),
  ]);
  return Object.fromEntries(read) as MembersOf<R>;
}

/** Adds the line number to the error of a file that is not JSON, because editors show line numbers. */
function withLine(reason: string, { kind, position }: JsonDefect, bytes: Uint8Array): string {
  if (bytes.length === 0) return 'the file is empty';
  if (kind !== 'syntax') return reason;
  const text = Buffer.from(bytes).toString();
  if (text.startsWith('\ufeff'))
    return 'the file begins with a byte order mark: save it as UTF-8 without one';
  const line = text.slice(0, position).split('\n').length;
  return `${reason}, in line ${line} (JSON has no comments, and no comma behind the last item)`;
}

/**
 * Removes from a message what may be a token, a digest or a key: each run of at least 25 characters without
 * spaces and punctuation. Member names and the words of our messages are shorter.
 */
const withoutSecrets = (text: string): string => text.replace(/[^\s"'.,:;[\]]{25,}/g, '…');
