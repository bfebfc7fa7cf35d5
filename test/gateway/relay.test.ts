/** The relay by itself: whose silence it is that lasts too long. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { identityOpener, type OpenedResponse, openedResponse } from '../../lib/gateway/relay.ts';
import { newTally } from '../../lib/gateway/tally.ts';

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
