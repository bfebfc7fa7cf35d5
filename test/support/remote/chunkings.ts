/** Ways to cut bytes into chunks: whole, byte by byte, at one position, at many. */

export function cutAt(bytes: Uint8Array, positions: readonly number[]): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  let from = 0;
  for (const to of [...positions, bytes.length]) {
    chunks.push(bytes.subarray(from, to));
    from = to;
  }
  return chunks;
}

/** Cut at numbers of any size and order, as properties draw them. */
export const cutAnywhere = (bytes: Uint8Array, numbers: readonly number[]): Uint8Array[] =>
  cutAt(
    bytes,
    numbers.map((number) => number % bytes.length).sort((a, b) => a - b),
  );

export const byteByByte = (bytes: Uint8Array): Uint8Array[] =>
  Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));

/** In pieces of 100 bytes: more than 10,000 smaller ones are refused. */
export const inPieces = (bytes: Uint8Array): Uint8Array[] =>
  cutAt(
    bytes,
    Array.from({ length: Math.ceil(bytes.length / 100) - 1 }, (_, i) => 100 * (i + 1)),
  );

/** Whole, byte by byte, and each split into two. */
export function* everyChunking(bytes: Uint8Array): Generator<Uint8Array[]> {
  yield [bytes];
  yield byteByByte(bytes);
  for (let i = 1; i < bytes.length; i++) yield cutAt(bytes, [i]);
}
