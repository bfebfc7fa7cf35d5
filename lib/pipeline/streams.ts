/** The Node stream around a sealed body, whose core is plain functions of bytes. */
import { Readable } from 'node:stream';
import type { SealedBody } from './request-body.ts';

/**
 * A sealed body as a stream: a slice is sealed when the reader wants it and the previous one is gone, and
 * the event loop turns between two slices, so that a large upload does not stall other people's tokens.
 */
export function sealedReadable(sealed: SealedBody): Readable {
  const slices = sealed.slices();
  let first = true;
  return new Readable({
    highWaterMark: 1, // one slice at a time, whatever its size
    read() {
      const pull = (): void => {
        if (this.destroyed) return;
        try {
          const { value, done } = slices.next();
          this.push(done ? null : value);
        } catch (error) {
          this.destroy(error as Error);
        }
      };
      if (first) pull();
      else setImmediate(pull);
      first = false;
    },
    destroy(error, callback) {
      slices.return();
      // Cut off, a slice may still be on its way.
      if (this.readableEnded) sealed.release();
      callback(error);
    },
  });
}
