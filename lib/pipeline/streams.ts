/** Node streams around the cores of this room, which are plain functions of bytes. */
import { Readable, Transform, type TransformCallback, Writable } from 'node:stream';
import type { PrivatemodeError } from '../errors.ts';
import type { RequestBodyStage, SealedBody } from './request-body.ts';
import type { ResponseOpener } from './response-opener.ts';

/** Feeds a body stage; destroyed with its typed error where it throws. The caller calls `finish` on 'finish'. */
export function collectInto(stage: Pick<RequestBodyStage, 'feed'>): Writable {
  return new Writable({
    write(chunk: Uint8Array, _encoding, callback) {
      try {
        stage.feed(chunk);
      } catch (error) {
        callback(error as Error);
        return;
      }
      callback();
    },
  });
}

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
      callback(error);
    },
  });
}

class OpenerTransform extends Transform {
  readonly #opener: ResponseOpener;
  #broken: PrivatemodeError | undefined;

  constructor(opener: ResponseOpener) {
    super();
    this.#opener = opener;
  }

  override _transform(chunk: Uint8Array, _encoding: BufferEncoding, callback: TransformCallback): void {
    this.#deliver(this.#opener.feed(chunk), callback);
  }

  override _flush(callback: TransformCallback): void {
    this.#deliver(this.#opener.flush(), callback);
  }

  // destroy() drops what was pushed and not yet read, so the failure waits until that has been read.
  #deliver(bytes: Uint8Array, callback: TransformCallback): void {
    if (bytes.length > 0) this.push(bytes);
    this.#broken = this.#opener.failure;
    if (this.#broken === undefined) callback();
    else this.#breakWhenRead();
  }

  #breakWhenRead(): void {
    if (this.#broken === undefined || this.readableLength > 0) return;
    const failure = this.#broken;
    process.nextTick(() => this.destroy(failure));
  }

  override read(size?: number): unknown {
    const chunk: unknown = super.read(size);
    this.#breakWhenRead();
    return chunk;
  }
}

/**
 * An opener as a Transform: pushes what each chunk completes; once the opener fails, the bytes delivered so
 * far are read to the end, then the stream is destroyed with the failure. It never ends cleanly after one.
 */
export function openerTransform(opener: ResponseOpener): Transform {
  return new OpenerTransform(opener);
}
