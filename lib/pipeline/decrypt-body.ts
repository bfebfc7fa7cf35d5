/** Unary responses: the values are opened in place, every other byte stays (inference.md 6.1). */
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import {
  hasNames,
  type Kind,
  kindCheck,
  MAX_PLAIN_BYTES,
  mayHold,
  type Row,
  type WholeGrammar,
} from './grammar.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonKind, type JsonMember } from './json/json-index.ts';
import { encryptionOrder } from './json/member-names.ts';
import type { ResponseOpener } from './response-opener.ts';
import { type TokenUsage, tokenUsageIn } from './token-usage.ts';

export interface JsonOpenOptions {
  readonly cipher: Pick<RequestCipher, 'openAll'>;
  readonly grammar: WholeGrammar;
  /** Bytes on the wire beyond which the response is refused. */
  readonly maxBytes: number;
  /** What a success was asked for. Without it the body is an error, which may hold anything that is sealed. */
  readonly asked?: Asked;
}

interface Asked {
  readonly choices: number;
  readonly format: string | undefined;
}

const EMPTY = Buffer.alloc(0);

/** What is opened in one go: this many messages, or bytes of them where they are long. Other streams wait meanwhile. */
const BATCH = { messages: 1024, bytes: 4 * 1024 * 1024 };

function* batchesOf(members: readonly JsonMember[]): Generator<readonly JsonMember[], void, undefined> {
  let batch: JsonMember[] = [];
  let bytes = 0;
  for (const member of members) {
    if (member.kind !== 'string') {
      throw new PrivatemodeError('response_not_authentic', 'a value of the response is not encrypted');
    }
    batch.push(member);
    bytes += member.end - member.start;
    if (batch.length < BATCH.messages && bytes < BATCH.bytes) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  if (batch.length > 0) yield batch;
}

/** The plaintexts of members, in their order. */
function openBatch(
  chain: ByteChain,
  batch: readonly JsonMember[],
  cipher: Pick<RequestCipher, 'openAll'>,
): readonly Buffer[] {
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
  return plaintexts;
}

/** Returns the plaintexts of all sealed members, opened in the order of their sequence numbers (5.2). */
function* openMembers(
  chain: ByteChain,
  members: readonly JsonMember[],
  { grammar, cipher }: JsonOpenOptions,
): Generator<undefined, ReadonlyMap<JsonMember, Buffer>, undefined> {
  const opened = new Map<JsonMember, Buffer>();
  for (const batch of batchesOf(encryptionOrder(members, grammar.plain))) {
    if (opened.size > 0) yield;
    for (const [k, plaintext] of openBatch(chain, batch, cipher).entries()) opened.set(batch[k]!, plaintext);
  }
  return opened;
}

/** The text with the opened values in their places. */
function openedText(
  chain: ByteChain,
  members: readonly JsonMember[],
  opened: ReadonlyMap<JsonMember, Buffer>,
): Buffer {
  const pieces: Uint8Array[] = [];
  let position = 0;
  for (const member of members) {
    const plaintext = opened.get(member);
    if (plaintext === undefined) continue;
    pieces.push(...chain.slices(position, member.start), plaintext);
    position = member.end;
  }
  pieces.push(...chain.slices(position, chain.length));
  return Buffer.concat(pieces);
}

/** Opened text is scanned in steps of this many bytes. */
const SCAN_BYTES = 1024 * 1024;

const notAuthentic = (words: string) => new PrivatemodeError('response_not_authentic', words);

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
const UNPARSED: ReadonlyMap<Kind, readonly JsonKind[]> = new Map([
  ['string', ['string']],
  ['array', ['array']],
  ['array?', ['array', 'null']],
]);

/** Whether a sealed member may stand in that row. */
function fits(row: Row, name: string, kind: JsonKind, plaintext: Buffer): boolean {
  if (name === 'object' && row.object !== undefined) return plaintext.equals(jsonString(row.object));
  const required = Object.hasOwn(row.required, name) ? row.required[name] : undefined;
  const kinds = required && UNPARSED.get(required);
  if (kinds !== undefined) return kinds.includes(kind);
  const value: unknown = JSON.parse(plaintext.toString('utf8'));
  return required === undefined ? mayHold(row, name, value) : kindCheck(required)(value);
}

const jsonString = (text: string): Buffer => Buffer.from(JSON.stringify(text));

/** An element of a document, or the elements of one of several documents. */
const isElement = (opened: Buffer): boolean => /^\s*(?:\{|\[\s*[{\]])/.test(opened.toString('latin1', 0, 64));

/** Throws where a success does not consist of what was asked for. `found` are the members of the opened text. */
function checkSuccess(
  text: Buffer,
  found: readonly JsonMember[],
  opened: ReadonlyMap<string, Buffer>,
  grammar: WholeGrammar,
  { choices, format }: Asked,
): void {
  const row = grammar.row?.(format);
  if (row === undefined) {
    const isArray = /^\s*\[/.test(text.toString('latin1', 0, 64));
    if (!isArray || ![...opened.values()].every(isElement)) throw notAuthentic('the response is no document');
    return;
  }
  const type = found.find(({ name }) => name === 'type' && !opened.has(name));
  const ofType =
    grammar.type === undefined ||
    (type && text.subarray(type.start, type.end).equals(jsonString(grammar.type)));
  if (!hasNames(row, [...opened.keys()], grammar.plain) || !ofType) {
    throw notAuthentic('the response does not consist of what was asked for');
  }
  for (const { name, kind, start, end } of found) {
    const plaintext = opened.get(name);
    if (plaintext !== undefined && !fits(row, name, kind, plaintext)) {
      throw notAuthentic('a member of the response is not what it should be');
    }
    if (plaintext !== undefined) continue;
    if (!grammar.plainKinds[name]?.includes(kind) || end - start > MAX_PLAIN_BYTES) {
      throw new PrivatemodeError(
        'response_malformed',
        'a plain member of the response is not what it should be',
      );
    }
  }
  const listed =
    row.required['choices'] && (JSON.parse(opened.get('choices')!.toString('utf8')) as unknown[]);
  if (listed !== undefined && listed.length !== choices) {
    throw notAuthentic('the response does not have as many choices as were asked for');
  }
}

/**
 * Returns the opened text, and yields where others should have their turn. Throws response_not_authentic where a value is no
 * ciphertext or the body is not what it should be, response_malformed, and what `cipher.openAll` throws.
 */
function* openBody(
  chain: ByteChain,
  members: readonly JsonMember[],
  options: JsonOpenOptions,
): Generator<undefined, Buffer, undefined> {
  const opened = yield* openMembers(chain, members, options);
  if (options.asked === undefined && opened.size === 0) {
    throw notAuthentic('the response holds no authenticated content');
  }
  const text = openedText(chain, members, opened);
  const found = yield* scan(text, members);
  if (options.asked !== undefined) {
    const byName = new Map([...opened].map(([{ name }, plaintext]) => [name, plaintext]));
    checkSuccess(text, found, byName, options.grammar, options.asked);
  }
  return text;
}

/** The usage of a body that was found good. */
function usageOf(
  chain: ByteChain,
  members: readonly JsonMember[],
  { plain }: WholeGrammar,
): TokenUsage | undefined {
  const usage = plain.has('usage') ? members.find(({ name }) => name === 'usage') : undefined;
  if (usage === undefined || usage.end - usage.start > MAX_PLAIN_BYTES) return undefined;
  return tokenUsageIn(chain.bytes(usage.start, usage.end).toString('latin1'));
}

/**
 * Collects an encrypted JSON body and gives it, opened, at the end. Fails with response_too_large, response_malformed (no JSON,
 * or members the service cannot have sent) or response_not_authentic (a tag, or what the grammar says of such a body); nothing
 * is delivered then.
 */
export function createJsonOpener(options: JsonOpenOptions): ResponseOpener {
  const { maxBytes, grammar } = options;
  const chain = createByteChain();
  const index = createJsonIndex({ arrays: grammar.row === undefined ? 'sealed' : undefined });
  let opening: ReturnType<typeof openBody> | undefined;

  const guarded = (work: () => Buffer): Buffer => {
    if (opener.failure !== undefined) return EMPTY;
    try {
      return work();
    } catch (thrown) {
      opener.pending = false;
      const error = asPrivatemodeError(thrown);
      opener.failure =
        error.status === 400
          ? new PrivatemodeError('response_malformed', 'the response is not the JSON that was agreed')
          : error;
      return EMPTY;
    }
  };

  const opener = {
    failure: undefined as PrivatemodeError | undefined,
    finished: false, // a body ends where the wire ends
    pending: false,
    usage: undefined as TokenUsage | undefined,
    feed: (chunk: Uint8Array) =>
      guarded(() => {
        if (chain.length + chunk.length > maxBytes) {
          throw new PrivatemodeError('response_too_large', `the response is larger than ${maxBytes} bytes`);
        }
        chain.push(chunk);
        index.feed(chunk);
        return EMPTY;
      }),
    flush: () =>
      guarded(() => {
        opening ??= openBody(chain, chain.length === 0 ? [] : index.finish(), options);
        const { done, value } = opening.next();
        opener.pending = done !== true;
        if (done === true) opener.usage = usageOf(chain, index.members, grammar);
        return value ?? EMPTY;
      }),
  };
  return opener;
}
