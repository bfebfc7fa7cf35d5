/**
 * Whom the whole proxy calls: the API and the manifest source, and a vendor only where evidence comes without
 * what it needs (docs/protocol/attestation.md 7, 10).
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { watchConnections } from '../support/doors/connections.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

/** A deployment with a proxy in front of it, and the connections of both. */
async function scene(t: TestContext, options: Parameters<typeof startStack>[0]) {
  const connections = watchConnections();
  t.after(() => connections.end());
  const stack = await startStack(options);
  t.after(() => stack.close());
  return { ...stack, connections };
}

describe('complete SEV-SNP evidence', () => {
  for (const managedManifest of [true, false]) {
    it(`makes the proxy call only the API${managedManifest ? ' and the manifest source' : ''}`, async (t) => {
      const { simulator, proxy, directory, connections } = await scene(t, { managedManifest });
      const response = await askChat(proxy);
      assert.equal(response.status, 200);
      const own = [`127.0.0.1:${proxy.port}`, `localhost:${simulator.port}`];
      assert.deepEqual(connections.targets(), own.sort());
      const { manifest, collateral, attest, secret } = simulator.counts;
      const counts = [manifest, attest, secret, collateral];
      assert.deepEqual(counts, [Number(managedManifest), 1, 1, 0]);
      assert.equal(existsSync(join(directory, 'workspace/collateral')), false);
    });
  }

  it('without a revocation list is not complete: the proxy calls kdsintf.amd.com', async (t) => {
    const simulator = { faults: { 'evidence-no-crl': true } };
    const { proxy, connections } = await scene(t, { simulator });
    await eventually('a call to the vendor', () => connections.targets().includes('kdsintf.amd.com:443'));
    assert.equal(proxy.session.current(), undefined);
  });
});

describe('collateral that evidence lacks', () => {
  const refused: readonly (readonly [what: string, vendor: string, options: SimulatorOptions])[] = [
    ['SEV-SNP without a revocation list', 'amd-kds', { faults: { 'evidence-no-crl': true } }],
    ['TDX', 'intel-pcs', { tee: 'tdx' }],
  ];
  for (const [what, vendor, options] of refused) {
    it(`prevents the secret exchange and every request while the vendor answers with 503: ${what}`, async (t) => {
      const port = await freePort();
      const { simulator, proxy } = await scene(t, {
        simulator: { ...options, port, faults: { ...options.faults, 'collateral-status': 503 } },
        flags: [`--${vendor}-url=https://localhost:${port}`],
      });
      await eventually('a verdict', () => proxy.session.lastVerdict()?.failure != null);
      await assert.rejects(async () => proxy.session.acquire({ timeoutMs: 1_000 }));
      assert.equal(proxy.session.lastVerdict()?.failure?.code, 'collateral_unavailable');
      assert.deepEqual([simulator.counts['secret'], simulator.counts['inference']], [0, 0]);
    });
  }
});
