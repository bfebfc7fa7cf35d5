/**
 * `size` random bytes, at most 65,536, from the system's generator, which Web Crypto offers in every runtime.
 */
export const randomBytes = (size: number): Buffer => crypto.getRandomValues(Buffer.alloc(size));
