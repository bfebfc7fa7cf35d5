/** The decrypting stage by itself: whose silence it is that lasts too long, and what may come after the end. */
import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { DecryptStream, UNENCRYPTED } from '../../lib/pipeline/decrypt-stream.ts';
import type { Decrypter } from '../../lib/pipeline/decrypter.ts';
import { until } from '../support/gateway-fixture.ts';

const IDLE = 300;
/** All that is due without waiting for anything. */
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));
const newStats = () => ({ firstChunkAt: undefined, chunks: 0, bytes: { fromRemote: 0, toClient: 0 } });

interface Decrypting {
  readonly remote: Readable;
  readonly stream: DecryptStream;
  /** Resolves at the end with what ended it early, or undefined. */
  readonly ended: Promise<PrivatemodeError | undefined>;
  /** Code of what ended it early; undefined while it runs, and where it is complete. */
  readonly failure: () => string | undefined;
  readonly text: () => string;
}

/** A remote that sends when it is told to, and what becomes of it. `reads`: whether the reader takes anything. */
function decrypting({
  decrypter = UNENCRYPTED,
  reads = true,
  signal = new AbortController().signal,
} = {}): Decrypting {
  const remote = new Readable({ read() {} });
  const stream = new DecryptStream(remote, decrypter, { stats: newStats(), idleTimeout: IDLE, signal });
  let text = '';
  stream.on('data', (bytes: Uint8Array) => {
    text += Buffer.from(bytes).toString();
  });
  if (!reads) stream.pause();
  const ended = once(stream, 'end').then(() => stream.failure);
  return { remote, stream, ended, failure: () => stream.failure?.code, text: () => text };
}

/** More than the stream holds by itself. */
const MUCH = 'x'.repeat(1 << 20);

describe('the idle time-out of a response', { concurrency: true }, () => {
  it('ends the response of a remote that is silent', async () => {
    const { remote, failure } = decrypting();
    remote.push('some');
    await delay(IDLE / 2); // the passing of time is what this is about, here and below
    assert.equal(failure(), undefined);
    await delay(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });

  it('starts anew with each piece', async () => {
    const { remote, stream, failure } = decrypting();
    for (let i = 0; i < 6; i++) {
      remote.push('some');
      await delay(IDLE / 2);
    }
    assert.equal(failure(), undefined);
    stream.destroy();
  });

  it('does not run while the reader makes us wait, and gives the remote a whole interval after that', async () => {
    const { remote, stream, failure } = decrypting({ reads: false });
    remote.push(MUCH);
    remote.push(MUCH);
    await delay(2.5 * IDLE);
    assert.equal(failure(), undefined);
    stream.resume(); // the rest is the remote's to send
    await delay(0.7 * IDLE);
    assert.equal(failure(), undefined, 'the silence of the reader was taken for that of the remote');
    await delay(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });
});

describe('the signal of a shutdown', () => {
  const reason = new PrivatemodeError('shutting_down', 'the proxy was shut down');

  it('ends the response with its reason, and is let go of', async () => {
    const control = new AbortController();
    const { remote, ended, text } = decrypting({ signal: control.signal });
    remote.push('some');
    await until(() => text() === 'some', 'nothing arrived');
    control.abort(reason);
    assert.equal(await ended, reason);
    assert.deepEqual([remote.destroyed, getEventListeners(control.signal, 'abort').length], [true, 0]);
  });

  it('is let go of when the response ends', async () => {
    const control = new AbortController();
    const { remote, ended } = decrypting({ signal: control.signal });
    remote.push(null);
    assert.equal(await ended, undefined);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('ends a response at once where it has aborted already', async () => {
    const { remote, ended } = decrypting({ signal: AbortSignal.abort(reason) });
    assert.equal(await ended, reason);
    assert.equal(remote.destroyed, true);
  });
});

describe('back-pressure', () => {
  it('pauses the remote until the reader can take more', async () => {
    const { remote, stream, text } = decrypting({ reads: false });
    for (const piece of [MUCH, MUCH, MUCH]) remote.push(piece);
    await turn();
    await turn();
    assert.ok(remote.isPaused());
    assert.ok(remote.readableLength >= MUCH.length, 'all of it was taken in');
    stream.resume();
    await until(() => text().length === 3 * MUCH.length, 'the rest did not arrive');
    stream.destroy();
  });

  it('does not keep what was decrypted from a reader that is slow when the connection breaks', async () => {
    const { remote, stream, ended, text } = decrypting({ reads: false });
    remote.push('what came before');
    await turn();
    remote.destroy();
    await turn();
    stream.resume();
    assert.equal((await ended)?.code, 'stream_unfinished');
    assert.equal(text(), 'what came before');
  });

  it('takes a response for complete that a slow reader gets after the connection has closed', async () => {
    const { remote, stream, ended, text } = decrypting({ reads: false });
    const closed = once(remote, 'close');
    const piece = 'x'.repeat(40 * 1024); // two of them fill the stream, but do not pause the remote
    remote.push(piece);
    await turn();
    remote.push(piece);
    remote.push(null);
    await closed;
    assert.equal(stream.readableLength, 2 * piece.length);
    stream.resume();
    assert.equal(await ended, undefined);
    assert.equal(text().length, 2 * piece.length);
  });

  it('lets go of the remote where nobody wants the rest', async () => {
    const { remote, stream, text } = decrypting();
    remote.push('one');
    await until(() => text() === 'one', 'nothing arrived');
    stream.destroy();
    await once(stream, 'close');
    remote.push('two');
    await turn();
    assert.deepEqual([text(), remote.destroyed], ['one', true]);
  });
});

describe('the end of a response that is decrypted in several turns', () => {
  it('gives others their turn, and no close of the remote cuts it off', async () => {
    let turns = 0;
    const decrypter = {
      feed: () => new Uint8Array(),
      flush() {
        turns += 1;
        decrypter.pending = turns < 5;
        return Buffer.from(String(turns));
      },
      failure: undefined,
      finished: false,
      pending: false,
      usage: undefined,
    };
    const { remote, ended, text } = decrypting({ decrypter });
    let others = 0;
    remote.once('end', () => {
      const other = (): void => {
        others += 1;
        if (turns < 5) setImmediate(other);
      };
      setImmediate(other);
    });
    remote.push(null);
    assert.equal(await ended, undefined);
    assert.deepEqual([text(), remote.destroyed], ['12345', true]);
    assert.ok(others >= 3, `${others} turns of others`);
  });
});

describe('what comes after a complete response', () => {
  /** Complete with its first piece. */
  const oncePiece = (): Decrypter => {
    let finished = false;
    return {
      feed(chunk) {
        finished = true;
        return chunk;
      },
      flush: () => Buffer.from('flushed'),
      failure: undefined,
      get finished() {
        return finished;
      },
      pending: false,
      usage: undefined,
    };
  };
  const complete = async (): Promise<Decrypting> => {
    const running = decrypting({ decrypter: oncePiece() });
    const { remote, ended, text } = running;
    remote.push('all of it');
    assert.equal(await ended, undefined);
    remote.push('and more');
    await turn();
    assert.deepEqual([text(), remote.readableLength], ['all of it', 0]);
    return running;
  };

  it('is thrown away for five seconds, and then cut off', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { remote } = await complete();
    t.mock.timers.tick(4_999);
    assert.deepEqual([remote.destroyed, remote.readableFlowing], [false, true]);
    t.mock.timers.tick(1);
    assert.equal(remote.destroyed, true);
  });

  it('may end by itself, and leaves the connection in order', async () => {
    const { remote, text } = await complete();
    remote.push(null);
    await once(remote, 'end');
    assert.equal(text(), 'all of it');
    assert.equal(remote.errored, null);
  });
});
