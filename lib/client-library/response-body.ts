/** Reads the body of a service's response as it arrives, within limits. */
import { Deadline } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/transport-errors.ts';
import { Crumbs } from '../pipeline/crumbs.ts';
import { runtimeLimit } from './errors.ts';
import type { ClientConfig } from './read-options.ts';
import type { FetchAttempt } from './send.ts';

const LONGEST_REST = 64 * 1024; // the most bytes that are read after the end of a response
const ignore = (): void => {};

/** The body of one attempt. A caller that does not read the body to its end has to `leave` or `drain` it. */
export class ResponseBody {
  readonly #attempt: FetchAttempt;
  readonly #config: ClientConfig;
  readonly #silence: Deadline;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #isLate = false;

  constructor(attempt: FetchAttempt, config: ClientConfig) {
    this.#attempt = attempt;
    this.#config = config;
    this.#silence = new Deadline(config.clock);
  }

  /**
   * Returns the next bytes; undefined after the last. Throws stream_unfinished if the response breaks off,
   * stream_idle_timeout after `streamIdleTimeout` of silence, and the reason of the application's signal.
   * Time between two calls does not count as silence.
   */
  async next(): Promise<Uint8Array | undefined> {
    const { response, request } = this.#attempt;
    // The reader is taken this late, because a runtime frees the connection of a response that nobody reads.
    this.#reader ??= response.body?.getReader();
    this.#silence.wait(this.#config.streamIdleTimeout, () => {
      this.#isLate = true;
      this.leave();
    });
    try {
      const { value } = (await this.#reader?.read()) ?? {};
      if (this.#isLate) throw stalled();
      if (value === undefined) this.#silence.cancel();
      else this.#silence.rest();
      return value;
    } catch (thrown) {
      this.leave();
      request.signal.throwIfAborted();
      throw this.#isLate ? stalled() : (runtimeLimit(thrown) ?? brokenOff(thrown));
    }
  }

  /** Returns the bytes that are left. Throws as `next` and Crumbs do, and response_too_large above `most`. */
  async all(most: number): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    const crumbs = new Crumbs();
    let size = 0;
    try {
      for (let chunk = await this.next(); chunk !== undefined; chunk = await this.next()) {
        crumbs.count(chunk);
        size += chunk.length;
        if (size > most)
          throw new PrivatemodeError('response_too_large', `the response is longer than ${most} bytes`);
        chunks.push(chunk);
      }
    } catch (thrown) {
      this.leave();
      throw thrown;
    }
    return Buffer.concat(chunks);
  }

  /** Ends the connection, even if the given fetch obeys no signal. */
  leave(): void {
    this.#silence.cancel();
    this.#attempt.abort();
    this.#reader?.cancel().catch(ignore);
  }

  /**
   * Reads the rest and drops it, because all that matters has come, and the connection can be used again
   * afterwards. Does this no longer than `upstreamLinger` (lib/times.ts).
   */
  drain(): void {
    const { clock } = this.#config;
    const cancel = clock.after(clock.times.upstreamLinger, () => this.leave());
    this.all(LONGEST_REST).catch(ignore).finally(cancel);
  }
}
