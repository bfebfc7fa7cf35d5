/** Counts the events of a chunked HTTP answer as its bytes come, however network and relays cut them. */

const MARK = Buffer.from('data: ');
const CR_LF = 2;
const LINE_FEED = 10;

export interface EventCounter {
  /** How many events began in these bytes. Throws where the answer is not a 200. */
  feed(bytes: Buffer): number;
  /** Whether the last chunk was there. */
  readonly ended: boolean;
}

export function createEventCounter(): EventCounter {
  const counter = { feed, ended: false };
  let line = ''; // the head, or the line with the size of a chunk, as far as it is there
  let inHead = true;
  let left = 0; // bytes of the chunk
  let skip = 0; // bytes between two chunks
  let tail = Buffer.alloc(0); // the end of what was counted, which may be half a mark

  function count(payload: Buffer): number {
    let found = 0;
    if (tail.length > 0 && tail.at(-1) !== LINE_FEED) {
      if (Buffer.concat([tail, payload.subarray(0, MARK.length - 1)]).includes(MARK)) found += 1;
    }
    for (let at = payload.indexOf(MARK); at >= 0; at = payload.indexOf(MARK, at + MARK.length)) found += 1;
    const joined = payload.length < MARK.length ? Buffer.concat([tail, payload]) : payload;
    tail = Buffer.from(joined.subarray(Math.max(0, joined.length - MARK.length + 1)));
    return found;
  }

  /** The position after the line that ends at or after `at`; -1 where its end is still to come. */
  function afterLine(bytes: Buffer, at: number, end: string): number {
    const before = line.length;
    line += bytes.toString('latin1', at);
    const found = line.indexOf(end);
    if (found < 0) return -1;
    line = line.slice(0, found);
    return at + found + end.length - before;
  }

  function feed(bytes: Buffer): number {
    let found = 0;
    let at = 0;
    while (at < bytes.length && !counter.ended) {
      if (skip > 0) {
        const skipped = Math.min(skip, bytes.length - at);
        skip -= skipped;
        at += skipped;
      } else if (left > 0) {
        const payload = bytes.subarray(at, at + left);
        found += count(payload);
        left -= payload.length;
        at += payload.length;
        if (left === 0) skip = CR_LF;
      } else {
        const next = afterLine(bytes, at, inHead ? '\r\n\r\n' : '\r\n');
        if (next < 0) break;
        if (inHead && !line.startsWith('HTTP/1.1 200 '))
          throw new Error(line + bytes.toString('latin1', next));
        if (!inHead) {
          left = Number.parseInt(line, 16);
          counter.ended = left === 0;
        }
        inHead = false;
        line = '';
        at = next;
      }
    }
    return found;
  }

  return counter;
}
