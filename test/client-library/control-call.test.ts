/**
 * The control path of the library: what it refuses to take from a fetch. Its answers are those of
 * test/network/call-limits.test.ts.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { describe, it } from 'node:test';
import { createControlCall, isUnheard } from '../../lib/client-library/control-call.ts';
import { systemClock } from '../../lib/clock.ts';
import { opened } from '../support/remote/loopback.ts';

/** Asks a fetch that gives this response; also what that fetch was asked with. */
function ask(response: () => Response) {
  const asked: RequestInit[] = [];
  const call = createControlCall({
    clock: systemClock,
    async fetch(_url, init = {}) {
      asked.push(init);
      return response();
    },
  });
  const url = 'https://api.example.com/attest?token=canary';
  return { answer: call({ method: 'POST', url, body: 'x', maxBytes: 10, timeout: 2_000 }), asked };
}

describe('the control path of the library', () => {
  it('follows no redirect, which would carry the API key to another address', async () => {
    // As a browser shows it.
    const opaque = Object.defineProperty(new Response(''), 'type', { value: 'opaqueredirect' });
    const moved = new Response('', { status: 307, headers: { location: '/elsewhere' } });
    for (const response of [moved, opaque]) {
      const { answer, asked } = ask(() => response);
      await assert.rejects(answer, {
        code: 'upstream_redirect',
        message: 'api.example.com answered with a redirect',
      });
      const { redirect, credentials, cache, referrerPolicy } = asked[0] ?? {};
      assert.deepEqual(
        [redirect, credentials, cache, referrerPolicy],
        ['manual', 'omit', 'no-store', 'no-referrer'],
      );
    }
  });

  it('says of bytes that are no HTTP what they are, as of a host that has not answered', async (t) => {
    const { port, close } = await opened(createServer((socket) => socket.end('hi there\r\n\r\n')));
    t.after(close);
    const call = createControlCall({ clock: systemClock, fetch });
    const url = `http://127.0.0.1:${port}/`;
    const error = await call({ method: 'GET', url, maxBytes: 10, timeout: 2_000 }).catch((thrown) => thrown);
    assert.deepEqual([error.code, isUnheard(error)], ['response_malformed', true]);
  });

  it('leaves a response that is longer than maxBytes without reading on', async () => {
    let left = false;
    const pieces = ['01234', '56789', 'a', 'b'];
    const longer = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.from(pieces.shift() ?? assert.fail('read on'))),
      cancel: () => {
        left = true;
      },
    });
    await assert.rejects(ask(() => new Response(longer)).answer, { code: 'control_api_failed' });
    assert.equal(left, true);
  });
});
