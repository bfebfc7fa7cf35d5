import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { clockWith, systemClock } from '../../lib/clock.ts';
import type { ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { createManifestLog } from '../../lib/manifest-log.ts';
import { createCollateralStore } from '../../lib/network/collateral-store.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { createCollateralCache } from '../../lib/session/collateral-cache.ts';
import { createControlApi, managedManifest } from '../../lib/session/control-api.ts';
import type { SessionEvent } from '../../lib/session/epoch.ts';
import { createSession, type SessionDeps } from '../../lib/session/session.ts';
import { TIMES } from '../../lib/times.ts';
import { recordExchange } from '../../lib/verdict/record.ts';
import { type Verdict, verdictText } from '../../lib/verdict/verdict.ts';
import type { FaultName } from '../../simulator/faults.ts';
import type { Simulator, SimulatorOptions } from '../../simulator/simulator.ts';
import { isMadeOf } from '../support/evidence/engine.ts';
import { verifyCommand } from '../support/evidence/verify.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { inPromises, type TestSession, WAIT, withCode } from '../support/remote/fake-remote.ts';
import { rootsOf, startTestSimulator } from '../support/remote/simulator.ts';

interface Scene {
  readonly simulator: Simulator;
  readonly workspace: string;
  readonly events: SessionEvent[];
  /** A session as the program makes it, in the same workspace each time. */
  open(options?: Partial<SessionDeps>): TestSession;
}

async function scene(t: TestContext, options: SimulatorOptions = {}): Promise<Scene> {
  const simulator = await startTestSimulator(options);
  t.after(() => simulator.close());
  const workspace = temporaryDirectory('session-');
  const caFile = join(workspace, 'ca.pem');
  writeFileSync(caFile, simulator.caPem);
  const events: SessionEvent[] = [];
  return {
    simulator,
    workspace,
    events,
    open(options = {}) {
      const outbound = createOutbound(
        { SSL_CERT_FILE: caFile },
        { connectTimeout: 10_000, clock: systemClock },
      );
      t.after(() => outbound.close());
      const { call } = outbound;
      const session = inPromises(
        createSession({
          clock: systemClock,
          control: createControlApi({
            call,
            endpoint: { host: 'localhost', port: simulator.port },
            protocolVersion: 'v1.40.0',
            clock: systemClock,
          }),
          manifests: managedManifest({ call, cdnBaseUrl: simulator.url, clock: systemClock }),
          manifestLog: createManifestLog(workspace),
          random: Math.random,
          roots: rootsOf(simulator),
          collateral: createCollateralCache({
            call,
            store: createCollateralStore(join(workspace, 'collateral')),
            amdKdsUrl: simulator.url,
            intelPcsUrl: simulator.url,
            clock: systemClock,
          }),
          observe: (event) => events.push(event),
          ...options,
        }),
      );
      t.after(() => session.close());
      session.updateConfiguredKey('API-KEY-IS-SECRET');
      return session;
    },
  };
}

const logLines = (workspace: string): string[] =>
  readFileSync(join(workspace, 'manifests/log.txt'), 'utf8').trimEnd().split('\n');

/** The first failure that the session tells of. */
const firstFailure = (session: TestSession, events: readonly SessionEvent[]): Promise<PrivatemodeError> =>
  eventually('a failure', () => {
    const failure = events.find((event) => event.type === 'update-failed');
    if (failure !== undefined && 'error' in failure) return failure.error;
    assert.equal(session.current(), undefined);
    return undefined;
  });

describe('session with a simulated deployment', () => {
  for (const tee of ['snp', 'tdx'] as const) {
    it(`shares a secret with an attested ${tee} deployment`, async (t) => {
      const { simulator, workspace, open } = await scene(t, { tee });
      const session = open();
      const epoch = await session.acquire(WAIT);
      assert.deepEqual([epoch.manifestSha256, epoch.exchangeSha256], [simulator.manifestSha256, undefined]);
      assert.ok(isMadeOf(epoch.key, simulator.secrets.lookup(epoch.secretId) ?? new Uint8Array(0)));
      const { tee: found, outcome, checks = [] } = session.lastVerdict() ?? {};
      assert.deepEqual([found, outcome], [tee, 'accepted']);
      assert.equal(checks.at(-1)?.id, 'secret.signature');
      assert.ok(readFileSync(join(workspace, 'manifests/1.json')).equals(simulator.manifest));
      assert.equal(logLines(workspace).length, 1);
      const { manifest, attest, secret } = simulator.counts;
      assert.deepEqual([manifest, attest, secret], [1, 1, 1]);
    });
  }

  for (const tee of ['snp', 'tdx'] as const) {
    it(`records the ${tee} exchange of each epoch if asked to, and verify --saved comes to the same verdict`, async (t) => {
      const { workspace, open } = await scene(t, { tee });
      const session = open({
        recordExchange: (collateral) => recordExchange(collateral, 'https://localhost'),
      });
      const { exchangeSha256, exchange = '' } = await session.acquire(WAIT);
      const kept = join(workspace, `${exchangeSha256}.json`);
      writeFileSync(kept, exchange);
      assert.doesNotMatch(readFileSync(kept, 'utf8'), /API-KEY-IS-SECRET/);
      const again = await verifyCommand(['--saved', kept, '--accept-custom-roots']);
      assert.equal(again.code, 0, again.stdout);
      assert.match(again.stdout, new RegExp(`^Exchange {2}SHA-256 ${exchangeSha256}$`, 'm'));
      const { stdout } = await verifyCommand(['--saved', kept, '--json']);
      assert.equal(stdout, verdictText(session.lastVerdict() as Verdict));
    });
  }

  it('hands out only secrets that the service still has, through five lifetimes of 600 ms', async (t) => {
    const { simulator, open } = await scene(t, { secretLifetime: 600 });
    const session = open({
      clock: clockWith({ ...TIMES, secretRenew: 450, secretJitter: 20, secretUsable: 550 }),
    });
    const seen = new Set<string>();
    await session.acquire(WAIT);
    await eventually('five secrets', async () => {
      const { secretId } = await session.acquire(WAIT);
      assert.ok(simulator.secrets.lookup(secretId), 'a secret was handed out that the service has forgotten');
      return seen.add(secretId).size >= 5;
    });
  });

  const REFUSED: readonly FaultName[] = [
    'evidence-stale-nonce',
    'evidence-debug',
    'evidence-signature',
    'evidence-mesh-ca',
    'evidence-revoked',
    'secret-signature',
    'secret-foreign-ca',
    'secret-workload',
    'secret-expired-certificate',
  ];
  for (const fault of REFUSED) {
    it(`fails with attestation_failed, without a secret or a logged manifest, under the fault ${fault}`, async (t) => {
      const { workspace, events, open } = await scene(t, { faults: { [fault]: true } });
      const session = open();
      const error = await firstFailure(session, events);
      assert.equal(error.code, 'attestation_failed', error.message);
      assert.equal(session.current(), undefined);
      assert.throws(() => logLines(workspace), /ENOENT/);
    });
  }

  const TROUBLE: [string, Record<string, unknown>, ErrorCode, RegExp][] = [
    ['the CDN fails', { 'manifest-status': 503 }, 'manifest_unavailable', /status 503/],
    [
      'the CDN sends an error page',
      { 'manifest-page': true },
      'manifest_unavailable',
      /no JSON object with the member Policies/,
    ],
    ['attestation fails', { 'attest-status': 500 }, 'control_api_failed', /attest: .* status 500/],
    ['the exchange fails', { 'secret-status': 500 }, 'control_api_failed', /secret: .* status 500/],
    ['the API resets', { 'attest-reset': 1 }, 'upstream_reset', /localhost/],
    ['the CDN resets', { 'manifest-reset': 1 }, 'manifest_unavailable', /closed the connection/],
    [
      'collateral is missing',
      { 'evidence-no-vcek': true, 'collateral-status': 404 },
      'collateral_unavailable',
      /status 404/,
    ],
  ];
  // Together: each waits a second until it is tried again.
  describe('in trouble', { concurrency: true }, () => {
    for (const [what, faults, code, words] of TROUBLE) {
      it(`reports the cause if ${what}, and recovers afterwards`, async (t) => {
        const { simulator, events, open } = await scene(t, { faults });
        const session = open();
        withCode(code, words)(await firstFailure(session, events));
        simulator.faults.clear();
        await session.acquire(WAIT);
      });
    }
  });

  for (const [service, faults] of [
    ['manifest', { 'manifest-status': 429 }],
    ['attest', { 'attest-status': 429 }],
    ['secret', { 'secret-status': 429 }],
    ['collateral', { 'evidence-no-crl': true, 'collateral-status': 429 }],
  ] as const) {
    it(`does not ask again within ten seconds if ${service} is answered with 429`, async (t) => {
      const { simulator, events, open } = await scene(t, { faults });
      open();
      const failed = await eventually('a failure', () => events.find(({ type }) => type === 'update-failed'));
      assert.match(failed.message, /trying again within 1\d seconds/);
      assert.equal(simulator.counts[service], 1);
    });
  }
});
