/** How a sealed body is laid out: pieces in the order of the text, sealed and gathered into slices as they are pulled. */
import type { MessageSealer, RequestCipher } from '../envelope/request-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import type { SealedBody } from './request-body.ts';

/** A stretch of the body: bytes as they are or, with a sealer, the plaintext of one message. */
export interface Piece {
  readonly bytes: readonly Uint8Array[];
  readonly sealer?: MessageSealer;
}

export const SLICE_PLAINTEXT_BYTES = 256 * 1024;
const SLICE_BYTES = 2 * SLICE_PLAINTEXT_BYTES;

const lengthOf = (bytes: readonly Uint8Array[]): number => bytes.reduce((sum, { length }) => sum + length, 0);

function* laidOut(pieces: readonly Piece[]): Generator<Uint8Array, void, undefined> {
  for (const { bytes, sealer } of pieces) {
    if (sealer === undefined) {
      yield* bytes;
      continue;
    }
    yield sealer.head();
    for (const chunk of bytes) {
      for (let i = 0; i < chunk.length; i += SLICE_PLAINTEXT_BYTES) {
        yield sealer.update(chunk.subarray(i, i + SLICE_PLAINTEXT_BYTES));
      }
    }
    yield sealer.final();
  }
}

/** Gathers small runs, so that a request is few large writes: 64 KiB slices cost twice the time over TLS. */
function* gathered(
  runs: Iterable<Uint8Array>,
  contentLength: number,
): Generator<Uint8Array, void, undefined> {
  let left = contentLength;
  let slice = Buffer.allocUnsafeSlow(Math.min(SLICE_BYTES, left));
  let used = 0;
  for (const run of runs) {
    if (run.length > left - used) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
    for (let i = 0; i < run.length; ) {
      const take = Math.min(slice.length - used, run.length - i);
      slice.set(take === run.length ? run : run.subarray(i, i + take), used);
      used += take;
      i += take;
      if (used < slice.length) break;
      yield slice;
      left -= used;
      used = 0;
      slice = Buffer.allocUnsafeSlow(Math.min(SLICE_BYTES, left));
    }
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
}

/**
 * The body that these pieces make, in this order. `cipher` is the one their sealers came from. Sequence
 * numbers are given where a sealer is made, so pieces may stand in any order.
 */
export function sealedBody(
  cipher: RequestCipher,
  pieces: readonly Piece[],
  contentType?: string,
): SealedBody {
  let contentLength = 0;
  for (const { bytes, sealer } of pieces) {
    const length = lengthOf(bytes);
    contentLength += sealer === undefined ? length : cipher.sealedLength(length);
  }
  return {
    contentLength,
    ...(contentType === undefined ? {} : { contentType }),
    slices: () => gathered(laidOut(pieces), contentLength),
  };
}
