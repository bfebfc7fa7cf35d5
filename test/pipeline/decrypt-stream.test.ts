/**
 * The decrypting stage by itself: whose silence it is that lasts too long, and what may come after the end.
 */

import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { type DecryptOptions, DecryptStream, UNENCRYPTED } from '../../lib/pipeline/decrypt-stream.ts';
import type { Decrypter } from '../../lib/pipeline/decrypter.ts';
import { eventually } from '../support/processes/eventually.ts';
import { keptOfEach } from '../support/processes/kept.ts';

const IDLE = 300;
/** All that is due without waiting for anything. */
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));
/** ms; a timer that is started within a step counts from its end. */
const STEP = 10;
/** A clock that moves only when told to, in steps; resolves when all that was due then has happened. */
function clock(t: TestContext): (ms: number) => Promise<void> {
  let now = 0;
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(systemClock, 'monotonic', () => now);
  return async (ms) => {
    await turn(); // what was pushed before arrives at its time
    for (let left = ms; left > 0; left -= STEP) {
      now += Math.min(left, STEP);
      t.mock.timers.tick(Math.min(left, STEP));
      await turn();
    }
  };
}
/** Nobody counts. */
const UNCOUNTED: DecryptOptions['count'] = { heard() {}, decrypted() {} };

interface Decrypting {
  readonly remote: Readable;
  readonly stream: DecryptStream;
  /** Resolves at the end with what ended it early, or undefined. */
  readonly ended: Promise<PrivatemodeError | undefined>;
  /** Code of what ended it early; undefined while it runs, and where it is complete. */
  readonly failure: () => string | undefined;
  readonly text: () => string;
}

/**
 * A remote that sends when it is told to, and what becomes of it. `reads`: whether the reader takes anything.
 */
function decrypting({
  decrypter = UNENCRYPTED,
  reads = true,
  signal = new AbortController().signal,
} = {}): Decrypting {
  const remote = new Readable({ read() {} });
  const stream = new DecryptStream(remote, decrypter, {
    clock: systemClock,
    count: UNCOUNTED,
    idleTimeout: IDLE,
    signal,
  });
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

describe('the idle time-out of a response', () => {
  it('ends the response of a remote that is silent', async (t) => {
    const pass = clock(t);
    const { remote, failure } = decrypting();
    remote.push('some');
    await pass(IDLE / 2);
    assert.equal(failure(), undefined);
    await pass(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });

  it('starts anew with each piece', async (t) => {
    const pass = clock(t);
    const { remote, stream, failure } = decrypting();
    for (let i = 0; i < 6; i++) {
      remote.push('some');
      await pass(IDLE / 2);
    }
    assert.equal(failure(), undefined);
    stream.destroy();
  });

  it('ends nothing if bytes are waiting when the time is over, as after a pause of the process', async (t) => {
    const pass = clock(t);
    const { remote, stream, failure, text } = decrypting();
    remote.push('some');
    await pass(IDLE - 1);
    const passing = pass(1);
    setImmediate(() => remote.push(' more')); // read after the timer has run, before the last look
    await passing;
    await turn();
    assert.deepEqual([text(), failure()], ['some more', undefined]);
    stream.destroy();
  });

  it('does not run while the reader reads nothing, and gives the remote a whole interval after that', async (t) => {
    const pass = clock(t);
    const { remote, stream, failure } = decrypting({ reads: false });
    remote.push(MUCH);
    remote.push(MUCH);
    await pass(2.5 * IDLE);
    assert.equal(failure(), undefined);
    stream.resume(); // the rest is the remote's to send
    await pass(0.7 * IDLE);
    assert.equal(failure(), undefined, 'the silence of the reader was taken for that of the remote');
    await pass(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });
});

describe('the time that a slow reader took', () => {
  it('is not counted as silence of the remote if all that the remote had sent was already received', async (t) => {
    const pass = clock(t);
    const { remote, stream, failure } = decrypting({ reads: false });
    remote.push(MUCH); // taken in at once, so nothing but the reader tells when the wait is over
    await pass(2.5 * IDLE);
    stream.resume();
    await pass(0.7 * IDLE);
    assert.equal(failure(), undefined);
    stream.destroy();
  });

  /** Two of them fill the stream, but do not pause the remote. */
  const PIECE = 'x'.repeat(40 * 1024);

  it('is not counted as silence of the remote if what waits does not pause it: the remote has an interval of its own after that', async (t) => {
    const pass = clock(t);
    const { remote, stream, failure } = decrypting({ reads: false });
    remote.push(PIECE);
    await turn();
    remote.push(PIECE);
    await pass(2.8 * IDLE);
    assert.equal(failure(), undefined);
    stream.resume();
    await pass(0.7 * IDLE);
    assert.equal(failure(), undefined, 'the silence of the reader was taken for that of the remote');
    await pass(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });

  it('does not take the tail of a response that the remote has completed', async (t) => {
    const pass = clock(t);
    const { remote, stream, ended, text } = decrypting({ reads: false });
    for (const piece of [PIECE, PIECE, 'tail']) {
      remote.push(piece);
      await turn();
    }
    remote.push(null);
    await pass(2.5 * IDLE);
    stream.resume();
    assert.equal(await ended, undefined);
    assert.equal(text().length, 2 * PIECE.length + 'tail'.length);
  });
});

describe('the reports of the stream of a response', () => {
  it('are the size of each received piece, the first decrypted bytes, and the size of each decrypted piece', async () => {
    const pieces = ['', 'de', '', 'crypted'];
    const decrypter: Decrypter = {
      ...UNENCRYPTED,
      feed: () => Buffer.from(pieces.shift() ?? ''),
      flush: () => Buffer.from('end'),
    };
    const remote = new Readable({ read() {} });
    const seen: unknown[] = [];
    const stream = new DecryptStream(remote, decrypter, {
      clock: systemClock,
      count: {
        heard: (bytes) => seen.push(['heard', bytes]),
        decrypted: (bytes) => seen.push(['decrypted', bytes]),
      },
      idleTimeout: IDLE,
      signal: new AbortController().signal,
      onFirstBytes: () => seen.push('first bytes'),
      onFailure: () => seen.push('failed'),
    });
    stream.resume();
    for (const piece of ['12345', '678', '9', '0123']) {
      remote.push(piece);
      await turn();
    }
    remote.push(null);
    await once(stream, 'end');
    assert.deepEqual(seen, [
      ['heard', 5],
      ['heard', 3],
      ...['first bytes', ['decrypted', 2]],
      ['heard', 1],
      ...[
        ['heard', 4],
        ['decrypted', 7],
      ],
      ['decrypted', 3],
    ]);
  });

  it('include one failure only, whatever comes after it', async () => {
    const failure = new PrivatemodeError('response_not_authentic', 'an altered byte');
    const decrypter: Decrypter = { ...UNENCRYPTED, feed: () => new Uint8Array(), failure };
    const remote = new Readable({ read() {} });
    const failures: unknown[] = [];
    const control = new AbortController();
    const stream = new DecryptStream(remote, decrypter, {
      clock: systemClock,
      count: UNCOUNTED,
      idleTimeout: IDLE,
      signal: control.signal,
      onFailure: (error) => failures.push(error),
    });
    stream.resume();
    remote.push('altered');
    await once(stream, 'end');
    control.abort(new Error('late'));
    await turn();
    assert.deepEqual([failures, stream.failure === failure, remote.destroyed], [[failure], true, true]);
  });
});

describe('a response in which the model reported an error', { concurrency: true }, () => {
  const reported = (): Decrypter => ({ ...UNENCRYPTED, modelError: true });
  const endings: readonly (readonly [string, (remote: Readable, shutdown: AbortController) => unknown])[] = [
    ['breaks off', (remote) => remote.destroy()],
    ['is silent after that', () => {}],
    ['is ended by a shutdown', (_, shutdown) => shutdown.abort(new PrivatemodeError('shutting_down', 'x'))],
  ];
  for (const [ending, end] of endings) {
    it(`counts as complete if it ${ending}`, async () => {
      const shutdown = new AbortController();
      const { remote, stream, ended, text } = decrypting({ decrypter: reported(), signal: shutdown.signal });
      remote.push('error');
      await once(stream, 'data');
      end(remote, shutdown);
      assert.equal(await ended, undefined);
      assert.equal(text(), 'error');
    });
  }
});

describe('the signal of a shutdown', () => {
  const reason = new PrivatemodeError('shutting_down', 'the proxy was shut down');

  it('ends the response with its reason, and keeps no listener', async () => {
    const control = new AbortController();
    const { remote, ended, text } = decrypting({ signal: control.signal });
    remote.push('some');
    await eventually('the first bytes', () => text() === 'some');
    control.abort(reason);
    assert.equal(await ended, reason);
    assert.deepEqual([remote.destroyed, getEventListeners(control.signal, 'abort').length], [true, 0]);
  });

  it('keeps no listener when the response has ended', async () => {
    const control = new AbortController();
    const { remote, ended } = decrypting({ signal: control.signal });
    remote.push(null);
    assert.equal(await ended, undefined);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('ends a response at once if it was aborted before', async () => {
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
    await eventually('the rest', () => text().length === 3 * MUCH.length);
    stream.destroy();
  });

  it('leaves a slow reader all that was decrypted before the connection broke', async () => {
    const { remote, stream, ended, text } = decrypting({ reads: false });
    remote.push('what came before');
    await turn();
    remote.destroy();
    await turn();
    stream.resume();
    assert.equal((await ended)?.code, 'stream_unfinished');
    assert.equal(text(), 'what came before');
  });

  it('keeps a response complete for a slow reader who reads it after the connection has closed', async () => {
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

  it('destroys the response of the remote if the reader destroys the stream', async () => {
    const { remote, stream, text } = decrypting();
    remote.push('one');
    await eventually('the first bytes', () => text() === 'one');
    stream.destroy();
    await once(stream, 'close');
    remote.push('two');
    await turn();
    assert.deepEqual([text(), remote.destroyed], ['one', true]);
  });
});

describe('the stream of a response', () => {
  it('is closed when all of it has been read, whether the response was complete or not', async () => {
    const whole = decrypting();
    const closed = once(whole.stream, 'close');
    whole.remote.push('all');
    whole.remote.push(null);
    await Promise.all([whole.ended, closed]);
    const failure = new PrivatemodeError('response_not_authentic', 'an altered byte');
    const broken = decrypting({ decrypter: { ...UNENCRYPTED, failure } });
    const brokenClosed = once(broken.stream, 'close');
    broken.remote.push('altered');
    await Promise.all([broken.ended, brokenClosed]);
    assert.deepEqual([whole.stream.writableFinished, broken.stream.writableFinished], [true, true]);
  });

  it('leaves no timer when it has ended', async () => {
    const timers = (): number =>
      process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
    const before = timers();
    const { remote, ended, stream } = decrypting();
    assert.equal(timers(), before + 1);
    remote.push(null);
    await ended;
    assert.equal(timers(), before);
    const other = decrypting();
    other.stream.destroy();
    await once(other.stream, 'close');
    assert.equal(timers(), before);
    assert.equal(stream.destroyed, true);
  });
});

describe('the end of a response that is decrypted in several turns', () => {
  it('lets other work run between the turns, and is not cut off by the close of the remote', async () => {
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

  it('is discarded for five seconds; then the response of the remote is destroyed', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { remote } = await complete();
    t.mock.timers.tick(4_999);
    assert.deepEqual([remote.destroyed, remote.readableFlowing], [false, true]);
    t.mock.timers.tick(1);
    assert.equal(remote.destroyed, true);
  });

  it('is not waited for if the remote has already ended', async (t) => {
    const { mock } = t.mock.method(globalThis, 'setTimeout');
    const waits = (): number => mock.calls.filter(({ arguments: [, ms] }) => ms === 5_000).length;
    const { remote, ended } = decrypting();
    remote.push('all of it');
    remote.push(null);
    await ended;
    assert.equal(waits(), 0);
    const waiting = await complete();
    assert.equal(waits(), 1);
    waiting.remote.destroy();
  });

  it('may end by itself, without an error of the connection', async () => {
    const { remote, text } = await complete();
    remote.push(null);
    await once(remote, 'end');
    assert.equal(text(), 'all of it');
    assert.equal(remote.errored, null);
  });
});

describe('a response stream that has ended', () => {
  it('keeps less than 200 KB between two full garbage collections', async () => {
    const kilobytes = await keptOfEach(async (ballast) => {
      const { remote, ended } = decrypting();
      Object.assign(remote, { ballast }).push('some');
      remote.push(null);
      await ended;
    });
    assert.ok(kilobytes < 200, `${kilobytes} KB of each response`);
  });
});
