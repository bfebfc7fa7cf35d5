import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import {
  type HttpRequest,
  type HttpResponse,
  limitedControlCall,
  pauseOf,
} from '../../lib/network/call-limits.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { TIMES } from '../../lib/times.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { serveHttps } from '../support/remote/loopback.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const authority = createTestAuthority('Test Root');
const certificate = authority.issue(['localhost']);

type Call = (request?: Partial<HttpRequest>) => Promise<HttpResponse>;

/** Calls a server of this test; no message may quote the query. */
async function calling(t: TestContext, listener: Parameters<typeof serveHttps>[2]) {
  const seen: string[] = [];
  const { port } = await serveHttps(t, certificate, (req, res) => {
    seen.push(`${req.method} ${req.url}`);
    listener(req, res);
  });
  const trusting = { connectTimeout: 2000, authorities: [authority.pem] };
  const outbound = createOutbound({}, { clock: systemClock, ...trusting });
  t.after(outbound.close);
  const url = `https://localhost:${port}/path?token=canary`;
  const call: Call = (request) =>
    outbound.call({ method: 'GET', url, maxBytes: 1000, timeout: 2000, ...request });
  return { call, seen };
}

/** Calls a host that answers with these statuses, and with bodies of `chunks` pieces of 100 bytes. */
function limited(clock: Clock, statuses: number[], chunks = 1) {
  const taken: number[] = [];
  async function* body(): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < chunks; i++) {
      taken.push(i);
      yield new Uint8Array(100);
    }
  }
  const seen: string[] = [];
  const made = limitedControlCall(
    async ({ url }) => {
      seen.push(url);
      return { status: statuses.shift() ?? 500, headers: { 'retry-after': '30' }, body: body() };
    },
    (_host, thrown) => thrown,
    clock,
  );
  const call: Call = (request) =>
    made({ method: 'GET', url: 'https://host.example/path', maxBytes: 1000, timeout: 2000, ...request });
  return { call, seen, taken };
}

async function refusal(promise: Promise<unknown>, code: string): Promise<PrivatemodeError> {
  const error = await promise.then(
    () => assert.fail('no error'),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof PrivatemodeError, String(error));
  assert.equal(error.code, code, error.message);
  assert.doesNotMatch(error.message, /canary/);
  return error;
}

describe('http call', () => {
  it('follows no redirect', async (t) => {
    for (const status of [301, 308]) {
      const head = { Location: '/elsewhere' };
      const { call, seen } = await calling(t, (_, res) => res.writeHead(status, head).end());
      await refusal(call({ method: 'POST', body: 'x' }), 'upstream_redirect');
      assert.equal(seen.length, 1);
    }
  });

  it('accepts a body of exactly maxBytes, and refuses one byte more without reading on', async () => {
    const fits = limited(systemClock, [200], 10);
    assert.equal((await fits.call({ maxBytes: 1000 })).body.length, 1000);
    const longer = limited(systemClock, [200], 1_000);
    await refusal(longer.call({ maxBytes: 999 }), 'control_api_failed');
    assert.equal(longer.taken.length, 10);
  });

  it('fails with upstream_connect_timeout at its time limit, before the headers and between bytes', async (t) => {
    const silent = await calling(t, () => {});
    await refusal(silent.call({ timeout: 50 }), 'upstream_connect_timeout');
    const trickle = await calling(t, (_, res) => {
      const timer = setInterval(() => res.write('x'), 20);
      res.on('close', () => clearInterval(timer));
    });
    await refusal(trickle.call({ timeout: 200 }), 'upstream_connect_timeout');
  });

  it('fails with upstream_reset for a reset or a cut-off body, with upstream_unreachable for a refused connection', async (t) => {
    const reset = await calling(t, (req) => req.socket.destroy());
    await refusal(reset.call(), 'upstream_reset');
    const cut = await calling(t, (_, res) => {
      res.writeHead(200, { 'Content-Length': 100 }).write('half', () => res.destroy());
    });
    await refusal(cut.call(), 'upstream_reset');
    await refusal(cut.call({ url: 'https://localhost:1/?token=canary' }), 'upstream_unreachable');
  });

  it('fails with response_malformed for bytes that are no HTTP', async (t) => {
    for (const bytes of ['hi there\r\n\r\n', 'HTTP/1.1 200 OK\r\nno header\r\n\r\n']) {
      const { call } = await calling(t, (req) => req.socket.end(bytes));
      await refusal(call(), 'response_malformed');
    }
  });

  it('refuses a response with Content-Encoding gzip', async (t) => {
    const head = { 'Content-Encoding': 'gzip' };
    const { call } = await calling(t, (_, res) => res.writeHead(200, head).end('zip'));
    await refusal(call(), 'control_api_failed');
  });

  it('fails with the reason of its signal, and is not sent if the signal has aborted before', async (t) => {
    const reason = new PrivatemodeError('shutting_down', 'closing');
    const abort = new AbortController();
    const { call, seen } = await calling(t, () => abort.abort(reason));
    assert.equal(await refusal(call({ signal: abort.signal, timeout: 60_000 }), 'shutting_down'), reason);
    await refusal(call({ signal: abort.signal }), 'shutting_down');
    assert.equal(seen.length, 1);
  });
});

describe('the pause that a host wants', () => {
  it('is what Retry-After says within a second and a minute, and up to a fifth longer', () => {
    for (const [status, retryAfter, pause] of [
      [200, '30', undefined],
      [503, undefined, undefined],
      [503, '30', 30],
      [429, undefined, 10],
      [429, 'Wed, 21 Oct 2026 07:28:00 GMT', 10],
      [429, '-1', 10],
      [429, '0', 1],
      [429, '99999999999999999999', 60],
    ] as const) {
      const response = { status, headers: { 'retry-after': retryAfter }, body: new Uint8Array() };
      assert.equal(pauseOf(response, TIMES, 0), pause);
      assert.equal(pauseOf(response, TIMES, 1), pause && pause * 1.2);
    }
  });

  it('is granted for six seconds: the same response comes again, whatever the query, and nothing is sent', async () => {
    const clock = createFakeClock();
    const { call, seen } = limited(clock, [503, 200]);
    const { pause = 0 } = await call({ url: 'https://host.example/path?t=1' });
    await clock.advance(5_000);
    const again = await call({ url: 'https://host.example/path?t=2' });
    assert.deepEqual([again.status, again.body.length, seen.length], [503, 100, 1]);
    assert.ok(Math.abs((again.pause ?? 0) - (pause - 5)) < 0.001, `${again.pause} s of ${pause} s`);
    await clock.advance(1_000);
    assert.deepEqual([(await call()).status, seen.length], [200, 2]);
  });

  it('is one of that path and that key', async () => {
    const { call, seen } = limited(createFakeClock(), [429, 429, 429]);
    const withKey = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
    for (const request of [withKey('a'), withKey('b'), { ...withKey('a'), url: 'https://host.example/b' }]) {
      await call(request);
      await call(request);
    }
    assert.equal(seen.length, 3);
  });
});
