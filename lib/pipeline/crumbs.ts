/**
 * Refuses bodies of tiny chunks. A chunk of a few bytes costs as much time and memory as one of 64 KiB, so
 * such a body would delay everybody. Honest bodies have few: heartbeats, and the ends of what a network
 * splits.
 */
import { PrivatemodeError } from '../errors.ts';

const CRUMB = 64; // bytes; a shorter chunk is a crumb
const MOST_CRUMBS = 10_000;

export class Crumbs {
  readonly #code: 'upload_too_slow' | 'response_malformed';
  #count = 0;

  constructor(code: 'upload_too_slow' | 'response_malformed' = 'response_malformed') {
    this.#code = code;
  }

  /** Counts a chunk. Throws the code once more than 10,000 chunks were crumbs. */
  count(chunk: Uint8Array): void {
    if (chunk.length >= CRUMB || ++this.#count <= MOST_CRUMBS) return;
    const message = `more than ${MOST_CRUMBS} chunks of the body have less than ${CRUMB} bytes`;
    throw new PrivatemodeError(this.#code, message);
  }

  /** Counts anew. Called for each authentic event: the stream may come byte by byte, but must go on. */
  reset(): void {
    this.#count = 0;
  }
}
