import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import { controlRoutes, isLoopback } from '../../simulator/control.ts';
import { createFaults, FAULTS } from '../../simulator/faults.ts';
import type { Exchange } from '../../simulator/route.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { createLiteralRecipient } from '../support/remote/literal-hpke.ts';
import { call, post, startTestSimulator, withSimulator } from '../support/remote/simulator.ts';

const NONCE = Buffer.alloc(32, 1).toString('base64');
const ATTEST = '/privatemode/v1/attest';
const SECRET = '/privatemode/v1/secret';
const MANIFEST = '/privatemode/v2/manifest.json?t=1732162000000';

interface State {
  readonly manifestSha256: string;
  readonly secrets: readonly string[];
  readonly recorded: number;
  readonly counts: Readonly<Record<string, number>>;
  readonly clockSkewMs: number;
}

interface Recorded {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

describe('the control endpoint of the simulator', () => {
  let simulator: Simulator;
  before(async () => {
    simulator = await startTestSimulator();
  });
  after(() => simulator.close());
  beforeEach(() => {
    simulator.faults.clear();
    simulator.recorder.clear();
    simulator.setClockSkew(0);
    simulator.setApiKeys(undefined);
  });

  const control = async <T = State>(method: string, name: string, body?: unknown): Promise<T> => {
    const answer = await call(simulator, method, `/_simulator/${name}`, {
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    assert.equal(answer.status, 200, answer.body.toString());
    return answer.json() as T;
  };

  const exchange = async (): Promise<string> => {
    const { publicKey } = createLiteralRecipient();
    await post(simulator, SECRET, { PublicKey: publicKey.toString('base64') });
    return createHash('sha256').update(publicKey).digest('base64');
  };

  it('shows counts, active secrets and the manifest in force', async () => {
    const before = (await control('GET', 'state')).counts;
    await call(simulator, 'GET', MANIFEST);
    await post(simulator, ATTEST, { Nonce: NONCE });
    const id = await exchange();
    const state = await control('GET', 'state');
    assert.equal(state.manifestSha256, createHash('sha256').update(simulator.manifest).digest('hex'));
    assert.ok(state.secrets.includes(id));
    for (const service of ['manifest', 'attest', 'secret']) {
      assert.equal(state.counts[service], (before[service] ?? 0) + 1, service);
    }
    assert.equal(state.recorded, 3);
  });

  it('drops secrets', async () => {
    await exchange();
    assert.deepEqual((await control('POST', 'drop-secrets')).secrets, []);
  });

  it('rotates the manifest that the CDN path serves', async () => {
    const before = await call(simulator, 'GET', MANIFEST);
    const { manifestSha256 } = await control('POST', 'rotate-manifest');
    const after = await call(simulator, 'GET', MANIFEST);
    assert.notDeepEqual(after.body, before.body);
    assert.equal(createHash('sha256').update(after.body).digest('hex'), manifestSha256);
  });

  it('rotates the mesh without touching the manifest', async () => {
    const { manifestSha256 } = await control('GET', 'state');
    assert.equal((await control('POST', 'rotate-mesh')).manifestSha256, manifestSha256);
  });

  it('skews the clock of the deployment', async () => {
    const id = await exchange();
    assert.equal((await control('POST', 'clock-skew', { ms: 3_600_001 })).clockSkewMs, 3_600_001);
    assert.equal(simulator.secrets.lookup(id), undefined);
    const answer = await call(simulator, 'POST', '/_simulator/clock-skew', { body: '{"ms":"1"}' });
    assert.equal(answer.status, 400);
  });

  it('restricts and frees API keys', async () => {
    await control('POST', 'api-keys', { keys: ['good'] });
    assert.equal((await post(simulator, ATTEST, { Nonce: NONCE }, 'bad')).status, 401);
    assert.equal((await post(simulator, ATTEST, { Nonce: NONCE }, 'good')).status, 200);
    await control('POST', 'api-keys', { keys: null });
    assert.equal((await post(simulator, ATTEST, { Nonce: NONCE }, 'bad')).status, 200);
    const answer = await call(simulator, 'POST', '/_simulator/api-keys', { body: '{"keys":"good"}' });
    assert.equal(answer.status, 400);
  });

  it('sets exactly the faults it is given, and refuses others by name', async () => {
    await control('PUT', 'faults', { 'attest-status': 503, 'secret-signature': true });
    await control('PUT', 'faults', { 'attest-status': 500 });
    assert.deepEqual(simulator.faults.entries(), { 'attest-status': 500 });
    const answer = await call(simulator, 'PUT', '/_simulator/faults', { body: '{"no-such":1}' });
    assert.equal(answer.status, 400);
    assert.match(answer.body.toString(), /no-such/);
  });

  it('shows what was recorded, finds words in it, and forgets it', async () => {
    await post(simulator, ATTEST, { Nonce: NONCE, canary: 'grey heron' });
    await call(simulator, 'GET', MANIFEST);
    const recorded = await control<Recorded[]>('GET', 'recorder');
    assert.deepEqual(
      recorded.map(({ method, path }) => `${method} ${path}`),
      [`POST ${ATTEST}`, `GET ${MANIFEST}`],
    );
    assert.equal(recorded[0]?.headers['authorization'], 'Bearer any-key');
    const body = Buffer.from(recorded[0]?.body ?? '', 'base64').toString();
    assert.deepEqual(JSON.parse(body), { Nonce: NONCE, canary: 'grey heron' });
    assert.equal((await control<Recorded[]>('GET', 'recorder?contains=grey%20heron')).length, 1);
    assert.equal((await control<Recorded[]>('GET', 'recorder?contains=white%20heron')).length, 0);
    assert.equal((await control('DELETE', 'recorder')).recorded, 0);
  });

  it('counts and records nothing of itself', async () => {
    await control('GET', 'state');
    const { counts, recorded } = await control('GET', 'state');
    assert.equal(recorded, 0);
    assert.deepEqual(counts, (await control('GET', 'state')).counts);
  });

  it('shows what the inference side made of its requests, and forgets it with the recorder', async () => {
    await call(simulator, 'GET', '/v1/models', { headers: { authorization: 'Bearer x' } });
    const [exchange] = await control<{ target: string; status: number }[]>('GET', 'exchanges');
    assert.equal(exchange?.target, '/v1/models');
    assert.equal(exchange?.status, 200);
    await control('DELETE', 'recorder');
    assert.deepEqual(await control<unknown[]>('GET', 'exchanges'), []);
  });

  it('tells loopback addresses from others', () => {
    for (const address of ['127.0.0.1', '127.1.2.3', '::1', '::ffff:127.0.0.1'])
      assert.ok(isLoopback(address));
    for (const address of ['10.0.0.1', '::2', '1127.0.0.1', '::ffff:10.0.0.1', undefined]) {
      assert.equal(isLoopback(address), false, String(address));
    }
  });

  it('refuses every command that comes from another machine', async () => {
    const routes = controlRoutes({ ...simulator, manifestSha256: () => '', clockSkew: () => 0 });
    const request = { socket: { remoteAddress: '10.0.0.1' } };
    const exchange = { request, response: {}, url: new URL('https://simulator/') } as unknown as Exchange;
    assert.ok(routes.length > 5);
    for (const { handle } of routes) {
      await assert.rejects(async () => handle(exchange), { name: 'HttpError', status: 403 });
    }
  });
});

describe('the trust API of the simulator', () => {
  it('wants a bearer token, and the configured one if there is one', () =>
    withSimulator({ apiKey: 'the-key' }, async (simulator) => {
      for (const path of [ATTEST, SECRET]) {
        for (const authorization of [undefined, 'Basic dGhlLWtleQ==', 'Bearer other', 'Bearer ']) {
          const answer = await call(simulator, 'POST', path, {
            headers: authorization === undefined ? {} : { authorization },
            body: '{}',
          });
          assert.equal(answer.status, 401);
          assert.equal(answer.headers['privatemode-encrypted'], 'false');
          assert.deepEqual(answer.json(), { error: { message: 'unauthorized', type: 'unauthorized' } });
        }
        assert.equal((await post(simulator, path, {}, 'the-key')).status, 400);
      }
      assert.equal((await call(simulator, 'GET', MANIFEST)).status, 200);
    }));

  it('refuses nonces that are not 32 bytes in base64', () =>
    withSimulator({}, async (simulator) => {
      for (const Nonce of [undefined, '', 'AAAA', Buffer.alloc(33).toString('base64'), NONCE.slice(0, -1)]) {
        assert.equal((await post(simulator, ATTEST, { Nonce })).status, 400);
      }
    }));

  it('reads a body that is too large to its end, and says so', () =>
    withSimulator({}, async (simulator) => {
      const answer = await post(simulator, ATTEST, { Nonce: 'A'.repeat(2_000_000) });
      assert.equal(answer.status, 413);
    }));

  for (const [service, method, path] of [
    ['manifest', 'GET', MANIFEST],
    ['attest', 'POST', ATTEST],
    ['secret', 'POST', SECRET],
    ['collateral', 'GET', '/vcek/v1/Genoa/crl'],
  ] as const) {
    it(`fails, resets and recovers as told: ${service}`, () =>
      withSimulator({ faults: { [`${service}-status`]: 503 } }, async (simulator) => {
        const send = () => call(simulator, method, path, { headers: { authorization: 'Bearer x' } });
        assert.equal((await send()).status, 503);
        simulator.faults.clear();
        simulator.faults.set(`${service}-reset`, 2);
        for (let attempt = 0; attempt < 2; attempt++) {
          await assert.rejects(send(), { code: 'ECONNRESET', syscall: 'read' });
        }
        assert.ok([200, 400].includes((await send()).status));
      }));
  }

  it('serves the collateral of its own silicon only', () =>
    withSimulator({}, async (simulator) => {
      const query = '?blSPL=12&teeSPL=0&snpSPL=28&ucodeSPL=88';
      for (const [path, status] of [
        [`/vcek/v1/Genoa/${Buffer.from(simulator.hardware.ids.chipId).toString('hex')}${query}`, 200],
        [`/vcek/v1/Genoa/${Buffer.from(simulator.hardware.ids.chipId).toString('hex')}`, 400],
        [`/vcek/v1/Genoa/${'00'.repeat(64)}${query}`, 404],
        ['/vcek/v1/Genoa/cert_chain', 200],
        ['/tdx/certification/v4/tcb?fmspc=A0B1C2D3E4F5', 200],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=21', 200],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=19', 410],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=22', 404],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=19', 410],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=22', 404],
        ['/tdx/certification/v4/tcb?fmspc=000000000000', 404],
        ['/sgx/certification/v4/pckcrl?ca=processor', 400],
        ['/IntelSGXRootCA.der', 200],
      ] as const) {
        assert.equal((await call(simulator, 'GET', path)).status, status, path);
      }
    }));

  it('has an evaluation by default that is older than what its manifest demands, as Intel may', () =>
    withSimulator({}, async (simulator) => {
      const { ReferenceValues } = JSON.parse(Buffer.from(simulator.manifest).toString('utf8'));
      assert.equal(ReferenceValues.tdx[0].MinTCBEvaluationDataNumber, 21);
      for (const [path, number] of [
        ['/tdx/certification/v4/tcb?fmspc=A0B1C2D3E4F5', 20],
        ['/tdx/certification/v4/tcb?fmspc=A0B1C2D3E4F5&tcbEvaluationDataNumber=21', 21],
        ['/tdx/certification/v4/qe/identity', 20],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=21', 21],
      ] as const) {
        const answer = JSON.parse((await call(simulator, 'GET', path)).body.toString('utf8'));
        assert.equal((answer.tcbInfo ?? answer.enclaveIdentity).tcbEvaluationDataNumber, number, path);
      }
    }));
});

describe('faults', () => {
  it('are parsed from text by their kind', () => {
    const faults = createFaults();
    faults.parse('attest-hang', 'true');
    faults.parse('attest-status', '503');
    faults.parse('secret-reset', 2);
    assert.deepEqual(faults.entries(), { 'attest-hang': true, 'attest-status': 503, 'secret-reset': 2 });
    faults.parse('attest-hang', 'false');
    assert.equal(faults.get('attest-hang'), undefined);
    for (const [name, value] of [
      ['attest-hang', 'yes'],
      ['attest-status', 'x'],
      ['attest-status', -1],
      ['secret-reset', null],
      ['toString', 'true'],
    ] as const) {
      assert.throws(() => faults.parse(name, value), { code: 'config_invalid' });
    }
  });

  it('that are counted happen that often', () => {
    const faults = createFaults();
    faults.set('secret-reset', 2);
    assert.deepEqual(
      [1, 2, 3].map(() => faults.take('secret-reset')),
      [true, true, false],
    );
    assert.deepEqual(faults.entries(), {});
  });

  it('each have a line of help', () => {
    for (const [name, { help }] of Object.entries(FAULTS)) assert.ok(help.length > 10, name);
  });
});
