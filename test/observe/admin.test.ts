import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { asksServing, healthzResponse, readyzResponse } from '../../lib/observe/health.ts';
import { createMetrics } from '../../lib/observe/metrics.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { verificationDocument } from '../../lib/observe/verification-document.ts';
import { type AdminListener, startAdmin } from '../../lib/open-admin.ts';
import type { Standing } from '../../lib/session/standing.ts';
import { metricsOptions } from '../support/doors/observed.ts';
import { standing, words } from '../support/remote/standing.ts';

describe('the probes of the proxy', () => {
  const failure = new PrivatemodeError('manifest_mismatch', 'the manifest is another one');
  const rows: [name: string, standing: Standing, status: number, body: string][] = [
    ['while an epoch lasts', standing('verified'), 204, ''],
    ['while an epoch lasts, after a failed renewal', standing('not-renewable', failure), 204, ''],
    ['before the first client brings a key', standing('awaiting-key'), 204, ''],
    [
      'while a key is awaited, even in the state rejected',
      { ...standing('rejected', failure), ready: true },
      204,
      '',
    ],
    ['while starting', standing('starting'), 503, 'starting: the remote is being verified\n'],
    [
      'while the service is rejected',
      standing('rejected', failure),
      503,
      'rejected: manifest_mismatch: the manifest is another one\n',
    ],
    ['once the proxy was told to stop', standing('ended'), 503, 'ended: the proxy was told to stop\n'],
  ];
  for (const [name, found, status, body] of rows) {
    it(`/readyz answers ${status} ${name}`, () => {
      const answer = readyzResponse(found);
      const otherwise = found.state === 'ended' ? 'shutting_down' : status === 503 ? 'not_ready' : undefined;
      const code = /^\w+: (\w+): /.exec(body)?.[1] ?? otherwise;
      assert.equal(answer.headers['privatemode-proxy-error'], code);
      assert.deepEqual([answer.status, answer.body], [status, body]);
    });
  }
  it('/readyz has "privatemode-proxy-state: awaiting-key" while a key is awaited, and no such header once verified', () => {
    const awaiting = readyzResponse(standing('awaiting-key'));
    assert.equal(awaiting.headers['privatemode-proxy-state'], 'awaiting-key');
    assert.ok(!('privatemode-proxy-state' in readyzResponse(standing('verified')).headers));
  });
  it('/readyz answers 503 while the port for applications is closed, and says first why the remote is not verified', () => {
    for (const [found, body] of [
      [standing('verified'), 'verified: the port for applications is closed\n'],
      [standing('not-renewable', failure), 'not-renewable: the port for applications is closed\n'],
      [standing('awaiting-key'), 'awaiting-key: the port for applications is closed\n'],
      [standing('starting'), 'starting: the remote is being verified\n'],
    ] as const) {
      const answer = readyzResponse({ ...found, isServed: false });
      assert.deepEqual([answer.status, answer.body], [503, body]);
      assert.equal(answer.headers['privatemode-proxy-error'], 'not_ready');
    }
  });
  it('/readyz?serving answers 503 while requests do not get through, and /readyz does not', () => {
    const { status, body, headers } = readyzResponse({ ...standing('verified'), notServing: 'refused' });
    assert.deepEqual([status, body], [503, 'verified: The service cannot be reached: refused\n']);
    assert.equal(headers['privatemode-proxy-error'], 'not_ready');
    assert.equal(readyzResponse({ ...standing('verified'), notServing: false }).status, 204);
    for (const [target, asks] of [
      ['/readyz?serving', true],
      ['/readyz?a=b&serving=1', true],
      ['/readyz?x=serving', false],
      ['/readyz', false],
    ] as const)
      assert.equal(asksServing(target), asks, target);
  });
  it('/healthz answers 200, whether the proxy is ready or not', () =>
    assert.equal(healthzResponse().status, 200));
});

describe('the listener of --admin-address', () => {
  let admin: AdminListener;
  let readiness: Standing;
  const metrics = createMetrics(metricsOptions());
  const traffic = { inFlight: 2, seconds: [], finished: [], refused: [] };
  const silent = { current: () => undefined, lastVerdict: () => undefined };
  const verification = verificationDocument({ ...silent, standing: () => standing('starting') }, [], {
    protocol: 'v1',
    now: 0,
  });
  const status: StatusReport = {
    ...{ version: '1', protocol: 'v1', now: 5, startedAt: 1 },
    ...{ standing: words('starting'), lastError: null, epoch: null, conditions: [], traffic, verification },
  };
  const shown = { metrics, readiness: () => readiness, status: async () => status };
  const start = (more: Partial<Parameters<typeof startAdmin>[0]> = {}): Promise<AdminListener> => {
    const address = { flag: 'admin-address', host: '127.0.0.1', port: 0 } as const;
    return startAdmin({ clock: systemClock, ...address, ...shown, admit, ...more });
  };
  beforeEach(async () => {
    readiness = standing('starting');
    admin = await start();
  });
  afterEach(() => admin.close());
  const admit = (req: IncomingMessage): void => {
    if (req.headers['x-asks'] === 'page') throw new PrivatemodeError('origin_forbidden', 'a page asked');
    if (req.headers['x-asks'] === 'fault') throw new Error('CANARY');
  };
  const ask = (path: string, method = 'GET') => fetch(`http://127.0.0.1:${admin.port}${path}`, { method });

  it('serves the metrics as Prometheus reads them', async () => {
    const response = await ask('/metrics?x');
    assert.equal(response.status, 200);
    assert.match(response.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
    assert.match(await response.text(), /^# HELP privatemode_proxy_requests_in_flight /m);
  });
  it('serves the current health and readiness', async () => {
    assert.equal((await ask('/healthz')).status, 200);
    assert.equal((await ask('/readyz')).status, 503);
    readiness = standing('verified');
    assert.equal((await ask('/readyz', 'HEAD')).status, 204);
  });
  it('serves the status and the verification document as JSON with "cache-control: no-store"', async () => {
    for (const [path, expected] of [
      ['/status', status],
      ['/verification', verification],
    ] as const) {
      const response = await ask(`${path}?x`);
      const { headers } = response;
      assert.equal(headers.get('x-content-type-options'), 'nosniff');
      assert.deepEqual(
        [response.status, headers.get('content-type'), headers.get('cache-control')],
        [200, 'application/json', 'no-store'],
      );
      assert.deepEqual(await response.json(), expected);
      const head = await ask(path, 'HEAD');
      assert.deepEqual([head.status, await head.text()], [200, '']);
    }
  });
  it('serves the status page, which its browser takes for nothing else', async () => {
    const { status, headers } = await ask('/');
    assert.deepEqual([status, headers.get('content-type')], [200, 'text/html; charset=utf-8']);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
  });
  it('answers /status with 500 internal, without the reason, if the status cannot be collected', async () => {
    await admin.close();
    const failing = (): never => {
      throw new Error('CANARY');
    };
    admin = await start({ status: failing });
    const response = await ask('/status');
    assert.deepEqual([response.status, response.headers.get('privatemode-proxy-error')], [500, 'internal']);
    assert.ok(!(await response.text()).includes('CANARY'));
  });
  it('serves no other path or method', async () => {
    for (const path of ['/v1/models', '/constructor', '/status/']) {
      const response = await ask(path);
      assert.deepEqual(
        [response.status, response.headers.get('privatemode-proxy-error')],
        [404, 'unknown_path'],
      );
      assert.equal(
        await response.text(),
        'use /, /status, /verification, /metrics, /healthz, /readyz; the endpoints for applications are on the other port (--port)\n',
      );
    }
    const post = await ask('/metrics', 'POST');
    assert.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD']);
    assert.equal(post.headers.get('privatemode-proxy-error'), 'method_not_allowed');
  });
  it('refuses on every path a request that is not admitted, with the error code of the refusal', async () => {
    for (const path of ['/metrics', '/healthz', '/readyz', '/status', '/verification', '/'])
      for (const [asks, status, code] of [
        ['page', 403, 'origin_forbidden'],
        ['fault', 500, 'internal'],
      ] as const) {
        const response = await fetch(`http://127.0.0.1:${admin.port}${path}`, {
          headers: { 'x-asks': asks },
        });
        assert.deepEqual([response.status, response.headers.get('privatemode-proxy-error')], [status, code]);
        assert.equal(response.headers.get('x-content-type-options'), 'nosniff');
        const text = await response.text();
        assert.ok(text.startsWith(`${code}: `) && !text.includes('CANARY') && text.length < 100, text);
      }
  });
  it('fails to start with listen_failed and the address if its port is taken', async () => {
    await assert.rejects(start({ port: admin.port }), {
      code: 'listen_failed',
      message: `listening on --admin-address 127.0.0.1 port ${admin.port}: EADDRINUSE; another program has the port, and this shows which: lsof -nP -iTCP:${admin.port} -sTCP:LISTEN`,
    });
  });
  it('is not needed for metrics: --metrics-address serves /metrics, /healthz and /readyz, and no clients or requests', async () => {
    const metricsOnly = await start({ flag: 'metrics-address' });
    try {
      const asked = (path: string) => fetch(`http://127.0.0.1:${metricsOnly.port}${path}`);
      assert.match(await (await asked('/metrics')).text(), /^# HELP privatemode_proxy_/);
      assert.deepEqual([(await asked('/healthz')).status, (await asked('/readyz')).status], [200, 503]);
      for (const path of ['/', '/status', '/verification']) {
        const response = await asked(path);
        assert.equal(response.status, 404);
        assert.equal(
          await response.text(),
          'use /metrics, /healthz, /readyz; the status page is on the listener of --admin-address, the endpoints for applications on --port\n',
        );
      }
    } finally {
      await metricsOnly.close();
    }
  });
});
