/** Keeps the bytes of a body while it arrives, as a list of chunks that is never joined. */
export type ByteChain = ReturnType<typeof createByteChain>;

/** Chunks of fewer bytes than this are copied into a block, next to their neighbours. */
const SHORT = 4 * 1024;
/** Bytes of the first and of the largest block; each block is twice as large as the one before. */
const FIRST_BLOCK = 8 * 1024;
const LARGEST_BLOCK = 64 * 1024;

/**
 * Collects bytes as they arrive. Positions are absolute: they count from the first byte of the first chunk.
 * Short chunks are copied into blocks, because a separate object for each chunk takes hundreds of bytes.
 */
export function createByteChain() {
  /**
   * One entry per long chunk. A run of short chunks has one entry: all that was free of its block when the
   * run began.
   */
  const chunks: Uint8Array[] = [];
  const starts: number[] = [];
  let block = new Uint8Array(0);
  let used = 0; // bytes of `block` that are taken
  let inRun = false; // the last of `chunks` lies in `block`, and its bytes end at `used`

  /** Index of the chunk that holds `position`; the last one for a position at the end. */
  const chunkAt = (position: number): number => {
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle]! <= position) low = middle;
      else high = middle - 1;
    }
    return low;
  };

  const append = (chunk: Uint8Array, isRun: boolean): void => {
    chunks.push(chunk);
    starts.push(chain.length);
    inRun = isRun;
  };

  const copy = (chunk: Uint8Array): void => {
    if (chunk.length > block.length - used) {
      block = new Uint8Array(Math.min(Math.max(FIRST_BLOCK, 2 * block.length), LARGEST_BLOCK));
      used = 0;
      inRun = false;
    }
    if (!inRun) append(block.subarray(used), true);
    block.set(chunk, used);
    used += chunk.length;
  };

  const chain = {
    /** Bytes collected so far. */
    length: 0,
    /**
     * Appends a chunk by reference, so the caller must not change it afterwards. Short chunks after the first
     * are copied.
     */
    push(chunk: Uint8Array): void {
      if (chunk.length === 0) return;
      // The first chunk may be the whole body.
      if (chunk.length < SHORT && chunks.length > 0) copy(chunk);
      else append(chunk, false);
      chain.length += chunk.length;
    },
    /** The bytes from `start` up to, not including, `end`, as views of the chunks in order. */
    slices(start: number, end: number): Uint8Array[] {
      const found: Uint8Array[] = [];
      if (start >= end) return found;
      for (let i = chunkAt(start); i < chunks.length && starts[i]! < end; i++) {
        const from = starts[i]!;
        const until = Math.min(end, starts[i + 1] ?? chain.length);
        found.push(chunks[i]!.subarray(Math.max(0, start - from), until - from));
      }
      return found;
    },
    /** The bytes from `start` to `end` as one Buffer. It is a copy only if they cross chunks. */
    bytes(start: number, end: number): Buffer {
      const found = chain.slices(start, end);
      const [only] = found;
      if (only === undefined || found.length > 1) return Buffer.concat(found);
      return Buffer.from(only.buffer, only.byteOffset, only.byteLength);
    },
  };
  return chain;
}
