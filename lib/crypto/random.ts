/** Random bytes from the system's generator, by Web Crypto, which every runtime has. */

/** Bytes drawn at once: asking the system for a few bytes costs more than sealing a message with them. */
const POOL_BYTES = 4096;

let pool: Buffer = Buffer.alloc(0);

/** Returns `size` random bytes, at most 65,536. Each byte of the pool is given out only once. */
export function randomBytes(size: number): Buffer {
  if (pool.length < size) pool = crypto.getRandomValues(Buffer.alloc(Math.max(size, POOL_BYTES)));
  const bytes = pool.subarray(0, size);
  pool = pool.subarray(size);
  return bytes;
}
