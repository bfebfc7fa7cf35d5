/** How a sealed body is laid out: pieces in the order of the text, sealed and gathered into slices as they are pulled. */
import type { MessageSealer, RequestCipher } from '../envelope/request-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import type { SealedBody } from './request-body.ts';
import { giveBackSlice, takeSlice } from './slice-memory.ts';

/** A stretch of the body: bytes as they are or, with a sealer, the plaintext of one message. */
export interface Piece {
  readonly bytes: readonly Uint8Array[];
  readonly sealer?: MessageSealer;
}

/** Plaintext sealed in one go. Of what a larger piece leaves behind, V8 lets go only in a full collection. */
const STEP_BYTES = 32 * 1024;

const lengthOf = (bytes: readonly Uint8Array[]): number => bytes.reduce((sum, { length }) => sum + length, 0);

/** Bytes as they are or, with a sealer, plaintext whose ciphertext is to be written. */
interface Run {
  readonly bytes: Uint8Array;
  readonly sealer?: MessageSealer;
}

function* laidOut(pieces: readonly Piece[]): Generator<Run, void, undefined> {
  for (const { bytes, sealer } of pieces) {
    if (sealer === undefined) {
      for (const each of bytes) yield { bytes: each };
      continue;
    }
    yield { bytes: sealer.head() };
    for (const each of bytes) {
      for (let i = 0; i < each.length; i += STEP_BYTES) {
        yield { bytes: each.subarray(i, i + STEP_BYTES), sealer };
      }
    }
    yield { bytes: sealer.final() };
  }
}

/** Writes the runs into slices. Two pieces of memory take turns, and are left in `memory`. */
function* gathered(
  runs: Iterable<Run>,
  contentLength: number,
  memory: Buffer[],
): Generator<Uint8Array, void, undefined> {
  let left = contentLength;
  const begin = (turn: number): Buffer => {
    memory[turn % 2] ??= takeSlice(left);
    return memory[turn % 2]!;
  };
  let turn = 0;
  let slice = begin(turn);
  let used = 0;
  for (const { bytes, sealer } of runs) {
    const size = sealer === undefined ? bytes.length : 2 * bytes.length;
    if (size > left) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
    for (let i = 0; i < bytes.length; ) {
      if (used === slice.length || (sealer !== undefined && used + size > slice.length)) {
        yield slice.subarray(0, used);
        turn += 1;
        slice = begin(turn);
        used = 0;
      }
      if (sealer === undefined) {
        const taken = bytes.subarray(i, i + slice.length - used);
        slice.set(taken, used);
        used += taken.length;
        left -= taken.length;
        i += taken.length;
      } else {
        sealer.update(bytes, slice, used);
        used += size;
        left -= size;
        i += bytes.length;
      }
    }
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
  yield slice.subarray(0, used);
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
  const memory: Buffer[] = [];
  let contentLength = 0;
  for (const { bytes, sealer } of pieces) {
    const length = lengthOf(bytes);
    contentLength += sealer === undefined ? length : cipher.sealedLength(length);
  }
  return {
    contentLength,
    ...(contentType === undefined ? {} : { contentType }),
    slices: () => gathered(laidOut(pieces), contentLength, memory),
    release() {
      for (const slice of memory.splice(0)) giveBackSlice(slice);
    },
  };
}
