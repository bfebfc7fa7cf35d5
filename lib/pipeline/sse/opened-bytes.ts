/** Gathers what one chunk of an event stream opens to, in one piece of memory as far as possible. */

const EMPTY = Buffer.alloc(0);
/** Below, a loop is faster than a call into the runtime. */
const SHORT = 128;
const LF = 0x0a;
const CR = 0x0d;

export class OpenedBytes {
  #memory: Buffer = EMPTY;
  #used = 0;
  #taken = 0;
  #pieces: Buffer[] = [];

  /** Makes room for the next `size` bytes that are copied, where there is none yet. */
  reserve(size: number): void {
    if (this.#memory.length - this.#used >= size) return;
    this.#close();
    this.#memory = Buffer.allocUnsafe(size);
    this.#used = 0;
    this.#taken = 0;
  }

  /** To be called with no more than was reserved. */
  copy(source: Buffer, start: number, end: number): void {
    const size = end - start;
    if (size < SHORT) {
      const memory = this.#memory;
      const used = this.#used;
      for (let i = 0; i < size; i++) memory[used + i] = source[start + i]!;
    } else source.copy(this.#memory, this.#used, start, end);
    this.#used += size;
  }

  /** latin1 text, for which nothing need be reserved. */
  text(text: string): void {
    if (text === '') return;
    this.#close();
    this.#pieces.push(Buffer.from(text, 'latin1'));
  }

  /** All of it so far; begins anew. */
  take(): Buffer {
    this.#close();
    const pieces = this.#pieces;
    this.#memory = EMPTY;
    this.#used = 0;
    this.#taken = 0;
    if (pieces.length === 0) return EMPTY;
    this.#pieces = [];
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  #close(): void {
    if (this.#used > this.#taken) this.#pieces.push(this.#memory.subarray(this.#taken, this.#used));
    this.#taken = this.#used;
  }
}

export function hasLineEnd(bytes: Buffer): boolean {
  if (bytes.length >= SHORT) return bytes.includes(LF) || bytes.includes(CR);
  for (let i = 0; i < bytes.length; i++) if (bytes[i] === LF || bytes[i] === CR) return true;
  return false;
}
