/** The relay by itself: whose silence it is that lasts too long, and what may come after the end. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { identityOpener, type OpenedResponse, openedResponse } from '../../lib/gateway/relay.ts';
import { newTally } from '../../lib/gateway/tally.ts';
import type { ResponseOpener } from '../../lib/pipeline/response-opener.ts';

const IDLE = 300;

/** A remote that sends when it is told to, and what becomes of it. */
function relayed(): { readonly remote: Readable; readonly opened: OpenedResponse } {
  const remote = new Readable({ read() {} });
  const { signal } = new AbortController();
  return {
    remote,
    opened: openedResponse(remote, identityOpener, { tally: newTally(), idleTimeout: IDLE, signal }),
  };
}

const failureOf = ({ failure }: OpenedResponse): string | undefined => failure?.code;

describe('the idle time-out of the relay', { concurrency: true }, () => {
  it('ends the answer of a remote that is silent', async () => {
    const { remote, opened } = relayed();
    opened.resume();
    remote.push('some');
    await delay(IDLE / 2);
    assert.equal(failureOf(opened), undefined);
    await delay(IDLE);
    assert.equal(failureOf(opened), 'stream_idle_timeout');
  });

  it('starts anew with each piece', async () => {
    const { remote, opened } = relayed();
    opened.resume();
    for (let i = 0; i < 6; i++) {
      remote.push('some');
      await delay(IDLE / 2);
    }
    assert.equal(failureOf(opened), undefined);
    opened.destroy();
  });

  it('does not run while the reader makes us wait, and gives the remote a whole interval after that', async () => {
    const { remote, opened } = relayed();
    remote.push(Buffer.alloc(100_000)); // more than is read ahead
    await delay(2.5 * IDLE);
    assert.equal(failureOf(opened), undefined);
    opened.resume(); // all that has come is read at once; the rest is the remote's to send
    await delay(0.7 * IDLE);
    assert.equal(failureOf(opened), undefined, 'the silence of the reader was taken for that of the remote');
    await delay(IDLE);
    assert.equal(failureOf(opened), 'stream_idle_timeout');
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
    };
  };
  const complete = async (): Promise<Readable> => {
    const remote = new Readable({ read() {} });
    const { signal } = new AbortController();
    const opened = openedResponse(remote, oncePiece(), { tally: newTally(), idleTimeout: IDLE, signal });
    remote.push('all of it');
    assert.equal(await text(opened), 'all of it');
    remote.push('and more');
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
