import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { asksServing, readyzResponse } from '../../lib/observe/health.ts';
import { createMetrics } from '../../lib/observe/metrics.ts';
import { loadStatusPage } from '../../lib/observe/status-html.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { verificationDocument } from '../../lib/observe/verification-document.ts';
import { type AdminListener, startAdmin } from '../../lib/open-admin.ts';
import type { Standing } from '../../lib/session/standing.ts';
import { metricsOptions } from '../support/doors/observed.ts';
import { standing, words } from '../support/remote/standing.ts';

describe('the probes of the proxy', () => {
  const failure = new PrivatemodeError('manifest_mismatch', 'the manifest is another one');
  it('/readyz answers 204 while a key is awaited, even in the state rejected, and 503 shutting_down at the end', () => {
    assert.equal(readyzResponse({ ...standing('rejected', failure), ready: true }).status, 204);
    const ended = readyzResponse(standing('ended'));
    assert.deepEqual([ended.status, ended.headers['privatemode-proxy-error']], [503, 'shutting_down']);
  });
  it('/readyz has "privatemode-proxy-state: awaiting-key" while a key is awaited, and no such header once verified', () => {
    const awaiting = readyzResponse(standing('awaiting-key'));
    assert.equal(awaiting.headers['privatemode-proxy-state'], 'awaiting-key');
    assert.ok(!('privatemode-proxy-state' in readyzResponse(standing('verified')).headers));
  });
  it('/readyz answers 503 while the port for applications is closed, and says first why the remote is not verified', () => {
    for (const [found, body] of [
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
    const asked = ['?serving', '?a=b&serving=1', '?x=serving', ''].map((query) =>
      asksServing(`/readyz${query}`),
    );
    assert.deepEqual(asked, [true, true, false, false]);
  });
});

describe('the listener of --admin-address', () => {
  let admin: AdminListener;
  let readiness: Standing;
  const metrics = createMetrics(metricsOptions());
  const traffic = { inFlight: 2, seconds: [], finished: [] };
  const silent = { current: () => undefined, lastVerdict: () => undefined };
  const verification = verificationDocument(
    { ...silent, standing: () => standing('starting') },
    { protocol: 'v1', now: 0 },
  );
  const status: StatusReport = {
    ...{ now: 5, standing: words('starting'), lastError: null, conditions: [], traffic, verification },
  };
  const shown = { metrics, readiness: () => readiness, status: () => status, page: loadStatusPage() };
  const start = (more: Partial<Parameters<typeof startAdmin>[0]> = {}): Promise<AdminListener> => {
    const address = { flag: 'admin-address', host: '127.0.0.1', port: 0 } as const;
    return startAdmin({ clock: systemClock, allowedHosts: ['my.name'], ...address, ...shown, ...more });
  };
  beforeEach(async () => {
    readiness = standing('starting');
    admin = await start();
  });
  afterEach(() => admin.close());
  const ask = (path: string, method = 'GET') => fetch(`http://127.0.0.1:${admin.port}${path}`, { method });

  it('serves the current health and readiness', async () => {
    assert.equal((await ask('/healthz')).status, 200);
    assert.equal((await ask('/readyz')).status, 503);
    readiness = standing('verified');
    assert.equal((await ask('/readyz', 'HEAD')).status, 204);
  });
  for (const [path, type, body] of [
    ['/', 'text/html; charset=utf-8', /^<!doctype html>/],
    ['/status', 'application/json', JSON.stringify(status)],
    ['/verification', 'application/json', JSON.stringify(verification)],
    [
      '/metrics',
      'text/plain; version=0.0.4; charset=utf-8',
      /^# HELP privatemode_proxy_requests_in_flight /m,
    ],
  ] as const)
    it(`serves ${path} as ${type}, which its browser takes for nothing else`, async () => {
      const [found, head] = [await ask(`${path}?x`), await ask(path, 'HEAD')];
      assert.deepEqual([found.status, found.headers.get('content-type')], [200, type]);
      assert.equal(found.headers.get('x-content-type-options'), 'nosniff');
      if (path !== '/metrics') assert.equal(found.headers.get('cache-control'), 'no-store');
      const text = await found.text();
      if (typeof body === 'string') assert.deepEqual(JSON.parse(text), JSON.parse(body));
      else assert.match(text, body);
      assert.deepEqual([head.status, await head.text()], [200, '']);
    });
  it('makes no page for requests that are sent ahead: it closes their connection', async () => {
    await admin.close();
    let made = 0;
    admin = await start({ status: () => ({ ...status, now: ++made }) });
    const socket = connect(admin.port, '127.0.0.1').resume();
    socket.on('error', () => {}).write('GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'.repeat(1000));
    await once(socket, 'close');
    assert.ok(made <= 1, `${made} pages`);
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
      const found = [response.status, response.headers.get('privatemode-proxy-error')];
      assert.deepEqual(found, [404, 'unknown_path']);
    }
    const post = await ask('/metrics', 'POST');
    assert.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD']);
    assert.equal(post.headers.get('privatemode-proxy-error'), 'method_not_allowed');
  });
  it('refuses on every path a foreign host name and a foreign web page, and serves its own names', async () => {
    for (const path of ['/metrics', '/healthz', '/readyz', '/status', '/verification', '/'])
      for (const [headers, refused] of [
        [{ host: 'evil.example', 'accept-language': 'en' }, true],
        [{ origin: 'https://evil.example' }, true],
        [{ host: 'my.name', 'accept-language': 'en' }, false],
      ] as const) {
        const asking = get({ port: admin.port, path, headers, agent: false });
        const [response] = (await once(asking, 'response')) as [IncomingMessage];
        response.resume();
        const code = response.headers['privatemode-proxy-error'];
        assert.equal(code === 'origin_forbidden', refused, `${path} ${JSON.stringify(headers)}: ${code}`);
        assert.equal(response.headers['x-content-type-options'], 'nosniff');
      }
  });
  it('has no page, status or verification document as the listener of --metrics-address', async () => {
    await admin.close();
    admin = await start({ flag: 'metrics-address' });
    assert.match(await (await ask('/metrics')).text(), /^# HELP privatemode_proxy_/);
    assert.deepEqual([(await ask('/healthz')).status, (await ask('/readyz')).status], [200, 503]);
    for (const path of ['/', '/status', '/verification']) {
      const { status } = await ask(path);
      assert.equal(status, 404, path);
    }
  });
});
