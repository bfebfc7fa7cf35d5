/**
 * What scripts and tests ask of a simulator: its control endpoint, its switches for faults, and its record of
 * the requests.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { controlRoutes, isLoopback } from '../../simulator/control.ts';
import { createFaults } from '../../simulator/faults.ts';
import type { Exchange } from '../../simulator/route.ts';
import { createLiteralRecipient } from '../support/remote/literal-hpke.ts';
import { call, post, withSimulator } from '../support/remote/simulator.ts';

const ATTEST = '/privatemode/v1/attest';
const MANIFEST = '/privatemode/v2/manifest.json';

describe('the control endpoint of the simulator', () => {
  it('carries out each command, and returns the state after it', () =>
    withSimulator({}, async (simulator) => {
      const control = async (method: string, name: string, body?: unknown): Promise<unknown> => {
        const options = body === undefined ? {} : { body: JSON.stringify(body) };
        const answer = await call(simulator, method, `/_simulator/${name}`, options);
        return answer.status === 200 ? answer.json() : `${answer.status} ${answer.body}`;
      };
      const state = async () => (await control('GET', 'state')) as Record<string, unknown>;

      await call(simulator, 'GET', MANIFEST);
      await post(simulator, ATTEST, { canary: 'grey heron' });
      const { publicKey } = createLiteralRecipient();
      await post(simulator, '/privatemode/v1/secret', { PublicKey: publicKey.toString('base64') });
      await call(simulator, 'GET', '/v1/models', { headers: { authorization: 'Bearer x' } });
      const { manifestSha256 } = simulator;
      const counts = { manifest: 1, attest: 1, secret: 1, collateral: 0, inference: 1 };
      const secrets = [createHash('sha256').update(publicKey).digest('base64')];
      assert.deepEqual(await state(), {
        ...{ manifestSha256, secrets, recorded: 4, counts, faults: {}, clockSkewMs: 0 },
      });

      const [recorded, ...others] = (await control('GET', 'recorder?contains=grey%20heron')) as {
        path: string;
        headers: object;
        body: string;
      }[];
      assert.deepEqual([recorded?.path, others], [ATTEST, []]);
      assert.equal(Buffer.from(recorded?.body ?? '', 'base64').toString(), '{"canary":"grey heron"}');
      assert.deepEqual(await control('GET', 'recorder?contains=white%20heron'), []);
      const [exchange] = (await control('GET', 'exchanges')) as { target: string; status: number }[];
      assert.deepEqual([exchange?.target, exchange?.status], ['/v1/models', 200]);
      await control('DELETE', 'recorder');
      assert.deepEqual([(await state())['recorded'], await control('GET', 'exchanges')], [0, []]);

      await control('POST', 'drop-secrets');
      assert.deepEqual((await state())['secrets'], []);
      await control('POST', 'rotate-mesh');
      assert.equal((await state())['manifestSha256'], manifestSha256);
      await control('POST', 'rotate-manifest');
      const served = createHash('sha256').update((await call(simulator, 'GET', MANIFEST)).body);
      assert.notEqual((await state())['manifestSha256'], manifestSha256);
      assert.equal((await state())['manifestSha256'], served.digest('hex'));

      await control('POST', 'clock-skew', { ms: 3_600_001 });
      assert.equal((await state())['clockSkewMs'], 3_600_001);
      await control('POST', 'api-keys', { keys: ['good'] });
      assert.equal((await post(simulator, ATTEST, {}, 'bad')).status, 401);
      await control('POST', 'api-keys', { keys: null });
      assert.equal((await post(simulator, ATTEST, {}, 'bad')).status, 400);
      await control('PUT', 'faults', { 'attest-status': 503, 'secret-signature': true });
      await control('PUT', 'faults', { 'attest-status': 500 });
      assert.deepEqual((await state())['faults'], { 'attest-status': 500 });

      for (const [method, name, body, words] of [
        ['POST', 'clock-skew', { ms: '1' }, /ms must be a whole number/],
        ['POST', 'api-keys', { keys: 'good' }, /keys must be a list/],
        ['PUT', 'faults', { 'no-such': 1 }, /no-such/],
      ] as const) {
        const answer = String(await control(method, name, body));
        assert.match(answer, /^400 /);
        assert.match(answer, words);
      }
      await control('PUT', 'faults', { 'secret-signature': true, 'attest-status': 'x' });
      assert.deepEqual((await state())['faults'], { 'attest-status': 500 }, 'a refusal changes nothing');
    }));

  it('refuses every request of a web page, and lets no page read its responses, also with --cors', () =>
    withSimulator({ cors: true }, async (simulator) => {
      const { manifestSha256 } = simulator;
      for (const headers of [
        { origin: 'https://page.example' },
        { origin: 'null' },
        { 'sec-fetch-site': 'cross-site' },
        { 'sec-fetch-site': 'same-site' },
      ] as Record<string, string>[]) {
        for (const [method, path] of [
          ['GET', '/_simulator/recorder'],
          ['GET', '/x/../_simulator/state'],
          ['POST', '/_simulator/rotate-manifest'],
        ] as const) {
          const answer = await call(simulator, method, path, { headers });
          assert.equal(answer.status, 403, `${path} ${JSON.stringify(headers)}`);
          assert.equal(answer.headers['access-control-allow-origin'], undefined);
        }
        const preflight = await call(simulator, 'OPTIONS', '/_simulator/faults', { headers });
        assert.notEqual(preflight.status, 204);
        assert.equal(preflight.headers['access-control-allow-methods'], undefined);
      }
      assert.equal(simulator.manifestSha256, manifestSha256);
      const typed = { headers: { 'sec-fetch-site': 'none' } };
      assert.equal((await call(simulator, 'GET', '/_simulator/state', typed)).status, 200);
      const page = await call(simulator, 'GET', MANIFEST, { headers: { origin: 'https://page.example' } });
      assert.equal(page.headers['access-control-allow-origin'], '*');
    }));

  it('refuses every command that comes from another machine', async () => {
    const routes = controlRoutes({ manifestSha256: () => '', clockSkew: () => 0 } as never);
    const request = { headers: {}, socket: { remoteAddress: '10.0.0.1' } };
    const exchange = { request, response: {}, url: new URL('https://simulator/') } as unknown as Exchange;
    assert.ok(routes.length > 5);
    for (const { handle } of routes) {
      await assert.rejects(async () => handle(exchange), { name: 'HttpError', status: 403 });
    }
    for (const address of ['127.0.0.1', '127.1.2.3', '::1', '::ffff:127.0.0.1'])
      assert.ok(isLoopback(address));
    for (const address of ['10.0.0.1', '::2', '1127.0.0.1', '::ffff:10.0.0.1', undefined]) {
      assert.equal(isLoopback(address), false, String(address));
    }
  });
});

describe('the switches for faults of the simulator', () => {
  it('are parsed from text by their kind, and a fault that does not exist is refused', () => {
    const faults = createFaults();
    faults.parse('attest-hang', 'true');
    faults.parse('attest-status', '503');
    faults.parse('secret-reset', 2);
    faults.parse('minimum-version', 'v1.99.0');
    faults.delete('minimum-version');
    assert.deepEqual(faults.entries(), { 'attest-hang': true, 'attest-status': 503, 'secret-reset': 2 });
    faults.parse('attest-hang', 'false');
    assert.equal(faults.get('attest-hang'), undefined);
    for (const [name, value] of [
      ['attest-hang', 'yes'],
      ['attest-status', 'x'],
      ['attest-status', -1],
      ['secret-reset', null],
      ['toString', 'true'],
      ['minimum-version', '1.99.0'],
      ['minimum-version', 'banana'],
      ['minimum-version', ''],
    ] as const) {
      assert.throws(() => faults.parse(name, value), { code: 'config_invalid' });
    }
  });
});

describe('the recorder of the simulator', () => {
  it('keeps the newest requests and the beginning of each body up to its limits, and searches path, head and body', () =>
    withSimulator({ recorderLimits: { maxRequests: 2, maxBodyBytes: 10 } }, async (simulator) => {
      const { recorder } = simulator;
      for (const path of ['/one', '/two']) await call(simulator, 'POST', path);
      const headers = { authorization: 'Bearer x' };
      await call(simulator, 'POST', ATTEST, { headers, body: '0123456789abcdef' });
      assert.deepEqual(
        recorder.requests().map(({ path, body, bodyBytes }) => [path, String(body), bodyBytes]),
        [
          ['/two', '', 0],
          [ATTEST, '0123456789', 16],
        ],
      );
      for (const [words, found] of [
        ['/one', 0],
        ['/two', 1],
        ['23456', 1],
        ['Bearer x', 1],
        ['abcdef', 0],
      ] as const) {
        assert.equal(recorder.containing(words).length, found, words);
        assert.equal(recorder.containing(Buffer.from(words)).length, found, words);
      }
    }));

  it('drops the oldest requests once the bodies together exceed its limit', () =>
    withSimulator({ recorderLimits: { maxBodyBytes: 10, maxTotalBytes: 25 } }, async (simulator) => {
      for (const digit of ['1', '2', '3', '4'])
        await call(simulator, 'POST', ATTEST, {
          headers: { authorization: 'Bearer x' },
          body: digit.repeat(16),
        });
      await call(simulator, 'POST', '/small');
      const kept = simulator.recorder.requests().map(({ path, body }) => `${path} ${body}`);
      assert.deepEqual(kept, [`${ATTEST} 3333333333`, `${ATTEST} 4444444444`, '/small ']);
    }));
});
