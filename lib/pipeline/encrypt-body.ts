/** Encrypts a request: seals its values with the cipher of one attempt, and puts them into its text. */
import type { MessageSealer, RequestCipher } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import { encryptionOrder } from '../json/names.ts';

/** A body in the order of its text: values, and what stands between them, which leaves as it is. */
export interface Content {
  readonly values: readonly Value[];
  /** What stands behind the last value. */
  readonly end: Uint8Array;
  /** Whether the messages are numbered by the names of the values (JSON), or in the order of the text. */
  readonly byName: boolean;
  /** Whether the endpoint has a salt. */
  readonly salted: boolean;
  /** Of a form that leaves, with its boundary. */
  readonly contentType?: string;
}

/** The value of a member of an object, or of a field of a form; a body of any kind is one value. */
export interface Value {
  readonly name: string;
  /** What stands between the value before and this one. */
  readonly before: Uint8Array;
  readonly bytes: Buffer;
  /** Whether it leaves as it is, and not as a message. */
  readonly isPlain: boolean;
}

export type EncryptedBody = ReturnType<typeof encryptBody>;

/** Slices of 64 KiB take twice as long over TLS. */
const SLICE_BYTES = 512 * 1024;
/** Bytes sealed or copied in one go. V8 frees what a larger step leaves behind only in a full collection. */
const STEP_BYTES = 32 * 1024;

/** Bytes or text to copy or, with a sealer, plaintext to seal. */
type Step = readonly [Uint8Array | string, (MessageSealer | undefined)?];

/**
 * Encrypts the body for one attempt; call it again with another cipher for a retry. Messages are numbered as
 * docs/protocol/inference.md 5.2 and 6.3 say. Returns the exact length, the content type that replaces the
 * request's own, if any, and the bytes in slices, each of which stays valid until two more have been pulled.
 * The values of a long body are sealed when their slice is pulled. Throws as the cipher does, and `internal`
 * if the slices do not add up to the length.
 */
export function encryptBody(
  { content: { values, end, byName, contentType } }: { readonly content: Content },
  cipher: RequestCipher,
) {
  const secret = values.filter(({ isPlain }) => !isPlain);
  const numbered = byName ? encryptionOrder(secret) : secret;
  const messages = cipher.seal(numbered.map(({ bytes }) => bytes));
  const sealed = new Map(numbered.map((value, i) => [value, messages[i]!]));
  let contentLength = end.length;
  for (const { before, bytes, isPlain } of values) {
    contentLength += before.length + (isPlain ? bytes.length : cipher.sealedLength(bytes.length));
  }
  const slices = slicesOf(stepsOf(values, sealed, end), contentLength);
  return { contentLength, slices, ...(contentType !== undefined && { contentType }) };
}

/** Cuts the body into steps, in the order of its text. */
function* stepsOf(
  values: readonly Value[],
  sealed: ReadonlyMap<Value, MessageSealer | string>,
  end: Uint8Array,
): Generator<Step> {
  for (const value of values) {
    yield* cut(value.before);
    const message = value.isPlain ? '' : sealed.get(value)!;
    if (value.isPlain) yield* cut(value.bytes);
    else if (typeof message === 'string') yield [message];
    else {
      yield [message.head];
      yield* cut(value.bytes, message);
      yield [message.final()];
    }
  }
  yield* cut(end);
}

function* cut(bytes: Uint8Array, sealer?: MessageSealer): Generator<Step> {
  for (let i = 0; i < bytes.length; i += STEP_BYTES) yield [bytes.subarray(i, i + STEP_BYTES), sealer];
}

/** What the steps make, in slices of at most 512 KiB. Two buffers alternate. */
function* slicesOf(steps: Iterable<Step>, contentLength: number): Generator<Uint8Array, void> {
  let left = contentLength;
  let used = 0;
  let slice: Buffer = Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
  let other: Buffer | undefined;
  for (const [bytes, sealer] of steps) {
    const size = sealer === undefined ? bytes.length : 2 * bytes.length;
    if (size > left) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
    if (used + size > slice.length) {
      yield slice.subarray(0, used);
      other ??= Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
      [slice, other] = [other, slice];
      used = 0;
    }
    if (typeof bytes === 'string') slice.write(bytes, used, 'latin1');
    else if (sealer === undefined) slice.set(bytes, used);
    else sealer.update(bytes, slice, used);
    used += size;
    left -= size;
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
  yield slice.subarray(0, used);
}
