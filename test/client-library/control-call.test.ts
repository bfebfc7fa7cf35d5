/**
 * The control path of the library: what it refuses to take from a fetch. Its answers are those of
 * test/network/control-call.test.ts.
 */

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createControlCall } from '../../lib/client-library/control-call.ts';
import { systemClock } from '../../lib/clock.ts';

const URL_WITH_TOKEN = 'https://api.example.com/attest?token=canary';

/** Asks a fetch that gives this response; also what that fetch was asked with. */
function ask(response: Response, maxBytes = 10) {
  const asked: RequestInit[] = [];
  const call = createControlCall({
    clock: systemClock,
    async fetch(_url, init) {
      asked.push(init ?? {});
      return response;
    },
  });
  return {
    answer: call({ method: 'POST', url: URL_WITH_TOKEN, body: 'x', maxBytes, timeout: 2_000 }),
    asked,
  };
}

describe('the control path of the library', () => {
  it('follows no redirect, which would carry the API key to another address', async () => {
    for (const status of [301, 302, 303, 307, 308]) {
      const { answer, asked } = ask(new Response('', { status, headers: { location: '/elsewhere' } }));
      await assert.rejects(answer, {
        code: 'upstream_redirect',
        message: 'api.example.com answered with a redirect',
      });
      assert.deepEqual(
        asked.map(({ redirect }) => redirect),
        ['manual'],
      );
    }
  });

  it('refuses a redirect that a browser reports as opaque', async () => {
    const hidden = Object.defineProperty(new Response(''), 'type', { value: 'opaqueredirect' });
    await assert.rejects(ask(hidden).answer, { code: 'upstream_redirect' });
  });

  it('has its own error code and remedy for an untrusted certificate, an unreachable host and a reset', async () => {
    const cause = Object.assign(new Error('x'), { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
    for (const [thrown, code, remedy] of [
      [new TypeError('fetch failed', { cause }), 'upstream_tls_untrusted', /NODE_EXTRA_CA_CERTS/],
      [new TypeError('fetch failed'), 'upstream_unreachable', /options apiEndpoint/],
      [
        new TypeError('fetch failed', { cause: Object.assign(new Error(), { code: 'ECONNRESET' }) }),
        'upstream_reset',
        /^Try again\.$/,
      ],
    ] as const) {
      const call = createControlCall({ clock: systemClock, fetch: () => Promise.reject(thrown) });
      await assert.rejects(call({ method: 'GET', url: URL_WITH_TOKEN, maxBytes: 1, timeout: 2_000 }), {
        code,
        remedy,
      });
    }
  });

  it('accepts a response of exactly maxBytes, and refuses one byte more without reading on', async () => {
    const { body } = await ask(new Response('0123456789')).answer;
    assert.equal(Buffer.from(body).toString(), '0123456789');

    let left = false;
    const pieces = ['01234', '56789', 'a', 'b'];
    const longer = new ReadableStream({
      pull(controller) {
        const piece = pieces.shift();
        if (piece === undefined) controller.close();
        else controller.enqueue(Buffer.from(piece));
      },
      cancel: () => {
        left = true;
      },
    });
    await assert.rejects(ask(new Response(longer)).answer, {
      code: 'control_api_failed',
      message: 'the answer of api.example.com exceeds 10 bytes',
    });
    assert.equal(left, true);
  });
});
