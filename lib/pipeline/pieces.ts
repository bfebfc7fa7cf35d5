/**
 * Most bytes that are handed on, made or scanned in one go. A client takes a larger piece in parts, and must
 * have its time for each part; other exchanges wait while a piece is made or scanned.
 */
export const LARGEST_PIECE = 64 * 1024;

/** The bytes as views of at most LARGEST_PIECE bytes each, in order; none if there are no bytes. */
export function piecesOf(bytes: Uint8Array): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += LARGEST_PIECE)
    pieces.push(bytes.subarray(at, at + LARGEST_PIECE));
  return pieces;
}
