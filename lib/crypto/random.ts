/** Random bytes, from the system's generator, which Web Crypto offers in every runtime. */

/** Bytes that are drawn at once: asking the system for a few costs more than sealing a message with them. */
const POOL_BYTES = 4096;

let pool: Buffer = Buffer.alloc(0);

/** `size` random bytes, at most 65,536. Each byte of the pool is given out once. */
export function randomBytes(size: number): Buffer {
  if (pool.length < size) pool = crypto.getRandomValues(Buffer.alloc(Math.max(size, POOL_BYTES)));
  const bytes = pool.subarray(0, size);
  pool = pool.subarray(size);
  return bytes;
}
