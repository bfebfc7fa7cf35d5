/** The relay by itself: whose silence it is that lasts too long, and what may come after the end. */
import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { identityOpener, type Relay, relay } from '../../lib/gateway/relay.ts';
import { newTally } from '../../lib/gateway/request-stats.ts';
import type { ResponseOpener } from '../../lib/pipeline/response-opener.ts';
import { until } from '../support/gateway-fixture.ts';

const IDLE = 300;
/** All that is due without waiting for anything. */
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));

interface Relayed extends Relay {
  readonly remote: Readable;
  /** Code of what ended it early; undefined while it runs, and where it is complete. */
  readonly failure: () => string | undefined;
  readonly text: () => string;
}

/** A remote that sends when it is told to, and what becomes of it. `reads`: whether the receiver can take more. */
function relayed({ opener = identityOpener, reads = true } = {}): Relayed {
  const remote = new Readable({ read() {} });
  const { signal } = new AbortController();
  let text = '';
  const write = (bytes: Uint8Array): boolean => {
    text += Buffer.from(bytes).toString();
    return reads;
  };
  const running = relay(remote, opener, { tally: newTally(), idleTimeout: IDLE, signal, write });
  let failure: string | undefined;
  void running.ended.then((error) => {
    failure = error?.code;
  });
  return { ...running, remote, failure: () => failure, text: () => text };
}

describe('the idle time-out of the relay', { concurrency: true }, () => {
  it('ends the answer of a remote that is silent', async () => {
    const { remote, failure } = relayed();
    remote.push('some');
    await delay(IDLE / 2);
    assert.equal(failure(), undefined);
    await delay(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });

  it('starts anew with each piece', async () => {
    const { remote, failure, stop } = relayed();
    for (let i = 0; i < 6; i++) {
      remote.push('some');
      await delay(IDLE / 2);
    }
    assert.equal(failure(), undefined);
    stop();
  });

  it('does not run while the reader makes us wait, and gives the remote a whole interval after that', async () => {
    const { remote, failure, resume } = relayed({ reads: false });
    remote.push('more than can be taken');
    await delay(2.5 * IDLE);
    assert.equal(failure(), undefined);
    resume(); // the rest is the remote's to send
    await delay(0.7 * IDLE);
    assert.equal(failure(), undefined, 'the silence of the reader was taken for that of the remote');
    await delay(IDLE);
    assert.equal(failure(), 'stream_idle_timeout');
  });
});

describe('the signal of the relay', () => {
  const reason = new PrivatemodeError('shutting_down', 'the proxy was shut down');
  const relayedUnder = (signal: AbortSignal) => {
    const remote = new Readable({ read() {} });
    const write = (): boolean => true;
    return {
      remote,
      ...relay(remote, identityOpener, { tally: newTally(), idleTimeout: IDLE, signal, write }),
    };
  };

  it('ends the answer with its reason, and is let go of', async () => {
    const control = new AbortController();
    const { remote, ended } = relayedUnder(control.signal);
    remote.push('some');
    control.abort(reason);
    assert.equal(await ended, reason);
    assert.deepEqual([remote.destroyed, getEventListeners(control.signal, 'abort').length], [true, 0]);
  });

  it('is let go of when the answer ends', async () => {
    const control = new AbortController();
    const { remote, ended } = relayedUnder(control.signal);
    remote.push(null);
    assert.equal(await ended, undefined);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('ends an answer at once where it has aborted already', async () => {
    const { remote, ended } = relayedUnder(AbortSignal.abort(reason));
    assert.equal(await ended, reason);
    assert.equal(remote.destroyed, true);
  });
});

describe('the back-pressure of the relay', () => {
  it('pauses the remote until the receiver can take more', async () => {
    const { remote, resume, stop, text } = relayed({ reads: false });
    remote.push('one ');
    await until(() => text() === 'one ', 'nothing arrived');
    remote.push('two ');
    await turn();
    assert.deepEqual([text(), remote.isPaused()], ['one ', true]);
    resume();
    await until(() => text() === 'one two ', 'the rest did not arrive');
    assert.equal(remote.isPaused(), true);
    stop();
  });

  it('lets go of the remote where nobody wants the rest', async () => {
    const { remote, stop, ended, text } = relayed();
    remote.push('one');
    await until(() => text() === 'one', 'nothing arrived');
    stop();
    remote.push('two');
    assert.equal(await ended, undefined);
    assert.deepEqual([text(), remote.destroyed], ['one', true]);
  });
});

describe('the end of an answer that is opened in several turns', () => {
  it('gives others their turn, and no close of the remote cuts it off', async () => {
    let turns = 0;
    const opener = {
      feed: () => new Uint8Array(),
      flush() {
        turns += 1;
        opener.pending = turns < 5;
        return Buffer.from(String(turns));
      },
      failure: undefined,
      finished: false,
      pending: false,
      usage: undefined,
    };
    const { remote, ended, text } = relayed({ opener });
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

describe('what comes after a complete answer', () => {
  /** Complete with its first piece. */
  const oncePiece = (): ResponseOpener => {
    let finished = false;
    return {
      feed(chunk) {
        finished = true;
        return chunk;
      },
      flush: () => new Uint8Array(),
      failure: undefined,
      get finished() {
        return finished;
      },
      pending: false,
      usage: undefined,
    };
  };
  const complete = async (): Promise<Readable> => {
    const { remote, ended, text } = relayed({ opener: oncePiece() });
    remote.push('all of it');
    assert.equal(await ended, undefined);
    remote.push('and more');
    assert.equal(text(), 'all of it');
    return remote;
  };

  it('is thrown away for five seconds, and then cut off', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const remote = await complete();
    t.mock.timers.tick(4_999);
    assert.deepEqual([remote.destroyed, remote.readableFlowing], [false, true]);
    t.mock.timers.tick(1);
    assert.equal(remote.destroyed, true);
  });

  it('may end by itself, and leaves the connection in order', async () => {
    const remote = await complete();
    remote.push(null);
    await once(remote, 'end');
    assert.equal(remote.errored, null);
  });
});
