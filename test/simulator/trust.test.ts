import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { startSecretExchange } from '../../lib/session/secret-exchange.ts';
import { controlRoutes } from '../../simulator/control.ts';
import { createFaults, FAULTS, type FaultName } from '../../simulator/faults.ts';
import { verifyCommand } from '../support/evidence/verify.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { call, post, startTestSimulator, withSimulator } from '../support/remote/simulator.ts';

const ATTEST = '/privatemode/v1/attest';
const SECRET = '/privatemode/v1/secret';
const MANIFEST = '/privatemode/v2/manifest.json?t=1732162000000';

describe('the trust API of the simulator', () => {
  it('gives evidence and secrets with the configured API key only, and only for bytes of their form', () =>
    withSimulator({ apiKey: 'the-key' }, async (simulator) => {
      const { publicKey } = await startSecretExchange();
      const zeroPoint = Buffer.concat([publicKey.subarray(0, 1184), Buffer.alloc(32)]).toString('base64');
      for (const [path, body] of [
        [ATTEST, { Nonce: 'AAAA' }],
        [ATTEST, { Nonce: Buffer.alloc(33).toString('base64') }],
        [SECRET, { PublicKey: 7 }],
        [SECRET, { PublicKey: zeroPoint }],
      ] as const) {
        assert.equal((await post(simulator, path, body, 'other')).status, 401);
        assert.equal((await post(simulator, path, body, 'the-key')).status, 400);
      }
      assert.equal((await post(simulator, ATTEST, { Nonce: 'A'.repeat(2e6) }, 'the-key')).status, 413);
      assert.equal((await call(simulator, 'GET', MANIFEST)).status, 200);
    }));

  it('has faults that set the status, reset a number of connections, and hang', async (t) => {
    const simulator = await startTestSimulator();
    t.after(() => simulator.close());
    const { faults, counts } = simulator;
    const send = () => call(simulator, 'GET', MANIFEST);
    faults.parse('manifest-status', 503);
    assert.equal((await send()).status, 503);
    faults.clear();
    faults.set('manifest-reset', 1);
    await assert.rejects(send(), { code: 'ECONNRESET' });
    assert.equal((await send()).status, 200);
    faults.parse('manifest-hang', true);
    const hangs = assert.rejects(send(), { code: 'ECONNRESET' });
    await eventually('the request', () => counts['manifest'] === 4);
    await simulator.close();
    await hangs;
  });
});

describe('TDX evidence of a simulated deployment', () => {
  /**
   * What the verifier refuses it for; undefined where the fault is one of SEV-SNP alone, whose rows are in
   * test/commands/verify-live.test.ts.
   */
  const checks: Partial<Record<FaultName, string | undefined>> = {
    'evidence-stale-nonce': 'tdx.policy.report_data',
    'evidence-debug': 'tdx.policy.td_attributes',
    'evidence-signature': 'tdx.quote.signature',
    'evidence-mesh-ca': 'tdx.policy.report_data',
    'evidence-low-tcb': 'tdx.tcb.module_status',
    'evidence-chip': 'tdx.policy.piid',
    'evidence-history': 'manifest.count',
    'evidence-revoked': 'tdx.revocation.platform_ca',
    'evidence-no-crl': undefined,
    'evidence-no-vcek': undefined,
  };

  it('is refused for each fault of evidence, and accepted without one', async (t) => {
    const named = Object.keys(FAULTS).filter((name) => name.startsWith('evidence-'));
    assert.deepEqual(Object.keys(checks), named);
    const directory = temporaryDirectory('trust-evidence-');
    const { faults, port, url, close } = await startTestSimulator({ tee: 'tdx', directory });
    t.after(close);
    for (const fault of named as FaultName[]) {
      faults.clear();
      faults.parse(fault, true);
      const flags = [
        ...[`--api-endpoint=localhost:${port}`, '--api-key=k', `--cdn-base-url=${url}`],
        ...[`--amd-kds-url=${url}`, `--intel-pcs-url=${url}`],
        ...[`--unsafe-trust-roots=${join(directory, 'roots')}`, '--accept-custom-roots', '--json'],
      ];
      const verified = await verifyCommand(flags, { env: { SSL_CERT_FILE: join(directory, 'ca.pem') } });
      assert.equal(verified.json().failure?.id, checks[fault], fault);
    }
  });
});

describe('the control endpoint of the simulator', () => {
  it('carries out each command, and returns the state after it', () =>
    withSimulator({}, async (simulator) => {
      const control = async (method: string, name: string, body?: string) =>
        (await call(simulator, method, `/_simulator/${name}`, body === undefined ? {} : { body })).json() as {
          readonly [member: string]: unknown;
        };
      simulator.secrets.put('id', new Uint8Array(32));
      const { manifestSha256 } = simulator;
      const counts = { manifest: 0, attest: 0, secret: 0, collateral: 0, inference: 0 };
      const state = { manifestSha256, secrets: ['id'], counts, faults: {} };
      assert.deepEqual(await control('GET', 'state'), state);
      assert.deepEqual(await control('POST', 'drop-secrets'), { ...state, secrets: [] });
      assert.deepEqual(await control('POST', 'rotate-mesh'), { ...state, secrets: [] });
      const faults = { 'attest-status': 503, 'secret-signature': true, 'secret-reset': 2 };
      const set = await control('PUT', 'faults', JSON.stringify(faults));
      assert.deepEqual(set['faults'], faults);
      const refused = await control('PUT', 'faults', '{"attest-hang":true,"no-such":1}');
      assert.match(JSON.stringify(refused['error']), /there is no fault named no-such/);
      assert.deepEqual(simulator.faults.entries(), faults, 'a refusal changes nothing');
      const rotated = await control('POST', 'rotate-manifest');
      const served = createHash('sha256').update((await call(simulator, 'GET', MANIFEST)).body);
      assert.notEqual(rotated['manifestSha256'], manifestSha256);
      assert.equal(rotated['manifestSha256'], served.digest('hex'));
    }));

  it('refuses every request of a web page, also with --cors, and every request of another machine', () =>
    withSimulator({ cors: true }, async (simulator) => {
      const { manifestSha256 } = simulator;
      for (const headers of [{ origin: 'null' }, { 'sec-fetch-site': 'same-site' }] as Record<
        string,
        string
      >[]) {
        const answer = await call(simulator, 'POST', '/x/../_simulator/rotate-manifest', { headers });
        assert.equal(answer.status, 403);
        const preflight = await call(simulator, 'OPTIONS', '/_simulator/faults', { headers });
        assert.notEqual(preflight.status, 204);
        for (const { headers: got } of [answer, preflight])
          assert.equal(got['access-control-allow-origin'], undefined);
      }
      assert.equal(simulator.manifestSha256, manifestSha256);
      const page = await call(simulator, 'GET', MANIFEST, { headers: { origin: 'https://page.example' } });
      assert.equal(page.headers['access-control-allow-origin'], '*');
      for (const { handle } of controlRoutes(simulator)) {
        const request = { headers: {}, socket: { remoteAddress: '10.0.0.1' } };
        await assert.rejects(async () => handle({ request } as never), { status: 403 });
      }
    }));

  it('takes only values of the kind of each fault', () => {
    const faults = createFaults();
    for (const [name, value] of [
      ['attest-hang', 'yes'],
      ['attest-status', -1],
      ['secret-reset', null],
      ['toString', 'true'],
      ['minimum-version', '1.99.0'],
    ] as const)
      assert.throws(() => faults.parse(name, value), { code: 'config_invalid' });
    faults.parse('attest-hang', 'false');
    assert.deepEqual(faults.entries(), {});
  });
});
