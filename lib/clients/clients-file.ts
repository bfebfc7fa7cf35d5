/** The file of --clients (docs/clients-file.schema.json): its text → who may use the gateway, and for what. */
import { ENDPOINTS, type EndpointId } from '../api/endpoints.ts';
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

/** The form of a client's name, which appears in logs, receipts and the names of keys. */
export const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

/** What a client may use of the gateway in a time; undefined: no limit. */
export interface Limits {
  /** Requests that are admitted within any 60 s. */
  readonly requestsPerMinute: number | undefined;
  /** Tokens in and out of a day (UTC). A request is admitted while fewer are counted, so the last one may go beyond. */
  readonly tokensPerDay: number | undefined;
  /** Requests that run at the same time. */
  readonly maxConcurrent: number | undefined;
}

const CACHE_SALTS = ['client', 'shared', 'own'] as const;

/** One client, as the file has it. */
export interface ClientEntry {
  /** Unique; letters, digits and `._@-`, at most 64. */
  readonly name: string;
  /** SHA-256 of each of its tokens, 32 bytes. No two entries share one. None: known by its certificate only. */
  readonly tokens: readonly Uint8Array[];
  /** ms since 1970, from which on its tokens are refused. */
  readonly expires: number | undefined;
  /** Names of models, in which `*` stands for any characters; undefined: all. */
  readonly models: readonly string[] | undefined;
  readonly endpoints: readonly EndpointId[] | undefined;
  /** As written, without the `@`. */
  readonly apiKeyFile: string | undefined;
  /**
   * Which prompt cache it uses. `client`: one of its own, also where its requests bring a salt. `own`: the one of that salt, and without
   * a salt one of its own. `shared`: as without --clients.
   */
  readonly cacheSalt: (typeof CACHE_SALTS)[number];
  readonly limits: Limits;
}

/** Of the text. Each request compares its token with all of them. */
export const MOST_BYTES = 1024 * 1024;
const MOST_TOKENS = 4096;

/** Throws config_invalid with the JSON path and what is expected there. Quotes no value of the file: it may be a token. */
type Refuse = (at: Path, expected: string) => never;
type Read<T> = (value: JsonValue, at: Path, refuse: Refuse) => T;

/** By which people and secret scanners tell a token of a gateway from a key of the service. */
export const TOKEN_PREFIX = 'pmp_';
const DIGEST = /^[0-9a-f]{64}$/;
const PATTERN = /^[^\x00-\x1f\x7f]{1,256}$/;
const KEY_FILE = /^@[^\0]+$/s;

const matching =
  (pattern: RegExp, expected: string): Read<string> =>
  (value, at, refuse) =>
    typeof value === 'string' && pattern.test(value) ? value : refuse(at, expected);

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

/** More is no limit, and counts beyond 2^53 are not exact. */
const MOST_OF_A_LIMIT = 2 ** 31;
const limit: Read<number> = (value, at, refuse) => {
  // As written: 1.0 and 1e3 are no whole numbers here.
  const text = value instanceof JsonNumber ? value.text : '';
  return /^[1-9]\d{0,9}$/.test(text) && Number(text) <= MOST_OF_A_LIMIT
    ? Number(text)
    : refuse(at, `a whole number from 1 to ${MOST_OF_A_LIMIT}, in digits alone; leave it out for no limit`);
};

const digest: Read<Uint8Array> = (value, at, refuse) => {
  const isToken = typeof value === 'string' && value.startsWith(TOKEN_PREFIX);
  const hint = isToken ? ', not the token itself' : '';
  const expected = `the SHA-256 of a token, 64 lower-case hex digits${hint}; "privatemode-proxy clients new" prints both`;
  return Buffer.from(matching(DIGEST, expected)(value, at, refuse), 'hex');
};

/** ms since 1970. */
const time: Read<number> = (value, at, refuse) => {
  const moment = typeof value === 'string' ? momentIn(value) : undefined;
  return moment?.getTime() ?? refuse(at, 'a time such as 2027-01-31T00:00:00Z (RFC 3339)');
};

const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  (value, at, refuse) =>
    value === undefined ? undefined : read(value, at, refuse);

/** The members of a client; all others are refused. */
const MEMBERS = {
  name: matching(
    CLIENT_NAME,
    'a name of at most 64 letters, digits and . _ @ -, beginning with a letter or digit',
  ),
  tokens: optional(
    listOf(digest, 'a list of at least one digest; to lock a client out, remove its whole entry'),
  ),
  expires: optional(time),
  models: optional(listOf(matching(PATTERN, 'the name of a model, in which * stands for any characters'))),
  endpoints: optional(listOf(oneOf(ENDPOINTS.map(({ id }) => id)))),
  apiKey: optional(matching(KEY_FILE, '@ and the path of a file; keys do not belong into this file')),
  cacheSalt: optional(oneOf(CACHE_SALTS)),
  requestsPerMinute: optional(limit),
  tokensPerDay: optional(limit),
  maxConcurrent: optional(limit),
} satisfies Readonly<Record<string, Read<unknown>>>;

/**
 * Reads the file. `needsKeys`: no key is configured, so each client must bring one. `tokensOptional`: clients may be known by their
 * certificates. Throws config_invalid, with the JSON path of what is wrong; the error quotes no token, digest or other value.
 */
export function parseClientsFile(
  bytes: Uint8Array,
  {
    needsKeys,
    tokensOptional = false,
  }: { readonly needsKeys: boolean; readonly tokensOptional?: boolean | undefined },
): readonly ClientEntry[] {
  const refuse: Refuse = (at, expected) => {
    throw invalid(`--clients: ${withoutSecrets(pathText(at) || 'the file')}: expected ${expected}`);
  };
  if (bytes.length > MOST_BYTES) refuse([], `at most ${MOST_BYTES} bytes`);
  const file = parseStrictJson(bytes, { depth: 4, values: 65_536 }, (reason, defect) =>
    invalid(`--clients: ${withoutSecrets(withLine(reason, defect, bytes))}`),
  );
  const { clients } = membersOf(
    file,
    [],
    { $schema: optional(matching(/^/, 'a text')), clients: any },
    refuse,
  );
  if (!Array.isArray(clients)) return refuse(['clients'], 'a list of clients, in brackets');
  const entries = clients.map((value: JsonValue, i) => entryOf(value, ['clients', i], refuse));
  for (const [i, { apiKeyFile, tokens }] of entries.entries()) {
    if (!tokensOptional && tokens.length === 0)
      refuse(
        ['clients', i, 'tokens'],
        'a list of at least one digest; it may be empty only with --tls-client-ca',
      );
    if (needsKeys && apiKeyFile === undefined)
      refuse(['clients', i, 'apiKey'], 'a key file, since there is no --api-key');
  }
  refuseRepeated(entries, refuse);
  return Object.freeze(entries);
}

const any: Read<JsonValue> = (value) => value;

function entryOf(value: JsonValue, at: Path, refuse: Refuse): ClientEntry {
  const members = membersOf(value, at, MEMBERS, refuse);
  const { apiKey, cacheSalt = 'client', tokens = [], ...others } = members;
  const { requestsPerMinute, tokensPerDay, maxConcurrent, ...rest } = others;
  const limits = Object.freeze({ requestsPerMinute, tokensPerDay, maxConcurrent });
  return Object.freeze({ ...rest, tokens, apiKeyFile: apiKey?.slice(1), cacheSalt, limits });
}

/** Reads the members of an object by a table, which has a row for each that may be there. */
function membersOf<Rows extends Readonly<Record<string, Read<unknown>>>>(
  value: JsonValue,
  at: Path,
  rows: Rows,
  refuse: Refuse,
): { readonly [Name in keyof Rows]: ReturnType<Rows[Name]> } {
  if (!(value instanceof JsonObject))
    return refuse(at, at.length === 0 ? 'an object with the member "clients"' : 'an object');
  for (const name of value.keys()) {
    if (!Object.hasOwn(rows, name)) refuse([...at, name], `a known member: ${Object.keys(rows).join(', ')}`);
  }
  const entries = Object.entries(rows).map(([name, read]) => [
    name,
    read(value.get(name) as JsonValue, [...at, name], refuse),
  ]);
  return Object.fromEntries(entries);
}

/** A name or token that two clients have would leave open which of them asks. */
function refuseRepeated(entries: readonly ClientEntry[], refuse: Refuse): void {
  const names = new Set<string>();
  const digests = new Set<string>();
  for (const [i, { name, tokens }] of entries.entries()) {
    if (names.has(name)) refuse(['clients', i, 'name'], 'a name that no other client has');
    names.add(name);
    for (const [k, token] of tokens.entries()) {
      const text = Buffer.from(token).toString('hex');
      if (digests.has(text)) refuse(['clients', i, 'tokens', k], 'a token that is in the file once');
      digests.add(text);
    }
  }
  if (digests.size > MOST_TOKENS) refuse(['clients'], `at most ${MOST_TOKENS} tokens`);
}

/** Adds the line to the error of a file that is no JSON: editors show lines. */
function withLine(reason: string, { kind, position }: JsonDefect, bytes: Uint8Array): string {
  if (bytes.length === 0) return 'the file is empty';
  if (kind !== 'syntax') return reason;
  const line = Buffer.from(bytes).toString().slice(0, position).split('\n').length;
  return `${reason}, in line ${line} (JSON has no comments, and no comma behind the last item)`;
}

/** Cuts out of a text what may be a token, a digest or a key: names of members are short, and so is everything that we say. */
const withoutSecrets = (text: string): string => text.replace(/[^\s"'.,:;[\]]{25,}/g, '…');
