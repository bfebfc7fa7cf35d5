/** Reads the body of a service's response as it arrives, within limits. */
import { PrivatemodeError } from '../errors.ts';
import { afterSilence, brokenOff, LINGER, stalled } from '../network/upstream-failure.ts';
import { runtimeLimit } from './control-call.ts';
import type { FetchAttempt } from './send.ts';
import { unref } from './session.ts';

/**
 * The network chunks of the response. Throws stream_unfinished if the response breaks off,
 * stream_idle_timeout after `idle` ms of silence (time that the reader takes does not count), and the reason
 * of the application's signal. If the reader leaves early, the connection ends. After `finish`, the rest is
 * read and dropped instead, for LINGER ms at most, so that the connection can be used again.
 */
export function responseChunks({ response, request, abort }: FetchAttempt, idle: number) {
  // The first read takes it: a runtime ends the connection of a response that nobody holds or reads.
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  let finished = false;
  let whole = false;

  async function* read(): AsyncGenerator<Uint8Array> {
    try {
      reader = response.body?.getReader();
      for (;;) {
        const { promise: late, reject } = Promise.withResolvers<never>();
        const cancel = afterSilence(idle, () => reject(stalled()));
        const next = await Promise.race([reader?.read(), late]).finally(cancel);
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
    const impatience = setTimeout(abort, LINGER);
    unref(impatience);
    const next = (): Promise<void> | undefined =>
      reader?.read().then(({ done }) => (done ? undefined : next()));
    void next()
      ?.catch(() => {})
      .finally(() => clearTimeout(impatience));
  }

  return {
    chunks: read(),
    /** Says that the reader has all that matters. */
    finish(): void {
      finished = true;
    },
  };
}
