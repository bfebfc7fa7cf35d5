/** Whole responses: the values are opened in place, every other byte stays (docs/protocol/inference.md, section 6.1). */
import type { Endpoint } from '../api/endpoints.ts';
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Asked, type Decrypter, failureOf, malformed, notAuthentic } from './decrypter.ts';
import {
  fitsRow,
  grammarOf,
  hasNames,
  type Kind,
  MAX_PLAIN_BYTES,
  type PlainMembers,
  type ResponseGrammar,
  type Row,
  requiredKind,
} from './grammar.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonIndex, type JsonKind, type JsonMember } from './json/json-index.ts';
import { encryptionOrder } from './json/json-text.ts';
import { type TokenUsage, tokenUsageIn } from './token-usage.ts';

/** Bytes on the wire beyond which a response is refused rather than held in memory. */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

const EMPTY = Buffer.alloc(0);

/** The opened values by the name of their member. */
type Opened = ReadonlyMap<string, Buffer>;

/** What is opened in one go: this many messages, or bytes of them if they are long. Other exchanges wait meanwhile. */
const BATCH = { messages: 1024, bytes: 4 * 1024 * 1024 };

function* batchesOf(members: readonly JsonMember[]): Generator<readonly JsonMember[], void, undefined> {
  let batch: JsonMember[] = [];
  let bytes = 0;
  for (const member of members) {
    if (member.kind !== 'string') throw notAuthentic('a value of the response is not encrypted');
    batch.push(member);
    bytes += member.end - member.start;
    if (batch.length < BATCH.messages && bytes < BATCH.bytes) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  if (batch.length > 0) yield batch;
}

/** Opens all sealed members, in the order of their sequence numbers (docs/protocol/inference.md, section 5.2). */
function* openMembers(
  chain: ByteChain,
  members: readonly JsonMember[],
  plain: PlainMembers,
  cipher: Pick<RequestCipher, 'openAll'>,
): Generator<undefined, Opened, undefined> {
  const opened = new Map<string, Buffer>();
  for (const batch of batchesOf(encryptionOrder(members, plain))) {
    if (opened.size > 0) yield;
    const source = Buffer.concat(batch.flatMap(({ start, end }) => chain.slices(start, end)));
    const starts: number[] = [];
    const ends: number[] = [];
    let position = 0;
    for (const { start, end } of batch) {
      starts.push(position);
      position += end - start;
      ends.push(position);
    }
    const plaintexts: Buffer[] = [];
    cipher.openAll(source, [...batch.keys()], starts, ends, plaintexts);
    for (const [k, { name }] of batch.entries()) opened.set(name, plaintexts[k]!);
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

/** The members of the opened text, which must be those that were sealed: an opened value is one JSON value. */
function* scan(
  text: Buffer,
  members: readonly JsonMember[],
): Generator<undefined, readonly JsonMember[], undefined> {
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

/** Kinds that the JSON text alone tells. Embeddings and segments may be many megabytes, so they are not parsed. */
const UNPARSED: ReadonlyMap<Kind | undefined, readonly JsonKind[]> = new Map([
  ['string', ['string']],
  ['array', ['array']],
  ['array?', ['array', 'null']],
]);

const equalsString = (json: Buffer, text: string): boolean => json.equals(Buffer.from(JSON.stringify(text)));

/** Throws unless an opened member may stand in that row, with `choices` choices. */
function checkMember(row: Row, name: string, kind: JsonKind, plaintext: Buffer, choices: number): void {
  const required = requiredKind(row, name);
  const wrong = () => notAuthentic('a member of the response is not what it should be');
  if (name === 'object' && row.object !== undefined) {
    if (!equalsString(plaintext, row.object)) throw wrong();
    return;
  }
  const kinds = UNPARSED.get(required);
  if (kinds !== undefined) {
    if (!kinds.includes(kind)) throw wrong();
    return;
  }
  const value: unknown = JSON.parse(plaintext.toString('utf8'));
  if (!fitsRow(row, name, value)) throw wrong();
  if (name === 'choices' && required !== undefined && (value as unknown[]).length !== choices) {
    throw notAuthentic('the response does not have as many choices as were asked for');
  }
}

/** Throws unless a success consists of what was asked for. `found` are the members of the opened text. */
function checkObject(
  text: Buffer,
  found: readonly JsonMember[],
  opened: Opened,
  row: Row,
  plain: PlainMembers,
  choices: number,
): void {
  const type = found.find(({ name }) => name === 'type' && !opened.has(name));
  const isOfType =
    row.type === undefined || (type && equalsString(text.subarray(type.start, type.end), row.type));
  if (!hasNames(row, [...opened.keys()], plain) || !isOfType) {
    throw notAuthentic('the response does not consist of what was asked for');
  }
  for (const { name, kind, start, end } of found) {
    const plaintext = opened.get(name);
    if (plaintext !== undefined) checkMember(row, name, kind, plaintext, choices);
    else if (!plain.get(name)?.includes(kind) || end - start > MAX_PLAIN_BYTES) {
      throw malformed('a plain member of the response is not what it should be');
    }
  }
}

/** Whether it begins like an element of a document, or the elements of one of several documents. */
const isElement = (opened: Buffer): boolean => /^\s*(?:\{|\[\s*[{\]])/.test(opened.toString('latin1', 0, 64));

/** Throws unless a success is an array of elements. */
function checkElements(text: Buffer, opened: Opened): void {
  const isArray = /^\s*\[/.test(text.toString('latin1', 0, 64));
  if (!isArray || ![...opened.values()].every(isElement)) throw notAuthentic('the response is no document');
}

function rowFor(whole: NonNullable<ResponseGrammar['whole']>, format: string | undefined): Row {
  return (format !== undefined && Object.hasOwn(whole, format) ? whole[format] : undefined) ?? whole.other;
}

/** Collects an encrypted JSON body and gives it, opened, at the end; nothing of it before. */
class BodyDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  readonly finished = false; // a body ends where the wire ends
  pending = false;
  usage: TokenUsage | undefined = undefined;

  readonly #grammar: ResponseGrammar;
  readonly #cipher: Pick<RequestCipher, 'openAll'>;
  readonly #asked: Asked | undefined;
  readonly #maxBytes: number;
  readonly #chain: ByteChain = createByteChain();
  readonly #index: JsonIndex;
  #steps: Generator<undefined, Buffer, undefined> | undefined;

  constructor(
    grammar: ResponseGrammar,
    cipher: Pick<RequestCipher, 'openAll'>,
    asked: Asked | undefined,
    maxBytes: number,
  ) {
    this.#grammar = grammar;
    this.#cipher = cipher;
    this.#asked = asked;
    this.#maxBytes = maxBytes;
    this.#index = createJsonIndex({ arrays: grammar.whole === undefined ? 'sealed' : undefined });
  }

  feed(chunk: Uint8Array): Uint8Array {
    if (this.failure !== undefined) return EMPTY;
    try {
      if (this.#chain.length + chunk.length > this.#maxBytes) {
        throw new PrivatemodeError(
          'response_too_large',
          `the response is larger than ${this.#maxBytes} bytes`,
        );
      }
      this.#chain.push(chunk);
      this.#index.feed(chunk);
    } catch (thrown) {
      this.failure = failureOf(thrown, 'the response');
    }
    return EMPTY;
  }

  flush(): Uint8Array {
    if (this.failure !== undefined) return EMPTY;
    try {
      this.#steps ??= this.#decrypt();
      const { done, value } = this.#steps.next();
      this.pending = done !== true;
      return value ?? EMPTY;
    } catch (thrown) {
      this.pending = false;
      this.failure = failureOf(thrown, 'the response');
      return EMPTY;
    }
  }

  /** Returns the opened text, and yields when other exchanges should have their turn. */
  *#decrypt(): Generator<undefined, Buffer, undefined> {
    const { plain, whole } = this.#grammar;
    const members = this.#chain.length === 0 ? [] : this.#index.finish();
    const opened = yield* openMembers(this.#chain, members, plain, this.#cipher);
    if (this.#asked === undefined && opened.size === 0) {
      throw notAuthentic('the response holds no authenticated content');
    }
    const text = openedText(this.#chain, members, opened);
    const found = yield* scan(text, members);
    if (this.#asked !== undefined) {
      const { choices, format } = this.#asked;
      if (whole === undefined) checkElements(text, opened);
      else checkObject(text, found, opened, rowFor(whole, format), plain, choices);
    }
    this.usage = this.#usageOf(members);
    return text;
  }

  #usageOf(members: readonly JsonMember[]): TokenUsage | undefined {
    if (!this.#grammar.plain.has('usage')) return undefined;
    const usage = members.find(({ name }) => name === 'usage');
    if (usage === undefined || usage.end - usage.start > MAX_PLAIN_BYTES) return undefined;
    return tokenUsageIn(this.#chain.bytes(usage.start, usage.end).toString('latin1'));
  }
}

/**
 * Decrypts a whole JSON body of that endpoint. `asked`: what a success must be; undefined for an error, which may hold anything
 * that is sealed. Fails with response_too_large, response_malformed (no JSON, or members the service cannot have sent) or
 * response_not_authentic (a tag, or what the grammar says of such a body). Throws `internal` if the endpoint's responses are not
 * encrypted. `maxBytes` is for tests only.
 */
export function createBodyDecrypter(
  endpoint: Pick<Endpoint, 'id'>,
  cipher: Pick<RequestCipher, 'openAll'>,
  asked: Asked | undefined,
  maxBytes = MAX_BODY_BYTES,
): Decrypter {
  return new BodyDecrypter(grammarOf(endpoint), cipher, asked, maxBytes);
}
