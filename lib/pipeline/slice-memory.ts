/**
 * Memory for the slices of large bodies, which is used again by the next one: left to the collector, it is moved to the old
 * generation together with the prompt, and brings on one full collection after the other, which every other stream waits for.
 */

/** Slices of 64 KiB cost twice the time over TLS. */
export const SLICE_BYTES = 512 * 1024;
/** Of two uploads at a time; what more of them leave is collected. */
const MOST_SPARE = 4;
const spare: Buffer[] = [];

/** Memory for a slice of that many bytes, or of `SLICE_BYTES` where they are more. It holds what it held before. */
export const takeSlice = (bytes: number): Buffer =>
  (bytes >= SLICE_BYTES && spare.pop()) || Buffer.allocUnsafeSlow(Math.min(bytes, SLICE_BYTES));

/** To be called when nobody reads the slice any more. It was sent, so what it holds is sealed. */
export function giveBackSlice(memory: Buffer): void {
  if (memory.length === SLICE_BYTES && spare.length < MOST_SPARE) spare.push(memory);
}
