/** The bytes of a body that arrives in chunks, in one piece of memory. */
import { releaseMemory } from '../envelope/message-cipher.ts';

const FIRST_BYTES = 4096;

export class CollectedBytes {
  length = 0;
  #memory = Buffer.alloc(0);

  /** Copies the chunk behind the others: chunks of one byte cost no more memory than their byte. */
  push(chunk: Uint8Array): void {
    const needed = this.length + chunk.length;
    if (needed > this.#memory.length) {
      const outgrown = this.#memory;
      this.#memory = Buffer.allocUnsafeSlow(Math.max(needed, 2 * outgrown.length, FIRST_BYTES));
      this.#memory.set(outgrown.subarray(0, this.length));
      releaseMemory(outgrown);
    }
    this.#memory.set(chunk, this.length);
    this.length = needed;
  }

  /** All bytes so far; not a copy. */
  bytes(): Buffer {
    return this.#memory.subarray(0, this.length);
  }

  /** Frees the memory at once; nobody may read the bytes afterwards. */
  release(): void {
    releaseMemory(this.#memory);
    this.#memory = Buffer.alloc(0);
    this.length = 0;
  }
}
