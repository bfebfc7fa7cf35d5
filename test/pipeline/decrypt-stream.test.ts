/**
 * The decrypting stage by itself: whose silence it is that lasts too long, and what may come after the end.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { Deadline } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { DecryptStream, type Source } from '../../lib/pipeline/decrypt-stream.ts';
import type { Decrypter } from '../../lib/pipeline/decrypter.ts';
import { keptOfEach } from '../support/processes/kept.ts';
import { createFakeClock, settle } from '../support/remote/fake-clock.ts';

const IDLE = 300;
/** Two of them fill the stream, but do not pause the remote. */
const PIECE = 'x'.repeat(40 * 1024);
/** More than the stream holds by itself. */
const MUCH = 'x'.repeat(1 << 20);

const forged = new PrivatemodeError('response_not_authentic', 'an altered byte');
const shutdown = new PrivatemodeError('shutting_down', 'the proxy was shut down');

/** Passes on what it is fed. */
const decrypterWith = (more: Partial<Decrypter> = {}): Decrypter => ({
  feed: (chunk) => chunk,
  end() {},
  failure: undefined,
  finished: false,
  modelError: false,
  events: 0,
  usage: undefined,
  ...more,
});

/** A remote that sends when it is told to, and what becomes of it. `reads`: whether the reader takes any. */
function decrypting({
  reads = true,
  more = {} as Partial<Decrypter>,
  ...on
}: Partial<Source> & {
  reads?: boolean;
  more?: Partial<Decrypter>;
} = {}) {
  const clock = createFakeClock();
  const remote = new Readable({ read() {} });
  const stream = new DecryptStream({
    upstream: remote,
    decrypter: decrypterWith(more),
    clock,
    deadline: new Deadline(clock),
    heard() {},
    decrypted() {},
    failed() {},
    idleTimeout: IDLE,
    ...on,
  });
  let text = '';
  stream.on('data', (bytes: Uint8Array) => {
    text += Buffer.from(bytes).toString();
  });
  if (!reads) stream.pause();
  /** Resolves at the end with what ended it early, or undefined. */
  const ended = once(stream, 'end').then(() => stream.failure);
  return { clock, remote, stream, ended, failure: () => stream.failure?.code, text: () => text };
}

describe('the idle time-out of a response', () => {
  it('ends the response of a remote that is silent, and starts anew with each piece', async () => {
    const { clock, remote, failure } = decrypting();
    for (let i = 0; i < 6; i++) {
      remote.push('some');
      await clock.advance(IDLE / 2);
    }
    assert.equal(failure(), undefined);
    await clock.advance(IDLE / 2);
    assert.equal(failure(), 'stream_idle_timeout');
  });

  it('ends nothing if bytes are waiting when the time is over, as after a pause of the process', async () => {
    const { clock, remote, failure, text } = decrypting();
    clock.after(IDLE, () => remote.push('more')); // its timer was set first, and looks once more
    await clock.advance(1.5 * IDLE);
    assert.deepEqual([text(), failure()], ['more', undefined]);
  });

  for (const [pieces, state] of [
    [[PIECE, PIECE], 'the remote is not paused'],
    [[MUCH], 'the remote has no more'],
    [[MUCH, MUCH], 'the remote is paused'],
  ] as const) {
    it(`does not count the silence of a slow reader, and gives the remote a whole interval after that: ${state}`, async () => {
      const { clock, remote, stream, failure } = decrypting({ reads: false });
      for (const piece of pieces) {
        remote.push(piece);
        await settle();
      }
      await clock.advance(2.8 * IDLE);
      stream.resume();
      await clock.advance(0.7 * IDLE);
      assert.equal(failure(), undefined);
      await clock.advance(IDLE);
      assert.equal(failure(), 'stream_idle_timeout');
    });
  }

  it('does not take the tail of a response that the remote has completed from a slow reader', async () => {
    const { clock, remote, stream, ended, text } = decrypting({ reads: false });
    for (const piece of [PIECE, PIECE, 'tail']) {
      remote.push(piece);
      await settle();
    }
    remote.push(null);
    await clock.advance(2.5 * IDLE);
    stream.resume();
    assert.equal(await ended, undefined);
    assert.equal(text().length, 2 * PIECE.length + 'tail'.length);
  });
});

describe('the reports of the stream of a response', () => {
  it('are the size of each received piece, and the size of each decrypted piece', async () => {
    const pieces = ['', 'de', 'crypted'];
    const seen: unknown[] = [];
    const { remote, ended } = decrypting({
      more: { feed: () => Buffer.from(pieces.shift() ?? '') },
      heard: (bytes) => seen.push('heard', bytes),
      decrypted: (bytes) => seen.push('decrypted', bytes),
    });
    for (const piece of ['12345', '678', '9']) {
      remote.push(piece);
      await settle();
    }
    remote.push(null);
    await ended;
    assert.deepEqual(seen, ['heard', 5, 'heard', 3, 'decrypted', 2, 'heard', 1, 'decrypted', 7]);
  });

  it('end the response with the error that they throw', async () => {
    const full = new PrivatemodeError('too_many_responses', 'no room');
    const heard = (): void => {
      throw full;
    };
    const { remote, ended } = decrypting({ heard });
    remote.push('some');
    assert.equal(await ended, full);
    assert.equal(remote.destroyed, true);
  });

  it('include one failure only, whatever comes after it', async () => {
    const failures: unknown[] = [];
    const { remote, stream, ended } = decrypting({
      more: { feed: () => Buffer.alloc(0), failure: forged },
      failed: (error) => failures.push(error),
    });
    remote.push('altered');
    assert.equal(await ended, forged);
    stream.stop(shutdown);
    await settle();
    assert.deepEqual([failures, stream.failure, remote.destroyed], [[forged], forged, true]);
  });
});

describe('a response in which the model reported an error', () => {
  for (const ending of ['breaks off', 'is silent after that', 'is ended by a shutdown']) {
    it(`counts as complete if it ${ending}`, async () => {
      const { clock, remote, stream, ended, text } = decrypting({ more: { modelError: true } });
      remote.push('error');
      await settle();
      if (ending === 'breaks off') remote.destroy();
      else if (ending === 'is ended by a shutdown') stream.stop(shutdown);
      else await clock.advance(IDLE);
      assert.equal(await ended, undefined);
      assert.equal(text(), 'error');
    });
  }
});

it('a response that is stopped ends with the reason, after what was decrypted', async () => {
  const { remote, stream, ended, text } = decrypting();
  remote.push('some');
  await settle();
  stream.stop(shutdown);
  assert.equal(await ended, shutdown);
  assert.deepEqual([text(), remote.destroyed], ['some', true]);
});

describe('back-pressure', () => {
  it('pauses the remote until the reader can take more', async () => {
    const { remote, stream, ended, text } = decrypting({ reads: false });
    for (const piece of [MUCH, MUCH, MUCH, null]) remote.push(piece);
    await settle();
    assert.ok(remote.isPaused());
    assert.ok(remote.readableLength >= MUCH.length, 'all of it was taken in');
    stream.resume();
    await ended;
    assert.equal(text().length, 3 * MUCH.length);
  });

  it('leaves a slow reader all that was decrypted before the connection broke, or closed after the end', async () => {
    for (const isWhole of [false, true]) {
      const { remote, stream, ended, text } = decrypting({ reads: false });
      remote.push(PIECE);
      await settle();
      if (isWhole) remote.push(null);
      else remote.destroy();
      await settle();
      assert.equal(remote.closed, true);
      stream.resume();
      assert.equal((await ended)?.code, isWhole ? undefined : 'stream_unfinished');
      assert.equal(text(), PIECE);
    }
  });

  it('destroys the response of the remote if the reader destroys the stream', async () => {
    const { remote, stream, text } = decrypting();
    remote.push('one');
    await settle();
    stream.destroy();
    await settle();
    assert.deepEqual([text(), remote.destroyed], ['one', true]);
  });
});

describe('what comes after a complete response', () => {
  /** Complete with its first piece. */
  async function complete() {
    const running = decrypting({ more: { finished: true, end: assert.fail } });
    running.remote.push('all of it');
    assert.equal(await running.ended, undefined);
    running.remote.push('and more');
    await settle();
    assert.deepEqual([running.text(), running.remote.readableLength], ['all of it', 0]);
    return running;
  }

  it('is discarded for five seconds; then the response of the remote is destroyed', async () => {
    const { clock, remote } = await complete();
    await clock.advance(4_999);
    assert.deepEqual([remote.destroyed, remote.readableFlowing], [false, true]);
    await clock.advance(1);
    assert.equal(remote.destroyed, true);
  });

  it('may end by itself, after which no timer is left', async () => {
    const { remote, text } = await complete();
    remote.push(null);
    await settle();
    assert.deepEqual([text(), remote.errored], ['all of it', null]);
  });
});

it('a response stream that has ended keeps less than 200 KB between two full garbage collections', async () => {
  const kilobytes = await keptOfEach(async (ballast) => {
    const { remote, ended } = decrypting();
    Object.assign(remote, { ballast }).push('some');
    remote.push(null);
    await ended;
  });
  assert.ok(kilobytes < 200, `${kilobytes} KB of each response`);
});
