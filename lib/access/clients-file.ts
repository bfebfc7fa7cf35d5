/**
 * The file of --clients, which says who may use the gateway, and for what: how it is read from disk, and what
 * its text may hold (docs/clients-file.schema.json).
 */
import { ENDPOINTS, type EndpointId } from '../api/endpoints.ts';
import { type Clock, pause } from '../clock.ts';
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
import { MOST_BYTES, readSmall } from '../watch-files.ts';

/**
 * The form of a client's name, which appears in logs, in receipts and in the names of keys in the store of
 * the limits.
 */
export const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

/** How much a client may use the gateway; undefined: no limit. */
export interface Limits {
  /** Requests that are admitted within any 60 s. */
  readonly requestsPerMinute: number | undefined;
  /**
   * Input and output tokens of one day (UTC). The gateway admits a request while fewer tokens are counted, so
   * the last request may go beyond the limit.
   */
  readonly tokensPerDay: number | undefined;
  /** Requests that run at the same time. */
  readonly maxConcurrent: number | undefined;
}

const CACHE_SALTS = ['client', 'shared', 'own'] as const;

/** One client, as the file has it. */
export interface ClientEntry {
  /** Unique; letters, digits and `._@-`, at most 64. */
  readonly name: string;
  /** SHA-256 of each token of the client, at least one, in lower-case hex. No two entries share one. */
  readonly tokens: readonly string[];
  /** ms since 1970, from which on the client is refused. */
  readonly expires: number | undefined;
  /** Names of models, in which `*` stands for any characters; undefined: all. */
  readonly models: readonly string[] | undefined;
  readonly endpoints: readonly EndpointId[] | undefined;
  /** The path of the key file as written, without the `@`. */
  readonly apiKeyFile: string | undefined;
  /**
   * Which prompt cache the client uses. `client`: one of its own, even if its requests bring a salt. `own`:
   * the cache of the salt that a request brings; without a salt, one of its own. `shared`: the same as
   * without --clients.
   */
  readonly cacheSalt: (typeof CACHE_SALTS)[number];
  readonly limits: Limits;
}

/** More than a team needs; it bounds the table that each process holds. */
const MOST_TOKENS = 4096;

/**
 * Throws config_invalid with the JSON path and what is expected there. The error quotes no value of the file,
 * which may be a token.
 */
type Refuse = (at: Path, expected: string) => never;
type Read<T> = (value: JsonValue, at: Path, refuse: Refuse) => T;

/**
 * The beginning of tokens, by which people and secret scanners tell a token of a gateway from a key of the
 * service.
 */
export const TOKEN_PREFIX = 'pmp_';
const DIGEST = /^[0-9a-f]{64}$/;
const PATTERN = /^[^\x00-\x1f\x7f]{1,256}$/;
const KEY_FILE = /^@[^\0]+$/s;

const matching =
  (pattern: RegExp, expected: string): Read<string> =>
  (value, at, refuse) =>
    typeof value === 'string' && pattern.test(value) ? value : refuse(at, expected);

/**
 * Reads the name of an endpoint. People write the path of the endpoint in its place, so the error tells them
 * the name.
 */
const endpoint: Read<EndpointId> = (value, at, refuse) => {
  const written =
    typeof value === 'string' && value.includes('/')
      ? `/${value}`.replace(/^\/{1,2}(?:v1\/)?/, '/')
      : undefined;
  const byPath = ENDPOINTS.find(({ path }) => path.replace(/^\/v1(?=\/)/, '') === written);
  return byPath === undefined
    ? oneOf(ENDPOINTS.map(({ id }) => id))(value, at, refuse)
    : refuse(at, `the name of an endpoint, not its path: write "${byPath.id}"`);
};

const oneOf =
  <const Word extends string>(words: readonly Word[]): Read<Word> =>
  (value, at, refuse) =>
    words.find((word) => word === value) ?? refuse(at, `one of ${words.join(', ')}`);

const listOf =
  <T>(read: Read<T>, expected = 'a list of at least one, in brackets'): Read<readonly T[]> =>
  (value, at, refuse) => {
    if (!Array.isArray(value) || value.length === 0) return refuse(at, expected);
    return Object.freeze(value.map((item: JsonValue, i) => read(item, [...at, i], refuse)));
  };

/** Greatest value of a limit. A greater one limits nothing, and counts beyond 2^53 are not exact. */
const MOST_OF_A_LIMIT = 2 ** 31;
const limit: Read<number> = (value, at, refuse) => {
  // The text of the number decides: 1.0 and 1e3 are no whole numbers here.
  const text = value instanceof JsonNumber ? value.text : '';
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= MOST_OF_A_LIMIT
    ? Number(text)
    : refuse(
        at,
        `a whole number from 1 to ${MOST_OF_A_LIMIT}, in digits alone, without quotes; leave it out for no limit`,
      );
};

const digest: Read<string> = (value, at, refuse) => {
  const isToken = typeof value === 'string' && value.startsWith(TOKEN_PREFIX);
  const expected = isToken
    ? 'the SHA-256 of a token, not the token itself; whoever read this file knows it now, so make another with "privatemode-proxy clients new"'
    : 'the SHA-256 of a token, 64 lower-case hex digits; "privatemode-proxy clients new NAME" without --clients prints both';
  return matching(DIGEST, expected)(value, at, refuse);
};

/** ms since 1970. */
const time: Read<number> = (value, at, refuse) => {
  const moment = typeof value === 'string' ? momentIn(value) : undefined;
  const day = typeof value === 'string' && /^\d{4}-\d\d-\d\d$/.test(value) ? value : undefined;
  const example = `${day ?? '2027-01-31'}T00:00:00Z`;
  return (
    moment?.getTime() ??
    refuse(at, `a time such as ${example} (RFC 3339)${day === undefined ? '' : ', not a day alone'}`)
  );
};

const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  (value, at, refuse) =>
    value === undefined ? undefined : read(value, at, refuse);

/** The members that a client may have, and how each is read. All others are refused. */
const MEMBERS = {
  name: matching(
    CLIENT_NAME,
    'a name of at most 64 letters, digits and . _ @ -, beginning with a letter or digit',
  ),
  tokens: listOf(digest, 'a list of at least one digest; to lock a client out, remove its whole entry'),
  expires: optional(time),
  models: optional(listOf(matching(PATTERN, 'the name of a model, in which * stands for any characters'))),
  endpoints: optional(listOf(endpoint)),
  apiKey: optional(matching(KEY_FILE, '@ and the path of a file; keys do not belong into this file')),
  cacheSalt: optional(oneOf(CACHE_SALTS)),
  requestsPerMinute: optional(limit),
  tokensPerDay: optional(limit),
  maxConcurrent: optional(limit),
} satisfies Readonly<Record<string, Read<unknown>>>;

/**
 * Reads the file. `needsKeys`: no key is configured, so each client must have a key file. `name`: what
 * messages call the file. Throws config_invalid, with the JSON path of what is wrong; the error quotes no
 * token, digest or other value.
 */
export function parseClientsFile(
  bytes: Uint8Array,
  { needsKeys, name = '--clients' }: { readonly needsKeys: boolean; readonly name?: string },
): readonly ClientEntry[] {
  const refuse: Refuse = (at, expected) => {
    throw invalid(`${name}: ${withoutSecrets(pathText(at) || 'the file')}: expected ${expected}`);
  };
  if (bytes.length > MOST_BYTES) refuse([], `at most ${MOST_BYTES} bytes`);
  const file = parseStrictJson(bytes, { depth: 4, values: 65_536 }, (reason, defect) =>
    invalid(`${name}: ${withoutSecrets(withLine(reason, defect, bytes))}`),
  );
  const { clients, defaults } = membersOf(
    file,
    [],
    { $schema: optional(matching(/^/, 'a text')), defaults: optional(readDefaults), clients: any },
    refuse,
  );
  if (!Array.isArray(clients)) return refuse(['clients'], 'a list of clients, in brackets');
  const entries = clients.map((value: JsonValue, i) => entryOf(value, ['clients', i], defaults, refuse));
  for (const [i, { apiKeyFile }] of entries.entries())
    if (needsKeys && apiKeyFile === undefined)
      refuse(['clients', i, 'apiKey'], 'a key file, since there is no --api-key');
  refuseRepeated(entries, refuse);
  return Object.freeze(entries);
}

const any: Read<JsonValue> = (value) => value;

/** The members of `defaults`: what a client has unless its entry says otherwise. */
const { name: _name, tokens: _tokens, apiKey: _apiKey, ...DEFAULTABLE } = MEMBERS;
const readDefaults = (value: JsonValue, at: Path, refuse: Refuse) =>
  membersOf(value, at, DEFAULTABLE, refuse);

function entryOf(
  value: JsonValue,
  at: Path,
  defaults: ReturnType<typeof readDefaults> | undefined,
  refuse: Refuse,
): ClientEntry {
  const own = Object.entries(membersOf(value, at, MEMBERS, refuse)).filter(([, read]) => read !== undefined);
  const members = { ...defaults, ...Object.fromEntries(own) } as MembersOf<typeof MEMBERS>;
  const { apiKey, cacheSalt = 'client', ...others } = members;
  const { requestsPerMinute, tokensPerDay, maxConcurrent, ...rest } = others;
  const limits = Object.freeze({ requestsPerMinute, tokensPerDay, maxConcurrent });
  return Object.freeze({ ...rest, apiKeyFile: apiKey?.slice(1), cacheSalt, limits });
}

type MembersOf<Rows extends Readonly<Record<string, Read<unknown>>>> = {
  readonly [Name in keyof Rows]: ReturnType<Rows[Name]>;
};

/** Reads the members of an object by a table, which has a row for each allowed member. */
function membersOf<Rows extends Readonly<Record<string, Read<unknown>>>>(
  value: JsonValue,
  at: Path,
  rows: Rows,
  refuse: Refuse,
): MembersOf<Rows> {
  if (!(value instanceof JsonObject))
    return refuse(at, at.length === 0 ? 'an object with the member "clients"' : 'an object');
  for (const name of value.keys()) {
    if (!Object.hasOwn(rows, name)) refuse([...at, name], `a known member: ${Object.keys(rows).join(', ')}`);
  }
  const entries = Object.entries(rows).map(([name, read]) => [
    name,
    read(value.get(name) as JsonValue, [...at, name], refuse),
  ]);
  return Object.fromEntries(entries) as MembersOf<Rows>;
}

/**
 * Refuses a name or token that two clients have, because it would leave open which of them sends a request.
 */
function refuseRepeated(entries: readonly ClientEntry[], refuse: Refuse): void {
  const names = new Map<string, number>();
  const digests = new Set<string>();
  for (const [i, { name, tokens }] of entries.entries()) {
    const other = names.get(name);
    if (other !== undefined)
      refuse(
        ['clients', i, 'name'],
        `a name that no other client has; clients[${other}] is called "${name}" too`,
      );
    names.set(name, i);
    for (const [k, token] of tokens.entries()) {
      if (digests.has(token)) refuse(['clients', i, 'tokens', k], 'a token that is in the file once');
      digests.add(token);
    }
  }
  if (digests.size > MOST_TOKENS) refuse(['clients'], `at most ${MOST_TOKENS} tokens`);
}

/** Adds the number of the line to the error of a file that is no JSON, because editors show line numbers. */
function withLine(reason: string, { kind, position }: JsonDefect, bytes: Uint8Array): string {
  if (bytes.length === 0) return 'the file is empty';
  if (kind !== 'syntax') return reason;
  const text = Buffer.from(bytes).toString();
  if (text.startsWith('\ufeff'))
    return 'the file begins with a byte order mark: save it as UTF-8 without one';
  const hint = /^\s*\{/.test(text)
    ? 'JSON has no comments, and no comma behind the last item'
    : '"privatemode-proxy clients new NAME --clients FILE" makes such a file';
  return `${reason}, in line ${text.slice(0, position).split('\n').length} (${hint})`;
}

/**
 * Cuts out of a text what may be a token, a digest or a key: each run of at least 25 characters without
 * spaces and punctuation. Names of members are shorter, and so is everything that we say.
 */
const withoutSecrets = (text: string): string => text.replace(/[^\s"'.,:;[\]]{25,}/g, '…');

/** How often the proxy reads a file again that is being written. */
const TRIES = 6;

/**
 * The bytes of a file that may be written in place at this moment. If they differ from `before`, it reads
 * until two reads agree, because a single read could mix the old content with the new. A file that stays
 * empty is returned as it is, and is no JSON. Throws as readSmall does, and if the file changes all the
 * time.
 */
export async function readSettled(
  path: string,
  before: Uint8Array | undefined,
  clock: Clock,
): Promise<Buffer> {
  let last = await readSmall(path);
  if (before !== undefined && last.equals(before)) return last;
  for (let tries = 0; tries < TRIES; tries++) {
    const next = await readSmall(path);
    if (next.equals(last) && next.length > 0) return next;
    last = next;
    await pause(clock, clock.times.halfWrittenPause, undefined, 'waiting');
  }
  if (last.length === 0) return last;
  throw new Error('it changes all the time');
}
