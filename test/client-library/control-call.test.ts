/**
 * The control path of the library: what it refuses to take from a fetch. Its answers are those of
 * test/network/control-call.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createControlCall } from '../../lib/client-library/control-call.ts';
import { systemClock } from '../../lib/clock.ts';

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

  for (const [cause, code, remedy] of [
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'upstream_tls_untrusted', /NODE_EXTRA_CA_CERTS/],
    ['ECONNRESET', 'upstream_reset', /^Try again\.$/],
    [undefined, 'upstream_unreachable', /options apiEndpoint/],
  ] as const)
    it(`fails with ${code} and its remedy if the runtime says ${cause}`, async () => {
      const { answer } = ask(() => {
        throw new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code: cause }) });
      });
      await assert.rejects(answer, { code, remedy });
    });

  it('accepts a response of exactly maxBytes, and refuses one byte more without reading on', async () => {
    const { body } = await ask(() => new Response('0123456789')).answer;
    assert.equal(Buffer.from(body).toString(), '0123456789');
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
