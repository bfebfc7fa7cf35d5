/**
 * Decrypts whole responses: opens the values in place and keeps every other byte (docs/protocol/inference.md,
 * section 6.1).
 */
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { encryptionOrder } from '../json/names.ts';
import { MOST_SEARCHED } from '../network/client-too-old.ts';
import {
  type Decrypter,
  failureOf,
  malformed,
  notAuthentic,
  type Opener,
  type RequestFacts,
} from './decrypter.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonKind, type JsonMember } from './json/json-index.ts';
import {
  fitsRow,
  type GrammarRow,
  grammarOf,
  hasNames,
  isElement,
  MAX_PLAIN_BYTES,
  type PlainMembers,
  plainInErrors,
  type ResponseGrammar,
  requiredKind,
  TYPE_OF_ERRORS,
} from './response-grammar.ts';
import { type TokenUsage, tokenUsageIn } from './token-usage.ts';

/** Bytes on the wire beyond which a response is refused rather than held in memory. */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

const EMPTY = Buffer.alloc(0);

/** The opened values by the name of their member. */
type Opened = ReadonlyMap<string, Buffer>;

/** Work that yields when other exchanges should have their turn. */
type Steps<T> = Generator<undefined, T, undefined>;

/**
 * One batch to open: at most this many messages. A batch ends sooner once its messages have this many bytes
 * together.
 */
const BATCH = { messages: 1024, bytes: 4 * 1024 * 1024 };

/**
 * Opens the sealed members, which come in the order of their sequence numbers (docs/protocol/inference.md,
 * section 5.2).
 */
function* openMembers(chain: ByteChain, sealed: readonly JsonMember[], cipher: Opener): Steps<Opened> {
  const opened = new Map<string, Buffer>();
  while (opened.size < sealed.length) {
    if (opened.size > 0) yield;
    const slices: Uint8Array[] = [];
    const starts: number[] = [];
    const ends: number[] = [];
    let bytes = 0;
    for (const { kind, start, end } of sealed.slice(opened.size, opened.size + BATCH.messages)) {
      if (kind !== 'string') throw notAuthentic('a value of the response is not encrypted');
      slices.push(...chain.slices(start, end));
      starts.push(bytes);
      bytes += end - start;
      ends.push(bytes);
      if (bytes >= BATCH.bytes) break;
    }
    const plaintexts: Buffer[] = [];
    cipher.openAll(Buffer.concat(slices), [...starts.keys()], starts, ends, plaintexts);
    for (const plaintext of plaintexts) opened.set(sealed[opened.size]!.name, plaintext);
  }
  return opened;
}

/** The text with the opened values in their places. */
function openedText(chain: ByteChain, members: readonly JsonMember[], opened: Opened): Buffer {
  const pieces: Uint8Array[] = [];
  let position = 0;
  for (const { name, start, end } of members) {
    const plaintext = opened.get(name);
    if (plaintext === undefined) continue;
    pieces.push(...chain.slices(position, start), plaintext);
    position = end;
  }
  pieces.push(...chain.slices(position, chain.length));
  return Buffer.concat(pieces);
}

/** Opened text is scanned in steps of this many bytes. */
const SCAN_BYTES = 1024 * 1024;

/**
 * Returns the members of the opened text. Throws response_not_authentic unless they have the names that
 * `members` had before the opening: each opened value must be one JSON value.
 */
function* scan(text: Buffer, members: readonly JsonMember[]): Steps<readonly JsonMember[]> {
  const index = createJsonIndex({ arrays: 'any' });
  for (let at = 0; at < text.length; at += SCAN_BYTES) {
    if (at > 0) yield;
    index.feed(text.subarray(at, at + SCAN_BYTES));
  }
  const found = text.length === 0 ? [] : index.finish();
  const same = found.length === members.length && found.every(({ name }, k) => name === members[k]!.name);
  if (!same) throw notAuthentic('a value of the response is not JSON');
  return found;
}

const equalsString = (json: Buffer, text: string): boolean => json.equals(Buffer.from(JSON.stringify(text)));

/**
 * Throws if the kind or the value of an opened member does not fit that row, or if there are not `choices`
 * choices.
 */
function checkMember(
  row: GrammarRow,
  name: string,
  kind: JsonKind,
  plaintext: Buffer,
  choices: number,
): void {
  const required = requiredKind(row, name);
  const wrong = () => notAuthentic('a member of the response is not what it should be');
  if (name === 'object' && row.object !== undefined) {
    if (!equalsString(plaintext, row.object)) throw wrong();
    return;
  }
  // A value is not parsed if its kind of JSON says enough: embeddings and segments may be many megabytes.
  if (required?.replace('?', '') === kind) return;
  const value: unknown = JSON.parse(plaintext.toString('utf8'));
  if (!fitsRow(row, name, value)) throw wrong();
  if (name === 'choices' && required !== undefined && (value as unknown[]).length !== choices) {
    throw notAuthentic('the response does not have as many choices as were asked for');
  }
}

/** The opened text, its members, and which of them were sealed. */
interface OpenedBody {
  readonly text: Buffer;
  readonly found: readonly JsonMember[];
  readonly opened: Opened;
}

/** Whether the plain member `type` is there and equals `expected`. Nothing authenticates it. */
function saysType({ text, found, opened }: OpenedBody, expected: string): boolean {
  const type = found.find(({ name }) => name === 'type' && !opened.has(name));
  return type !== undefined && equalsString(text.subarray(type.start, type.end), expected);
}

/** Throws unless a success consists of what was asked for, its plain members aside. */
function checkObject(body: OpenedBody, row: GrammarRow, plain: PlainMembers, choices: number): void {
  const { found, opened } = body;
  const isOfType = row.type === undefined || saysType(body, row.type);
  if (!hasNames(row, [...opened.keys()], plain) || !isOfType) {
    throw notAuthentic('the response does not consist of what was asked for');
  }
  for (const { name, kind } of found) {
    const plaintext = opened.get(name);
    if (plaintext !== undefined) checkMember(row, name, kind, plaintext, choices);
  }
}

/**
 * Throws unless each member that was not sealed is in `plain`, of a kind that it has there, and no longer
 * than MAX_PLAIN_BYTES.
 */
function checkPlain({ found, opened }: OpenedBody, plain: PlainMembers): void {
  for (const { name, kind, start, end } of found) {
    if (opened.has(name)) continue;
    if (!plain.get(name)?.includes(kind) || end - start > MAX_PLAIN_BYTES) {
      throw malformed('a plain member of the response is not what it should be');
    }
  }
}

/**
 * Throws if checkPlain refuses the plain members of an error, or if a plain `type` says that it is something
 * else. Sealed members may be anything.
 */
function checkError(body: OpenedBody, plain: PlainMembers): void {
  checkPlain(body, plainInErrors(plain));
  const typed = body.found.some(({ name }) => name === 'type' && !body.opened.has(name));
  if (typed && !saysType(body, TYPE_OF_ERRORS))
    throw malformed('an error of the service says it is another thing');
}

/**
 * Throws unless a success is an array, each value of which is an element or the elements of one document. Of
 * a value of more than SCAN_BYTES only the beginning is read: it is no error, because these are short.
 */
function* checkElements({ text, found }: OpenedBody): Steps<void> {
  const wrong = () => notAuthentic('the response is no document');
  if (!/^\s*\[/.test(text.toString('latin1', 0, 64))) throw wrong();
  let checked = 0;
  for (const { start, end } of found) {
    if (end - checked > SCAN_BYTES) {
      yield;
      checked = start;
    }
    const isLong = end - start > SCAN_BYTES;
    if (isLong ? !beginsAsElements(text, start) : !isElements(text.toString('utf8', start, end)))
      throw wrong();
  }
}

const beginsAsElements = (text: Buffer, start: number): boolean =>
  /^(?:\{|\[\s*[{\]])/.test(text.toString('latin1', start, start + 64));
const isElements = (json: string): boolean => [JSON.parse(json)].flat().every(isElement);

/** Returns the opened text and what its plain member `usage` says, if the endpoint has one. */
function* decrypt(
  chain: ByteChain,
  members: readonly JsonMember[],
  { plain, whole }: ResponseGrammar,
  cipher: Opener,
  asked: RequestFacts | undefined,
): Steps<{ readonly text: Buffer; readonly usage: TokenUsage | undefined }> {
  const opened = yield* openMembers(chain, encryptionOrder(members, plain), cipher);
  if (asked === undefined && opened.size === 0) {
    throw notAuthentic('the response holds no authenticated content');
  }
  const text = openedText(chain, members, opened);
  const body = { text, found: yield* scan(text, members), opened };
  if (asked === undefined) checkError(body, plain);
  else if (whole === undefined) yield* checkElements(body);
  else {
    const { format = 'other', choices } = asked;
    const row = Object.hasOwn(whole, format) ? whole[format] : undefined;
    checkObject(body, row ?? whole.other, plain, choices);
    checkPlain(body, plain);
  }
  const usage = body.found.find(({ name }) => name === 'usage' && plain.has(name));
  return { text, usage: usage && tokenUsageIn(text.toString('latin1', usage.start, usage.end)) };
}

/**
 * Decrypts a whole JSON body of that endpoint: collects it, and returns it, opened, at the end, but nothing
 * of it before. `asked` is what a success must be. It is undefined for an error, which may hold any sealed
 * members, and in clear only those that errors have. Fails with response_too_large, response_malformed (not
 * JSON, or members the service cannot have sent) or response_not_authentic (a wrong tag, or a body that
 * breaks the grammar). Throws `internal` if the endpoint's responses are not encrypted. `maxBytes` is for
 * tests only.
 *
 * An error does not fail before more than 4 KiB or all of it has come, so that one in plain text can be
 * searched. Once a body has failed, `failed` returns its bytes: all of them, or more than 4 KiB.
 */
export function createBodyDecrypter(
  endpoint: Pick<Endpoint, 'id'>,
  cipher: Opener,
  asked: RequestFacts | undefined,
  maxBytes = MAX_BODY_BYTES,
): Decrypter & { failed(): Uint8Array } {
  const grammar = grammarOf(endpoint);
  const chain = createByteChain();
  const index = createJsonIndex({ arrays: grammar.whole === undefined ? 'sealed' : undefined });
  let indexed = 0;
  let steps: ReturnType<typeof decrypt> | undefined;

  const indexRest = (): void => {
    const rest = chain.slices(indexed, chain.length);
    indexed = chain.length;
    for (const piece of rest) index.feed(piece);
  };

  /** Takes a step, unless one has failed. */
  const guarded = (step: () => Uint8Array): Uint8Array => {
    if (decrypter.failure !== undefined) return EMPTY;
    try {
      return step();
    } catch (thrown) {
      decrypter.pending = false;
      decrypter.failure = failureOf(thrown, 'the response');
      return EMPTY;
    }
  };

  const decrypter = {
    failure: undefined as PrivatemodeError | undefined,
    finished: false, // a body ends where the wire ends
    pending: false,
    usage: undefined as TokenUsage | undefined,
    feed(chunk: Uint8Array): Uint8Array {
      return guarded(() => {
        if (chain.length + chunk.length > maxBytes) {
          throw new PrivatemodeError('response_too_large', `the response is larger than ${maxBytes} bytes`);
        }
        chain.push(chunk);
        if (asked !== undefined || chain.length > MOST_SEARCHED) indexRest();
        return EMPTY;
      });
    },
    flush(): Uint8Array {
      return guarded(() => {
        indexRest();
        steps ??= decrypt(chain, chain.length === 0 ? [] : index.finish(), grammar, cipher, asked);
        const { done, value } = steps.next();
        decrypter.pending = done !== true;
        decrypter.usage = value?.usage;
        return value?.text ?? EMPTY;
      });
    },
    failed: (): Uint8Array => chain.bytes(0, Math.min(chain.length, MOST_SEARCHED + 1)),
  };
  return decrypter;
}
