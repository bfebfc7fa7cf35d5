/** Bounds the memory that all request bodies, or all responses that are kept whole, take together. */
import { randomInt } from 'node:crypto';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';

/** The errors of each budget: others use it, one is larger than all of it; and the words of their texts. */
const REFUSALS = {
  uploads: ['too_many_uploads', 'body_too_large', 'request bodies', 'body'],
  responses: ['too_many_responses', 'response_too_large', 'responses', 'response'],
} as const;

const SMALL = 1024 * 1024;
/** The share for bodies that are not small: a few of them that arrive slowly shut out no small one. */
const FOR_LARGE = 7 / 8;

export interface MemoryBudget {
  readonly of: keyof typeof REFUSALS;
  readonly limit: number; // bytes
  readonly used: { bufferedBytes: number }; // of them
}

/** The part of a budget that one request or response has. Nobody waits: what finds none is refused. */
export class Room {
  readonly #budget: MemoryBudget;
  #bytes = 0;
  #isOver = false;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /** Returns by how many bytes it grew: `wish` if large bodies leave room. Throws the codes of REFUSALS. */
  grow(bytes: number, wish = bytes): number {
    if (this.#isOver) return bytes; // the client has left, and what still runs for it ends soon
    const { of, limit, used } = this.#budget;
    const [tooMany, tooLarge, others, one] = REFUSALS[of];
    const forLarge = limit * FOR_LARGE;
    const all = this.#bytes + bytes;
    if (all > limit)
      throw new PrivatemodeError(tooLarge, `the ${one} is larger than ${limit} bytes (--max-buffered-bytes)`);
    const isAlone = used.bufferedBytes === this.#bytes;
    if (used.bufferedBytes + bytes > (isAlone || all <= SMALL ? limit : forLarge)) {
      // not the same pause for all, who would come back in the same second
      const message = `other ${others} use all the memory reserved for them`;
      throw new PrivatemodeError(tooMany, message, { retryAfter: randomInt(2, 6) });
    }
    const taken = used.bufferedBytes + wish <= forLarge ? wish : bytes;
    used.bufferedBytes += taken;
    this.#bytes += taken;
    return taken;
  }

  /** Grows to that many bytes, if it has fewer. Throws as `grow` does. */
  growTo(bytes: number): void {
    if (bytes > this.#bytes) this.grow(bytes - this.#bytes);
  }

  /** Gives all bytes back, for good. */
  release(): void {
    this.#isOver = true;
    this.#budget.used.bufferedBytes -= this.#bytes;
    this.#bytes = 0;
  }
}

const FIRST_BYTES = 4 * 1024;

/** A body that arrives in chunks, in one piece of memory. */
export class CollectedBody {
  length = 0;
  readonly #room: Room;
  readonly #most: number;
  #memory = Buffer.alloc(0);

  /** `most`: the length that the head announces, or else the most that the body may have. */
  constructor(room: Room, most: number) {
    this.#room = room;
    this.#most = most;
  }

  /** Copies the chunk. The memory doubles: what a head announces may never come. Throws as Room.grow does. */
  push(chunk: Uint8Array): void {
    const needed = this.length + chunk.length;
    if (needed > this.#memory.length) this.#grow(needed);
    this.#memory.set(chunk, this.length);
    this.length = needed;
  }

  #grow(needed: number): void {
    const outgrown = this.#memory;
    const doubled = Math.min(Math.max(2 * outgrown.length, FIRST_BYTES), this.#most);
    const more = needed - outgrown.length;
    const size = outgrown.length + this.#room.grow(more, Math.max(more, doubled - outgrown.length));
    // Memory of its own can be freed at once; for a short body it costs more than the body.
    this.#memory = size < FIRST_BYTES ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
    this.#memory.set(outgrown.subarray(0, this.length));
    releaseMemory(outgrown);
  }

  /** What has arrived, and no byte more; not a copy. */
  bytes(): Buffer {
    return this.#memory.subarray(0, this.length);
  }

  /** Nobody may read the bytes afterwards. */
  release(): void {
    releaseMemory(this.#memory);
    this.#memory = Buffer.alloc(0);
    this.#room.release();
  }
}
