/** A session as the program makes it, with a simulated deployment: that its parts fit together. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { createManifestLog } from '../../lib/manifest-log.ts';
import { createCollateralStore } from '../../lib/network/collateral-store.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { createCollateralCache } from '../../lib/session/collateral-cache.ts';
import { createControlApi, managedManifest } from '../../lib/session/control-api.ts';
import { createSession } from '../../lib/session/session.ts';
import { recordExchange } from '../../lib/verdict/record.ts';
import { type Verdict, verdictText } from '../../lib/verdict/verdict.ts';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { isMadeOf } from '../support/evidence/engine.ts';
import { verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { inPromises, WAIT } from '../support/remote/fake-remote.ts';
import { rootsOf, startTestSimulator } from '../support/remote/simulator.ts';

async function scene(t: TestContext, options: SimulatorOptions) {
  const simulator = await startTestSimulator(options);
  t.after(() => simulator.close());
  const workspace = temporaryDirectory('session-');
  const caFile = join(workspace, 'ca.pem');
  writeFileSync(caFile, simulator.caPem);
  const outbound = createOutbound({ SSL_CERT_FILE: caFile }, { connectTimeout: 10_000, clock: systemClock });
  t.after(() => outbound.close());
  const { call } = outbound;
  const failed = Promise.withResolvers<PrivatemodeError>();
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
      observe: (event) => event.type === 'update-failed' && failed.resolve(event.error),
      recordExchange: (collateral) => recordExchange(collateral, 'https://localhost'),
    }),
  );
  t.after(() => session.close());
  session.updateConfiguredKey('API-KEY-IS-SECRET');
  return { simulator, workspace, session, failure: failed.promise };
}

describe('session with a simulated deployment', () => {
  for (const tee of ['snp', 'tdx'] as const) {
    it(`shares a secret with an attested ${tee} deployment, and verify --saved comes to the same verdict`, async (t) => {
      const { simulator, workspace, session } = await scene(t, { tee });
      const { exchange = '', exchangeSha256, key, ...epoch } = await session.acquire(WAIT);
      assert.equal(epoch.manifestSha256, simulator.manifestSha256);
      assert.ok(isMadeOf(key, simulator.secrets.lookup(epoch.secretId) ?? new Uint8Array(0)));
      const verdict = session.lastVerdict() as Verdict;
      assert.deepEqual([verdict.tee, verdict.outcome], [tee, 'accepted']);
      assert.equal(verdict.checks.at(-1)?.id, 'secret.signature');
      assert.ok(readFileSync(join(workspace, 'manifests/1.json')).equals(simulator.manifest));
      const { manifest, attest, secret } = simulator.counts;
      assert.deepEqual([manifest, attest, secret], [1, 1, 1]);
      assert.doesNotMatch(exchange, /API-KEY-IS-SECRET/);
      const kept = join(workspace, `${exchangeSha256}.json`);
      writeFileSync(kept, exchange);
      const again = await verifyCommand(['--saved', kept, '--accept-custom-roots']);
      assert.equal(again.code, 0, again.stdout);
      assert.match(again.stdout, new RegExp(`^Exchange {2}SHA-256 ${exchangeSha256}$`, 'm'));
      assert.equal((await verifyCommand(['--saved', kept, '--json'])).stdout, verdictText(verdict));
    });
  }

  for (const [what, faults] of [
    ['evidence', { 'evidence-signature': true }],
    ['secret', { 'secret-signature': true }],
  ] as const) {
    it(`fails, without a secret or a logged manifest, if a signature on the ${what} does not hold`, async (t) => {
      const { workspace, session, failure } = await scene(t, { faults });
      const error = await failure;
      assert.equal(error.code, 'attestation_failed', error.message);
      assert.equal(session.current(), undefined);
      assert.ok(!existsSync(join(workspace, 'manifests/log.txt')));
    });
  }
});
