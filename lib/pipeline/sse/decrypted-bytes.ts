/** Gathers what one chunk of an event stream decrypts to, in one piece of memory as far as possible. */

const EMPTY = Buffer.alloc(0);
/** Below, a loop is faster than a call into the runtime. */
const SHORT = 128;
const LF = 0x0a;
const CR = 0x0d;
const LINE_END = /\r\n|\r|\n/g;

export class DecryptedBytes {
  #memory: Buffer = EMPTY;
  #used = 0;
  #taken = 0;
  #pieces: Buffer[] = [];

  /** Makes room for the next `size` bytes that are copied, if there is none yet. */
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

  /** The same of a part of an event's data: each of its lines but the first begins with `data: `. */
  copyData(source: Buffer, start: number, end: number): void {
    if (hasLineEnd(source, start, end)) {
      this.text(source.toString('latin1', start, end).replace(LINE_END, '\ndata: '));
    } else this.copy(source, start, end);
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

function hasLineEnd(bytes: Buffer, start: number, end: number): boolean {
  if (end - start >= SHORT) {
    const part = bytes.subarray(start, end);
    return part.includes(LF) || part.includes(CR);
  }
  for (let i = start; i < end; i++) if (bytes[i] === LF || bytes[i] === CR) return true;
  return false;
}
