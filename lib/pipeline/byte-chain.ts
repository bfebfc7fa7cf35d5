/**
 * Bytes as they arrived: a list of chunks that is never copied into one (design decision 4). Positions are
 * absolute, from the first byte of the first chunk.
 */
export interface ByteChain {
  /** Bytes collected so far. */
  readonly length: number;
  /** Appends a chunk, by reference: the caller must not change it afterwards. */
  push(chunk: Uint8Array): void;
  /** The bytes from `start` up to, not including, `end`, as views of the chunks in order. */
  slices(start: number, end: number): Uint8Array[];
  /** The same bytes as one Buffer; a copy only where they cross chunks. */
  bytes(start: number, end: number): Buffer;
}

export function createByteChain(): ByteChain {
  const chunks: Uint8Array[] = [];
  const starts: number[] = [];

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

  const slices = (start: number, end: number): Uint8Array[] => {
    const found: Uint8Array[] = [];
    if (start >= end) return found;
    for (let i = chunkAt(start); i < chunks.length && starts[i]! < end; i++) {
      const from = starts[i]!;
      found.push(chunks[i]!.subarray(Math.max(0, start - from), end - from));
    }
    return found;
  };

  const chain = {
    length: 0,
    push(chunk: Uint8Array): void {
      if (chunk.length === 0) return;
      chunks.push(chunk);
      starts.push(chain.length);
      chain.length += chunk.length;
    },
    slices,
    bytes(start: number, end: number): Buffer {
      const found = slices(start, end);
      const only = found[0];
      if (only !== undefined && found.length === 1) {
        return Buffer.from(only.buffer, only.byteOffset, only.byteLength);
      }
      return Buffer.concat(found);
    },
  };
  return chain;
}
