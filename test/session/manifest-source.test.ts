import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { ControlCall } from '../../lib/network/call-limits.ts';
import { managedManifest } from '../../lib/session/control-api.ts';
import { fails, withCode } from '../support/remote/fake-remote.ts';

const MANIFEST = '{"Policies":{},"ReferenceValues":{}}\n';

describe('managed manifest', () => {
  const managed = (call: ControlCall, cdnBaseUrl = 'https://cdn.example') =>
    managedManifest({ cdnBaseUrl, call, clock: { ...systemClock, now: () => 1234567890123 } });

  it('is fetched from the CDN with a query that bypasses caches, with at most 1 MiB, within 30 s', async () => {
    const asked: Parameters<ControlCall>[0][] = [];
    const call: ControlCall = async (request) => {
      asked.push(request);
      return { status: 200, headers: {}, body: Buffer.from(MANIFEST) };
    };
    // The reference takes the address with the path.
    for (const path of ['', '/', '/privatemode/v2', '/privatemode/v2/']) {
      assert.deepEqual(await managed(call, `https://cdn.example${path}`).newest(), Buffer.from(MANIFEST));
    }
    for (const { url, maxBytes, timeout } of asked) {
      assert.equal(url, 'https://cdn.example/privatemode/v2/manifest.json?t=1234567890123');
      assert.deepEqual([maxBytes, timeout], [1024 * 1024, 30_000]);
    }
  });

  it('is accepted only with status 200', async () => {
    for (const status of [204, 206, 403, 404, 500]) {
      const source = managed(async () => ({ status, headers: {}, body: Buffer.from('{}'), pause: 25 }));
      const detail = { pause: 25 };
      await assert.rejects(source.newest(), { code: 'manifest_unavailable', detail });
    }
  });

  it('is unavailable if the host sends something that cannot be a manifest, such as an error page', async () => {
    const bodies = [
      '',
      ' \n',
      '<!doctype html><title>Down</title>',
      '{"Policies":{"aa',
      '[{}]',
      'null',
      '{}',
    ];
    for (const body of [...bodies, '{"error":{"message":"not found"}}', '\ufeff{"Policies":{}}']) {
      const words = /what cdn\.example sent is no JSON object with the member Policies: not a manifest$/;
      const source = managed(async () => ({ status: 200, headers: {}, body: Buffer.from(body) }));
      await assert.rejects(source.newest(), withCode('manifest_unavailable', words));
    }
  });

  it('fails with manifest_unavailable and the cause if its fetch fails, but keeps upstream_tls_untrusted', async () => {
    for (const [thrown, code] of [
      ['upstream_unreachable', 'manifest_unavailable'],
      ['upstream_tls_untrusted', 'upstream_tls_untrusted'],
    ] as const) {
      const source = managed(async () => fails(thrown, 'cdn.example is behind a wall')());
      await assert.rejects(source.newest(), withCode(code, /behind a wall/));
    }
  });

  it('fails with the reason of its abort signal', async () => {
    const reason = new PrivatemodeError('shutting_down', 'closing');
    const source = managed(async ({ signal }) => {
      throw signal?.reason;
    });
    await assert.rejects(source.newest(AbortSignal.abort(reason)), withCode('shutting_down', /closing/));
  });
});
