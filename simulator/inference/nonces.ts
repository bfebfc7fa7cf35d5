/** Remembers the nonces of requests: one must never protect two of them (docs/protocol/inference.md 4). */

/** The oldest nonce is forgotten beyond this many. */
const REMEMBERED = 100_000;

/** Returns a function that notes a nonce and tells whether it is new. */
export function createNonceMemory(): (nonce: Buffer) => boolean {
  const seen = new Set<string>();
  return (nonce) => {
    const hex = nonce.toString('hex');
    if (seen.has(hex)) return false;
    seen.add(hex);
    if (seen.size > REMEMBERED) seen.delete(seen.values().next().value!);
    return true;
  };
}
