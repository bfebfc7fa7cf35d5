/** The bytes of an encrypted body: pieces in the order of the text, sealed and gathered into slices as they are pulled. */
import type { MessageSealer, RequestCipher } from '../envelope/request-cipher.ts';
import { PrivatemodeError } from '../errors.ts';

/** A stretch of the body: bytes as they are or, with a sealer, the plaintext of one message. */
export interface Piece {
  readonly bytes: readonly Uint8Array[];
  readonly sealer?: MessageSealer;
}

/** Slices of 64 KiB take twice as long over TLS. */
const SLICE_BYTES = 512 * 1024;
/** Bytes sealed or copied in one go. V8 frees what a larger step leaves behind only in a full collection. */
const STEP_BYTES = 32 * 1024;

/**
 * Buffers that the slices of the next large body use again. Left to the collector, they reach the old generation together with
 * the prompt, and each full collection makes every other stream wait.
 */
const spare: Buffer[] = [];
/** Keeps spare buffers for two concurrent uploads; more go to the garbage collector. */
const MOST_SPARE = 4;

const takeBuffer = (bytes: number): Buffer =>
  (bytes >= SLICE_BYTES && spare.pop()) || Buffer.allocUnsafeSlow(Math.min(bytes, SLICE_BYTES));

/** Makes the buffers of a body available to the next one. Only ciphertext is in them, and nobody may still be sending it. */
export function giveBack(buffers: Buffer[]): void {
  for (const buffer of buffers.splice(0)) {
    if (buffer.length === SLICE_BYTES && spare.length < MOST_SPARE) spare.push(buffer);
  }
}

/** Bytes of the body that these pieces make. `cipher` is the one their sealers came from. */
export function lengthOf(pieces: readonly Piece[], cipher: RequestCipher): number {
  let sum = 0;
  for (const { bytes, sealer } of pieces) {
    const length = bytes.reduce((total, each) => total + each.length, 0);
    sum += sealer === undefined ? length : cipher.sealedLength(length);
  }
  return sum;
}

/** Cuts the pieces into steps: bytes to copy or, with a sealer, plaintext to seal. */
function* stepsOf(
  pieces: readonly Piece[],
): Generator<{ bytes: Uint8Array; sealer: MessageSealer | undefined }, void, undefined> {
  for (const { bytes, sealer } of pieces) {
    if (sealer !== undefined) yield { bytes: sealer.head(), sealer: undefined };
    for (const each of bytes) {
      for (let i = 0; i < each.length; i += STEP_BYTES)
        yield { bytes: each.subarray(i, i + STEP_BYTES), sealer };
    }
    if (sealer !== undefined) yield { bytes: sealer.final(), sealer: undefined };
  }
}

/**
 * The body that these pieces make, in slices of at most 512 KiB, each sealed when it is pulled. Each slice stays valid until two
 * more have been pulled: two buffers alternate, and are left in `buffers`. Throws `internal` where the bytes are not
 * `contentLength`.
 */
export function* sealedSlices(
  pieces: readonly Piece[],
  contentLength: number,
  buffers: Buffer[],
): Generator<Uint8Array, void, undefined> {
  let left = contentLength;
  let used = 0;
  let slice = takeBuffer(left);
  buffers.push(slice);
  for (const { bytes, sealer } of stepsOf(pieces)) {
    const size = sealer === undefined ? bytes.length : 2 * bytes.length;
    if (size > left) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
    if (used + size > slice.length) {
      yield slice.subarray(0, used);
      if (buffers.length === 1) buffers.push(takeBuffer(left));
      slice = slice === buffers[0] ? buffers[1]! : buffers[0]!;
      used = 0;
    }
    if (sealer === undefined) slice.set(bytes, used);
    else sealer.update(bytes, slice, used);
    used += size;
    left -= size;
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
  yield slice.subarray(0, used);
}
