/** Bounds the memory that all request bodies, or all responses that are kept whole, take together. */
import { randomInt } from 'node:crypto';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';

/** The errors of each budget: others use it, or one body is larger than all of it. */
const REFUSALS = {
  uploads: {
    tooMany: 'too_many_uploads',
    tooLarge: 'body_too_large',
    what: 'request bodies',
    one: 'the body',
  },
  responses: {
    tooMany: 'too_many_responses',
    tooLarge: 'response_too_large',
    what: 'responses',
    one: 'the response',
  },
} as const;

/** Bytes up to which a body counts as small. */
const SMALL = 1024 * 1024;
/** The share that large bodies may fill: a few of them that arrive slowly shut out no small one. */
const FOR_LARGE = 7 / 8;

/** A budget of bytes. Nobody waits for room: what finds none is refused, and its client tries again. */
export class MemoryBudget {
  readonly #limit: number;
  readonly #of: keyof typeof REFUSALS;
  readonly #used: { bufferedBytes: number };

  /** `used`: where the budget keeps the number of bytes that are taken. */
  constructor(of: keyof typeof REFUSALS, limit: number, used = { bufferedBytes: 0 }) {
    this.#of = of;
    this.#limit = limit;
    this.#used = used;
  }

  /**
   * Takes `bytes` more for a body that has `own` bytes already; `wish` instead, if large bodies leave room
   * for that. Returns how many. Throws the codes of REFUSALS.
   */
  take(own: number, bytes: number, wish = bytes): number {
    const { tooMany, tooLarge, what, one } = REFUSALS[this.#of];
    const { bufferedBytes } = this.#used;
    const forLarge = this.#limit * FOR_LARGE;
    const all = own + bytes;
    if (all > this.#limit)
      throw new PrivatemodeError(
        tooLarge,
        `${one} is larger than ${this.#limit} bytes (--max-buffered-bytes)`,
      );
    const isAlone = bufferedBytes === own;
    if (bufferedBytes + bytes > (isAlone || all <= SMALL ? this.#limit : forLarge)) {
      // Not the same for all: they would all come back in the same second.
      const retryAfter = randomInt(2, 6);
      throw new PrivatemodeError(tooMany, `other ${what} use all the memory reserved for them`, {
        retryAfter,
      });
    }
    const taken = bufferedBytes + wish <= forLarge ? wish : bytes;
    this.#used.bufferedBytes += taken;
    return taken;
  }

  giveBack(bytes: number): void {
    this.#used.bufferedBytes -= bytes;
  }
}

/** The part of a budget that one request or response has. */
export class Room {
  readonly #budget: MemoryBudget;
  #bytes = 0;
  #isOver = false;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /** Grows by that many bytes, or by `wish`. Returns by how many. Throws the codes of the budget. */
  grow(bytes: number, wish = bytes): number {
    if (this.#isOver) return bytes; // the client has left, and what still runs for it ends soon
    const taken = this.#budget.take(this.#bytes, bytes, wish);
    this.#bytes += taken;
    return taken;
  }

  /** Grows to that many bytes in all, unless it has them. Throws the codes of the budget. */
  growTo(bytes: number): void {
    if (bytes > this.#bytes) this.grow(bytes - this.#bytes);
  }

  /** Gives all bytes back, for good. May be called more than once. */
  release(): void {
    this.#isOver = true;
    this.#budget.giveBack(this.#bytes);
    this.#bytes = 0;
  }
}

const FIRST_BYTES = 4 * 1024;

/** A body that arrives in chunks, in one piece of memory, whose room grows with it. */
export class CollectedBody {
  length = 0;
  readonly #room: Room;
  readonly #most: number;
  #memory = Buffer.alloc(0);

  /** `most`: the length that the head announces or, if it does not, the most that the body may have. */
  constructor(room: Room, most: number) {
    this.#room = room;
    this.#most = most;
  }

  /**
   * Copies the chunk behind the others. The memory doubles as the body arrives: what a head announces may
   * never come. Throws the codes of the budget.
   */
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

  /** Frees the memory at once, and gives the room back. Nobody may read the bytes afterwards. */
  release(): void {
    releaseMemory(this.#memory);
    this.#memory = Buffer.alloc(0);
    this.#room.release();
  }
}
