/** Bounds the memory that all request bodies together, or all responses that are kept whole, may take. */
import { randomInt } from 'node:crypto';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';

/** For each budget: the error if others fill the budget, that if one body is larger, and words for texts. */
const REFUSALS = {
  uploads: ['too_many_uploads', 'body_too_large', 'request bodies', 'body'],
  responses: ['too_many_responses', 'response_too_large', 'responses', 'response'],
} as const;

const SMALL = 1024 * 1024;
/** The share of a budget that large bodies may fill. Slow large bodies then cannot shut out small bodies. */
const FOR_LARGE = 7 / 8;

export interface MemoryBudget {
  readonly of: keyof typeof REFUSALS;
  readonly limit: number; // bytes that all bodies may hold together
  readonly used: { bufferedBytes: number }; // bytes of the budget that are in use
}

/** The part of a budget that one request or response has. A body for which no room is left is refused. */
export class Room {
  readonly #budget: MemoryBudget;
  #bytes = 0;
  #isOver = false;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /**
   * Returns the growth: `wish` if large bodies leave room, else `bytes`, or a MiB for a large body, which
   * smaller steps would copy too often. Throws the codes of REFUSALS.
   */
  grow(bytes: number, wish = bytes): number {
    if (this.#isOver) return bytes; // the client has left, and what still runs for it ends soon
    const { of, limit, used } = this.#budget;
    const [tooMany, tooLarge, others, one] = REFUSALS[of];
    const forLarge = Math.floor(limit * FOR_LARGE);
    const all = this.#bytes + bytes;
    if (all > limit)
      throw new PrivatemodeError(
        tooLarge,
        `the ${one} takes more than ${limit} bytes (--max-buffered-bytes)`,
      );
    const isAlone = used.bufferedBytes === this.#bytes;
    const most = isAlone || all <= SMALL ? limit : forLarge;
    if (used.bufferedBytes + bytes > most) {
      // The pause is random, so that clients do not all come back in the same second.
      const message = `other ${others} use all the memory reserved for them`;
      throw new PrivatemodeError(tooMany, message, { retryAfter: randomInt(2, 6) });
    }
    const step = all <= SMALL ? bytes : Math.max(bytes, Math.min(wish, SMALL));
    const hasRoom = used.bufferedBytes + wish <= forLarge;
    const taken = hasRoom ? wish : Math.min(step, most - used.bufferedBytes);
    used.bufferedBytes += taken;
    this.#bytes += taken;
    return taken;
  }

  /** Grows or shrinks to this many bytes. Throws what `grow` throws. */
  resize(bytes: number): void {
    if (bytes > this.#bytes) this.grow(bytes - this.#bytes);
    else if (!this.#isOver) {
      this.#budget.used.bufferedBytes -= this.#bytes - bytes;
      this.#bytes = bytes;
    }
  }

  /** Gives all bytes back. Growth after this is not counted. */
  release(): void {
    this.#isOver = true;
    this.#budget.used.bufferedBytes -= this.#bytes;
    this.#bytes = 0;
  }
}

const FIRST_BYTES = 4 * 1024;

/** Collects a body that arrives in chunks in one piece of memory. */
export class CollectedBody {
  length = 0;
  readonly #room: Room;
  readonly #most: number;
  #memory = Buffer.alloc(0);

  /** `most`: the length that the head announces. Without such a length, the most that the body may have. */
  constructor(room: Room, most: number) {
    this.#room = room;
    this.#most = most;
  }

  /** Copies the chunk. Memory doubles: announced bytes may never come. Throws what Room.grow throws. */
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
    // Memory outside Node's pool can be freed at once, but its allocation costs more than a short body does.
    this.#memory = size < FIRST_BYTES ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
    this.#memory.set(outgrown.subarray(0, this.length));
    releaseMemory(outgrown);
  }

  /** The bytes that have arrived, without a copy. */
  bytes(): Buffer {
    return this.#memory.subarray(0, this.length);
  }

  /** Frees the memory. Nobody may read the bytes afterwards. */
  release(): void {
    releaseMemory(this.#memory);
    this.#memory = Buffer.alloc(0);
    this.#room.release();
  }
}
