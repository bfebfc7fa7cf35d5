/** Random bytes from the operating system, through Web Crypto, which every supported runtime has. */

/** The size of the pool in bytes: drawing a few bytes costs more than encrypting a message with them. */
const POOL_BYTES = 4096;

let pool: Buffer = Buffer.alloc(0);

/** Returns `size` random bytes, at most 65,536. Each byte of the pool is used only once. */
export function randomBytes(size: number): Buffer {
  if (pool.length < size) pool = crypto.getRandomValues(Buffer.alloc(Math.max(size, POOL_BYTES)));
  const bytes = pool.subarray(0, size);
  pool = pool.subarray(size);
  return bytes;
}
