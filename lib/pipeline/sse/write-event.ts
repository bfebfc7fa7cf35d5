/** Writes the events that one chunk of a stream decrypts to, in one piece of memory. */
import type { EventMatch } from './read-event.ts';

const EMPTY = Buffer.alloc(0);
const LF = 0x0a;
const CR = 0x0d;
const LINE_END = /\r\n|\r|\n/g;

export class DecryptedBytes {
  #memory: Buffer = EMPTY;
  #used = 0;

  /** Makes room for that many bytes, if there is none yet: once for all that a chunk may give. */
  reserve(size: number): void {
    if (this.#memory.length - this.#used >= size) return;
    const memory = Buffer.allocUnsafe(this.#used + Math.max(size, this.#used));
    this.#memory.copy(memory, 0, 0, this.#used);
    this.#memory = memory;
  }

  copy(source: Buffer, start: number, end: number): void {
    this.reserve(end - start);
    this.#used += source.copy(this.#memory, this.#used, start, end);
  }

  /** latin1 text. */
  text(text: string): void {
    this.reserve(text.length);
    this.#used += this.#memory.write(text, this.#used, 'latin1');
  }

  /**
   * An event, each message replaced by its plaintext. It stands in `bytes` from `start` on, and `match` has its places. If `fields`
   * are given, that is its data alone: they come before it. Line ends become blanks, which mean the same in JSON: some clients read
   * each line for itself, and would lose the event.
   */
  event(
    bytes: Buffer,
    start: number,
    match: EventMatch,
    plaintexts: readonly Buffer[],
    withoutUsage: boolean,
    fields?: string,
  ): void {
    const isData = fields !== undefined;
    if (isData) this.text(fields);
    this.reserve(bytes.length - start); // plaintext is shorter than its message
    const leftFrom = withoutUsage ? match.usageStart : -1;
    let position = start;
    for (let k = 0; k < match.count; k++) {
      this.#copyBut(bytes, position, match.starts[k]! - 1, leftFrom, match.usageEnd, isData);
      this.#copyData(plaintexts[k]!, 0, plaintexts[k]!.length);
      position = match.ends[k]! + 1;
    }
    this.#copyBut(bytes, position, match.end, leftFrom, match.usageEnd, isData);
    if (isData) this.text('\n\n');
  }

  /** All of it so far; begins anew. */
  take(): Buffer {
    const taken = this.#used === 0 ? EMPTY : this.#memory.subarray(0, this.#used);
    this.#memory = EMPTY;
    this.#used = 0;
    return taken;
  }

  /** Copies those bytes, without the ones from `leftFrom` to `leftTo` if these begin there. */
  #copyBut(
    source: Buffer,
    start: number,
    end: number,
    leftFrom: number,
    leftTo: number,
    isData: boolean,
  ): void {
    if (leftFrom >= start && leftFrom < end) {
      this.#copyBut(source, start, leftFrom, -1, -1, isData);
      this.#copyBut(source, leftTo, end, -1, -1, isData);
    } else if (isData) this.#copyData(source, start, end);
    else this.copy(source, start, end);
  }

  #copyData(source: Buffer, start: number, end: number): void {
    if (hasLineEnd(source, start, end)) {
      this.text(source.toString('latin1', start, end).replace(LINE_END, ' '));
    } else this.copy(source, start, end);
  }
}

function hasLineEnd(bytes: Buffer, start: number, end: number): boolean {
  const part = bytes.subarray(start, end);
  return part.includes(LF) || part.includes(CR);
}
