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
  readonly cipher: Pick<RequestCipher, 'openAt'>;
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

/**
 * The text with every member that is not in `plain` opened, in the order of the sequence numbers (5.2).
 * Throws response_not_authentic where a value is no ciphertext, and what `cipher.openAt` throws.
 */
export function openMembers(
  chain: ByteChain,
  members: readonly JsonMember[],
  plain: ReadonlySet<string>,
  cipher: Pick<RequestCipher, 'openAt'>,
  required?: RequiredContent,
): Buffer {
  const opened = new Map<JsonMember, Buffer>();
  for (const member of encryptionOrder(members, plain)) {
    if (member.kind !== 'string') {
      throw new PrivatemodeError('response_not_authentic', 'a value of the response is not encrypted');
    }
    const message = chain.bytes(member.start, member.end);
    opened.set(member, cipher.openAt(message, 0, message.length));
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
  const { cipher, plain, maxBytes, required } = options;
  const chain = createByteChain();
  const index = createJsonIndex({ arrays: options.arrays ?? true });

  const guarded = (work: () => Buffer): Buffer => {
    if (opener.failure !== undefined) return EMPTY;
    try {
      return work();
    } catch (thrown) {
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
      guarded(() => openMembers(chain, chain.length === 0 ? [] : index.finish(), plain, cipher, required)),
  };
  return opener;
}
