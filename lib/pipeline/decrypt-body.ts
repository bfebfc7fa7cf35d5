/**
 * Decrypts whole responses: opens the messages, checks what they hold, and writes the body anew from that
 * (docs/protocol/inference.md, section 6.1).
 */
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { encryptionOrder } from '../json/names.ts';
import { scanInTurns } from '../json/scan.ts';
import { MOST_SEARCHED } from '../network/client-too-old.ts';
import { CollectedBytes } from './collected-bytes.ts';
import {
  type Decrypter,
  failureOf,
  malformed,
  notAuthentic,
  type Opener,
  openedValue,
  type RequestFacts,
} from './decrypter.ts';
import {
  fitsRow,
  type GrammarRow,
  grammarOf,
  hasNames,
  isElement,
  type PlainMembers,
  plainInErrors,
  type ResponseGrammar,
  requiredKind,
  TYPE_OF_ERRORS,
} from './response-grammar.ts';
import { SealedReader, sealedElements } from './sealed-json.ts';
import { type TokenUsage, tokenUsage } from './token-usage.ts';

/** Bytes on the wire beyond which a response is refused rather than held in memory. */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

const EMPTY = Buffer.alloc(0);

/** Work that yields when other exchanges should have their turn. */
type Steps<T> = Generator<undefined, T, undefined>;

/**
 * One batch to open: at most this many messages. A batch ends sooner once its messages have this many bytes
 * together.
 */
const BATCH = { messages: 1024, bytes: 4 * 1024 * 1024 };
/** Longer values are scanned in turns; shorter ones are parsed at once. */
const STEP_BYTES = 512 * 1024;

/** A body of the gateway; by the same index: its names and the texts of its values. */
interface Body {
  readonly names: readonly string[];
  readonly values: string[];
  /** For an array, the names are the indices as text (docs/protocol/inference.md, section 5.2). */
  readonly isArray: boolean;
}

function readBody(text: string, reader: SealedReader, mayBeArray: boolean): Body {
  if (mayBeArray && /^[ \t\n\r]*\[/.test(text)) {
    const values = sealedElements(text);
    return { names: [...values.keys()].map(String), values, isArray: true };
  }
  const { names, values } = reader.object(text);
  return { names, values, isArray: false };
}

/**
 * Replaces the messages at these indices, which come in the order of their sequence numbers, by what they
 * hold.
 */
function* openValues(values: string[], sealed: readonly number[], cipher: Opener): Steps<void> {
  for (let first = 0; first < sealed.length; ) {
    if (first > 0) yield;
    let end = first;
    for (let bytes = 0; end < sealed.length && end < first + BATCH.messages && bytes < BATCH.bytes; end++) {
      bytes += values[sealed[end]!]!.length;
    }
    const batch = sealed.slice(first, end);
    const opened = cipher.open(batch.map((at) => values[at]!));
    for (const [k, at] of batch.entries()) values[at] = opened[k]!;
    first = end;
  }
}

/** Throws response_not_authentic, or as the scan does, unless the text is one value of JSON. */
function* scan(text: string): Steps<void> {
  const { members } = yield* scanInTurns(Buffer.from(`[${text}]`, 'latin1'), { array: true });
  if (members.length !== 1) throw notAuthentic('a value of the response is not JSON');
}

/**
 * The value of an opened text, in turns. Where only the kind of a long value counts, an empty one of its kind
 * stands for it: embeddings and segments may be many megabytes.
 */
function* valueInTurns(text: string, onlyKind: boolean): Steps<unknown> {
  if (text.length <= STEP_BYTES || !/^[[{]/.test(text)) return openedValue(text);
  yield* scan(text);
  if (!onlyKind) return openedValue(text);
  return text.startsWith('[') ? [] : {};
}

/** Throws unless a success consists of what was asked for, its plain members aside. */
function* checkSuccess(
  { names, values }: Body,
  sealed: readonly number[],
  row: GrammarRow,
  plain: PlainMembers,
  choices: number,
): Steps<void> {
  const isOfType = row.type === undefined || saysType(names, values, plain, row.type);
  const sealedNames = sealed.map((at) => names[at]!);
  if (!isOfType || !hasNames(row, sealedNames, plain)) {
    throw notAuthentic('the response does not consist of what was asked for');
  }
  for (const at of sealed) {
    const name = names[at]!;
    const required = requiredKind(row, name);
    const value = yield* valueInTurns(values[at]!, /^(?:array|object)\??$/.test(required ?? ''));
    const isKind = name !== 'object' || row.object === undefined || value === row.object;
    if (!isKind || !fitsRow(row, name, value)) {
      throw notAuthentic('a member of the response is not what it should be');
    }
    if (name === 'choices' && required !== undefined && (value as unknown[]).length !== choices) {
      throw notAuthentic('the response does not have as many choices as were asked for');
    }
  }
}

/** Whether the plain member `type` is there and equals `expected`. Nothing authenticates it. */
const saysType = (
  names: readonly string[],
  values: readonly string[],
  plain: PlainMembers,
  expected: string,
): boolean => plain.has('type') && values[names.indexOf('type')] === JSON.stringify(expected);

/**
 * Throws unless the plain members of an error are those that errors have, and a plain `type` says that it is
 * one. Sealed members may be any JSON.
 */
function* checkError({ names, values }: Body, sealed: readonly number[], plain: PlainMembers): Steps<void> {
  if (sealed.length === 0) throw notAuthentic('the response holds no authenticated content');
  const inErrors = plainInErrors(plain);
  for (const [at, name] of names.entries()) {
    if (!plain.has(name)) yield* valueInTurns(values[at]!, true);
    else if (!inErrors.has(name))
      throw malformed('an error of the service has a member that errors do not have');
  }
  const hasType = plain.has('type') && names.includes('type');
  if (hasType && !saysType(names, values, plain, TYPE_OF_ERRORS))
    throw malformed('an error of the service says it is another thing');
}

/**
 * Throws unless a success is an array, each value of which is an element or the elements of one document. Of
 * a value of more than STEP_BYTES only the beginning is read: it is no error, because these are short.
 */
function* checkElements({ values, isArray }: Body): Steps<void> {
  const wrong = () => notAuthentic('the response is no document');
  if (!isArray) throw wrong();
  let bytes = 0;
  for (const text of values) {
    if (bytes > STEP_BYTES) yield;
    bytes = (bytes > STEP_BYTES ? 0 : bytes) + text.length;
    if (text.length > STEP_BYTES) {
      yield* scan(text);
      if (!/^(?:\{|\[\s*[{\]])/.test(text)) throw wrong();
    } else if (![openedValue(text)].flat().every(isElement)) throw wrong();
  }
}

/** Returns the opened text and what its plain member `usage` says, if the endpoint has one. */
function* decrypt(
  wire: Buffer,
  { plain, whole }: ResponseGrammar,
  cipher: Opener,
  asked: RequestFacts | undefined,
): Steps<{ readonly text: Buffer; readonly usage: TokenUsage | undefined }> {
  const reader = new SealedReader(plain);
  const body = readBody(wire.toString('latin1'), reader, whole === undefined);
  const { names, values, isArray } = body;
  const numbered = names.map((name, at) => ({ name, at }));
  const sealed = encryptionOrder(numbered, plain).map(({ at }) => at);
  yield* openValues(values, sealed, cipher);
  if (asked === undefined) yield* checkError(body, sealed, plain);
  else if (whole === undefined) yield* checkElements(body);
  else {
    const { format = 'other', choices } = asked;
    const row = Object.hasOwn(whole, format) ? whole[format] : undefined;
    yield* checkSuccess(body, sealed, row ?? whole.other, plain, choices);
  }
  const text = isArray
    ? `[${values.join()}]`
    : `{${names.map((name, at) => `"${name}":${values[at]!}`).join()}}`;
  return { text: Buffer.from(text, 'latin1'), usage: tokenUsage(reader.usage) };
}

/**
 * Decrypts a whole JSON body of that endpoint: collects it, and returns it, opened, at the end, but nothing
 * of it before. Members come out in the order in which they came. `asked` is what a success must be. It is
 * undefined for an error, which may hold any sealed members, and in clear only those that errors have. Fails
 * with response_too_large, response_malformed (not the JSON of section 6.1) or response_not_authentic (a
 * wrong tag, or a body that breaks the grammar). Throws `internal` if the endpoint's responses are not
 * encrypted. `maxBytes` is for tests only.
 *
 * Once a body has failed, `failed` returns its bytes: all of them, or more than 4 KiB.
 */
export function createBodyDecrypter(
  endpoint: Pick<Endpoint, 'id'>,
  cipher: Opener,
  asked: RequestFacts | undefined,
  maxBytes = MAX_BODY_BYTES,
): Decrypter & { failed(): Uint8Array } {
  const grammar = grammarOf(endpoint);
  const wire = new CollectedBytes();
  let steps: ReturnType<typeof decrypt> | undefined;

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
        if (wire.length + chunk.length > maxBytes) {
          throw new PrivatemodeError('response_too_large', `the response is larger than ${maxBytes} bytes`);
        }
        wire.push(chunk);
        return EMPTY;
      });
    },
    flush(): Uint8Array {
      return guarded(() => {
        if (wire.length === 0) throw notAuthentic('the response holds no authenticated content');
        steps ??= decrypt(wire.bytes(), grammar, cipher, asked);
        const { done, value } = steps.next();
        decrypter.pending = done !== true;
        decrypter.usage = value?.usage;
        return value?.text ?? EMPTY;
      });
    },
    failed: (): Uint8Array => wire.bytes().subarray(0, MOST_SEARCHED + 1),
  };
  return decrypter;
}

export async function decryptBody(
  endpoint: Parameters<typeof createBodyDecrypter>[0],
  cipher: Parameters<typeof createBodyDecrypter>[1],
  asked: Parameters<typeof createBodyDecrypter>[2],
  bytes: Buffer,
) {
  const decrypter = createBodyDecrypter(endpoint, cipher, asked);
  const pieces = [decrypter.feed(bytes)];
  do pieces.push(decrypter.flush());
  while (decrypter.pending);
  if (decrypter.failure) throw decrypter.failure;
  return { body: Buffer.concat(pieces), usage: decrypter.usage };
}
