/** Encrypts the values of a request with the cipher of one attempt, and puts the results into its text. */
import type { MessageSealer, RequestCipher } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import { encryptionOrder } from '../json/names.ts';

/** A request body as values in the order of its text. Text between and behind the values is not changed. */
export interface Content {
  readonly values: readonly Value[];
  readonly end: Uint8Array;
  readonly salted: boolean; // whether the endpoint takes a cache salt
  readonly contentType?: string | undefined; // of a form only: its content type, which names the new boundary
}

/** The value of a JSON member or of a form field. A raw body is one value. */
export interface Value {
  readonly name: string; // a JSON member's name, by which messages are numbered; empty for other values
  readonly before: Uint8Array;
  readonly bytes: Buffer;
  readonly isPlain: boolean; // whether the value is sent unencrypted
}

const SLICE_BYTES = 512 * 1024; // with slices of 64 KiB, TLS takes twice as long
const STEP_BYTES = 32 * 1024; // bytes per step; larger results stay in memory until a full garbage collection

type Step = readonly [Uint8Array | string | (() => string), sealer?: MessageSealer];

/**
 * Encrypts the body for one attempt; docs/protocol/inference.md 5.2 and 6.3 number the messages. Returns the
 * exact length, a content type that replaces the request's own, and the bytes in slices. A slice is valid
 * until two more are read. Reading a slice seals long values, and throws `internal` if the length is wrong.
 */
export function encryptBody(
  { values, end, contentType }: Content,
  cipher: Pick<RequestCipher, 'seal' | 'sealedLength'>,
) {
  const secret = encryptionOrder(values.filter(({ isPlain }) => !isPlain));
  const messages = cipher.seal(secret.map(({ bytes }) => bytes));
  const sealed = new Map(secret.map((value, i) => [value, messages[i]!]));
  const steps: Step[] = [];
  let contentLength = end.length;
  for (const value of values) {
    const { before, bytes, isPlain } = value;
    const message = isPlain ? bytes : sealed.get(value)!;
    contentLength += before.length + (isPlain ? bytes.length : cipher.sealedLength(bytes.length));
    steps.push([before]);
    if (message instanceof Uint8Array || typeof message === 'string') steps.push([message]);
    else steps.push([message.head], [bytes, message], [() => message.final()]);
  }
  steps.push([end]);
  return { contentLength, contentType, slices: slicesOf(steps, contentLength) };
}

/** Yields the bytes of the steps in slices of at most 512 KiB. The slices use two buffers in turn. */
function* slicesOf(steps: readonly Step[], contentLength: number): Generator<Buffer, void> {
  let left = contentLength;
  let used = 0;
  let slice: Buffer = Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
  let other: Buffer | undefined;
  for (const [content, sealer] of steps) {
    const bytes = typeof content === 'function' ? content() : content;
    for (let i = 0; i < bytes.length; i += STEP_BYTES) {
      const part = typeof bytes === 'string' ? bytes : bytes.subarray(i, i + STEP_BYTES); // strings are short
      const size = sealer === undefined ? part.length : 2 * part.length;
      if (size > left) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
      if (used + size > slice.length) {
        yield slice.subarray(0, used);
        other ??= Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
        [slice, other] = [other, slice];
        used = 0;
      }
      if (typeof part === 'string') slice.write(part, used, 'latin1');
      else if (sealer === undefined) slice.set(part, used);
      else sealer.update(part, slice, used);
      used += size;
      left -= size;
    }
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
  yield slice.subarray(0, used);
}
