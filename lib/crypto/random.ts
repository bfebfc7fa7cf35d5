/** That many random bytes of the system's generator, which Web Crypto has in every runtime. At most 65,536. */
export const randomBytes = (size: number): Buffer => crypto.getRandomValues(Buffer.alloc(size));
