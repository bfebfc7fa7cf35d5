/** A call of the system's generator costs 20 us, however few bytes it draws; a short request draws three times. */
const POOL_BYTES = 6144;
/** Pieces begin at multiples of the length that most of them have, that of a nonce. */
const STEP = 12;
let pool = Buffer.alloc(0);

/**
 * That many random bytes of the system's generator, which Web Crypto has in every runtime. At most 65,536. Short ones are pieces of one
 * draw, none of which is handed out twice.
 */
export function randomBytes(size: number): Buffer {
  if (size > 5 * STEP) return crypto.getRandomValues(Buffer.alloc(size));
  if (size > pool.length) pool = crypto.getRandomValues(Buffer.alloc(POOL_BYTES));
  const drawn = pool.subarray(0, size);
  pool = pool.subarray(STEP * Math.ceil(size / STEP));
  return drawn;
}
