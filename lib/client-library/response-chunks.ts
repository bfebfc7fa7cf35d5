/** Reads the body of a service's response as it arrives, within limits. */
import { Deadline } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { readAll } from '../network/control-call.ts';
import { brokenOff, stalled } from '../network/failures.ts';
import { runtimeLimit } from './control-call.ts';
import type { ClientConfig } from './options.ts';
import type { FetchAttempt } from './send.ts';

/**
 * The network chunks of the response. Throws stream_unfinished if the response breaks off,
 * stream_idle_timeout after streamIdleTimeout of silence (time that the reader takes does not count), and the
 * reason of the application's signal. If the reader leaves early, the connection ends. After `finish`, the
 * rest is read and dropped instead, for `upstreamLinger` (lib/times.ts) at most, so that the connection can
 * be used again.
 */
export function responseChunks(
  { response, request, abort }: FetchAttempt,
  { streamIdleTimeout: idle, clock }: Pick<ClientConfig, 'streamIdleTimeout' | 'clock'>,
) {
  // The first read takes it: a runtime ends the connection of a response that nobody holds or reads.
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  let finished = false;
  let whole = false;

  async function* read(): AsyncGenerator<Uint8Array> {
    try {
      reader = response.body?.getReader();
      for (;;) {
        const { promise: late, reject } = Promise.withResolvers<never>();
        const silence = new Deadline(clock).wait(idle, () => reject(stalled()));
        const next = await Promise.race([reader?.read(), late]).finally(() => silence.cancel());
        if (next === undefined || next.done) {
          whole = true;
          return;
        }
        yield next.value;
      }
    } catch (thrown) {
      request.signal.throwIfAborted();
      throw thrown instanceof PrivatemodeError ? thrown : (runtimeLimit(thrown) ?? brokenOff(thrown));
    } finally {
      if (finished && !whole) drop();
      else if (!whole) abort();
    }
  }

  function drop(): void {
    const cancel = clock.after(clock.times.upstreamLinger, abort);
    const next = (): Promise<void> | undefined =>
      reader?.read().then(({ done }) => (done ? undefined : next()));
    void next()
      ?.catch(() => {})
      .finally(cancel);
  }

  return {
    chunks: read(),
    /** Says that the reader has all that matters. */
    finish(): void {
      finished = true;
    },
  };
}

/** All bytes of the chunks. Rejects with response_too_large above `most` bytes, and as the chunks do. */
export async function collected(chunks: AsyncIterable<Uint8Array>, most: number): Promise<Buffer> {
  const whole = await readAll(chunks, most);
  if (whole !== undefined) return whole;
  throw new PrivatemodeError('response_too_large', `the response is longer than ${most} bytes`);
}
