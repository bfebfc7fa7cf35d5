/** The bytes of a body that arrives in chunks, in one piece of memory. */

const FIRST_BYTES = 4096;

export class CollectedBytes {
  length = 0;
  #memory = Buffer.alloc(0);

  /** Copies the chunk behind the others: chunks of one byte cost no more memory than their byte. */
  push(chunk: Uint8Array): void {
    const needed = this.length + chunk.length;
    if (needed > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#memory.length, FIRST_BYTES));
      larger.set(this.bytes());
      this.#memory = larger;
    }
    this.#memory.set(chunk, this.length);
    this.length = needed;
  }

  /** All bytes so far; not a copy. */
  bytes(): Buffer {
    return this.#memory.subarray(0, this.length);
  }
}
