/** Writes the events that one chunk of a stream decrypts to, in one piece of memory. */
import type { EventMatch } from './read-event.ts';

const EMPTY = Buffer.alloc(0);
const LF = 0x0a;
const CR = 0x0d;
const LINE_END = /\r\n|\r|\n/g;

export class DecryptedBytes {
  #memory: Buffer = EMPTY;
  #used = 0;

  /**
   * Makes room for `size` more bytes, unless there is room. `event` calls it once for all that the rest of
   * its chunk may give.
   */
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

  /** Appends latin1 text. */
  text(text: string): void {
    this.reserve(text.length);
    this.#used += this.#memory.write(text, this.#used, 'latin1');
  }

  /**
   * Appends one event with the plaintexts in place of its messages, and without its usage if `withoutUsage`.
   * The event begins at `start` in `bytes`, and `match` holds its places. `fields` is given if `bytes` is the
   * data alone: it is the text that goes before the data. Line ends in data become blanks, which mean the
   * same in JSON: some clients read each line on its own, and would lose the event.
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

  /** Returns all bytes so far, and starts anew. */
  take(): Buffer {
    const taken = this.#used === 0 ? EMPTY : this.#memory.subarray(0, this.#used);
    this.#memory = EMPTY;
    this.#used = 0;
    return taken;
  }

  /**
   * Copies the bytes from `start` to `end`. If the part from `leftFrom` to `leftTo` begins among them, it is
   * left out.
   */
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

/** Bytes up to which a loop is used: a view of the part, to be searched, would be garbage of each message. */
const SHORT_PART = 4096;

function hasLineEnd(bytes: Buffer, start: number, end: number): boolean {
  if (end - start > SHORT_PART) {
    const part = bytes.subarray(start, end);
    return part.includes(LF) || part.includes(CR);
  }
  for (let i = start; i < end; i++) if (bytes[i] === LF || bytes[i] === CR) return true;
  return false;
}
