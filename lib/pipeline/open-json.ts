/** Unary responses: the values are opened in place, every other byte stays (inference.md 6.1). */
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { type ByteChain, createByteChain } from './byte-chain.ts';
import { createJsonIndex, type JsonMember } from './json-index.ts';
import { encryptionOrder } from './member-order.ts';
import type { ResponseOpener } from './response-opener.ts';

/**
 * What must be among the opened values. Names of members are not authenticated, and a body without any ciphertext
 * has nothing to authenticate: `{}`, or `choices` under another name, would be an empty success.
 */
export interface RequiredContent {
  /** Undefined: any value will do. */
  readonly member: string | undefined;
  /** What its JSON text begins with: its kind. */
  readonly first: string;
}

export interface JsonOpenOptions {
  readonly cipher: Pick<RequestCipher, 'openAll'>;
  /** The members that arrive plain: one of `PLAIN_MEMBERS`. */
  readonly plain: ReadonlySet<string>;
  /** Bytes on the wire beyond which the response is refused. */
  readonly maxBytes: number;
  /** Whether the body may be an array: of unstructured alone (6.1). Default true. */
  readonly arrays?: boolean;
  /** Without it the body is refused with response_not_authentic. */
  readonly required?: RequiredContent;
}

const EMPTY = Buffer.alloc(0);

const holds = (opened: ReadonlyMap<JsonMember, Buffer>, { member, first }: RequiredContent): boolean =>
  [...opened].some(
    ([{ name }, plaintext]) =>
      (member === undefined || name === member) && plaintext.toString('latin1', 0, first.length) === first,
  );

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

/**
 * Comes to the text with every member that is not in `plain` opened, in the order of the sequence numbers (5.2), and
 * yields where others should have their turn. Throws response_not_authentic where a value is no ciphertext or what is
 * required is not there, and what `cipher.openAll` throws.
 */
function* openMembers(
  chain: ByteChain,
  members: readonly JsonMember[],
  { plain, cipher, required }: JsonOpenOptions,
): Generator<undefined, Buffer, undefined> {
  const opened = new Map<JsonMember, Buffer>();
  for (const batch of batchesOf(encryptionOrder(members, plain))) {
    if (opened.size > 0) yield;
    for (const [k, plaintext] of openBatch(chain, batch, cipher).entries()) opened.set(batch[k]!, plaintext);
  }
  if (required !== undefined && !holds(opened, required)) {
    throw new PrivatemodeError('response_not_authentic', 'the response holds no authenticated content');
  }
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

/**
 * Collects an encrypted JSON body (object, array or nothing at all) and gives it, opened, at the end. Fails
 * with response_too_large, response_malformed (no JSON, or members the service cannot have sent) or
 * response_not_authentic; nothing is delivered then.
 */
export function createJsonOpener(options: JsonOpenOptions): ResponseOpener {
  const { maxBytes } = options;
  const chain = createByteChain();
  const index = createJsonIndex({ arrays: options.arrays ?? true });
  let opening: ReturnType<typeof openMembers> | undefined;

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
        opening ??= openMembers(chain, chain.length === 0 ? [] : index.finish(), options);
        const { done, value } = opening.next();
        opener.pending = done !== true;
        return value ?? EMPTY;
      }),
  };
  return opener;
}
