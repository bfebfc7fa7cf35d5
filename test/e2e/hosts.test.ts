/**
 * Whom the whole proxy calls: the API and the manifest source, and a vendor only where evidence comes without
 * what it needs (docs/protocol/attestation.md 7, 10).
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { clockWith } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { type RunningProxy, startProxy } from '../../lib/proxy.ts';
import { TIMES } from '../../lib/times.ts';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { type ConnectionWatch, watchConnections } from '../support/doors/connections.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { QUICK_PAUSES } from '../support/quick-pauses.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

interface Scene {
  readonly simulator: Awaited<ReturnType<typeof startTestSimulator>>;
  readonly connections: ConnectionWatch;
  readonly lines: Record<string, unknown>[];
  /** A proxy on a workspace that all of a scene share. */
  start(...flags: readonly string[]): Promise<RunningProxy>;
  collateralFiles(): string[];
}

const WAIT = { timeoutMs: 20_000 };

async function inScene(options: SimulatorOptions, play: (scene: Scene) => Promise<void>): Promise<void> {
  const directory = temporaryDirectory('verify-hosts-');
  const simulator = await startTestSimulator({ ...options, directory });
  const connections = watchConnections();
  const { log, lines } = recordingLogger();
  const running: RunningProxy[] = [];
  try {
    await play({
      simulator,
      connections,
      lines,
      async start(...flags) {
        const argv = [
          ...[`--api-endpoint=localhost:${simulator.port}`, '--api-key=k'],
          ...['--listen-address=127.0.0.1', '--port=0'],
          ...[
            `--unsafe-trust-roots=${join(directory, 'roots')}`,
            `--workspace=${join(directory, 'workspace')}`,
          ],
          ...(flags.some((flag) => flag.startsWith('--manifest-path'))
            ? []
            : [`--cdn-base-url=${simulator.url}`]),
          ...flags,
        ];
        const { config } = parseConfig(argv, {});
        const proxy = await startProxy(config, {
          env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
          log,
          clock: clockWith({ ...TIMES, ...QUICK_PAUSES }),
        });
        running.push(proxy);
        return proxy;
      },
      collateralFiles() {
        try {
          return readdirSync(join(directory, 'workspace', 'collateral'));
        } catch {
          return [];
        }
      },
    });
  } finally {
    connections.end();
    for (const proxy of running) await proxy.close();
    await simulator.close();
  }
}

async function complete(proxy: RunningProxy): Promise<number> {
  const response = await askChat(proxy);
  await response.text();
  return response.status;
}

describe('complete SEV-SNP evidence', () => {
  for (const manifest of ['published', 'given'] as const) {
    it(`makes the proxy call only the API${manifest === 'published' ? ' and the manifest source' : ''}`, async () => {
      await inScene({}, async ({ simulator, connections, start, collateralFiles }) => {
        const flags =
          manifest === 'given' ? [`--manifest-path=${join(simulator.directory ?? '', 'manifest.json')}`] : [];
        const proxy = await start(...flags);
        await proxy.session.acquire(WAIT);
        assert.equal(await complete(proxy), 200);
        assert.deepEqual(
          connections.targets(),
          [`127.0.0.1:${proxy.port}`, `localhost:${simulator.port}`].sort(),
        );
        const { collateral, attest, secret } = simulator.counts;
        assert.deepEqual(
          { manifest: simulator.counts['manifest'], attest, secret, collateral },
          { manifest: manifest === 'given' ? 0 : 1, attest: 1, secret: 1, collateral: 0 },
        );
        assert.deepEqual(collateralFiles(), []);
      });
    });
  }

  it('without a revocation list is not complete: the proxy calls kdsintf.amd.com', async () => {
    await inScene({ faults: { 'evidence-no-crl': true } }, async ({ connections, start }) => {
      const proxy = await start();
      await eventually('a call to the vendor', () => connections.targets().includes('kdsintf.amd.com:443'));
      assert.equal(proxy.session.current(), undefined);
    });
  });
});

describe('collateral that evidence lacks', () => {
  const noCrl = { 'evidence-no-crl': true } as const;
  const refused: readonly (readonly [what: string, options: SimulatorOptions])[] = [
    ['SEV-SNP without a revocation list', { faults: noCrl }],
    ['TDX', { tee: 'tdx' }],
  ];
  for (const [what, options] of refused) {
    it(`prevents the secret exchange and every request while the vendor answers with 503: ${what}`, async () => {
      const faults = { ...options.faults, 'collateral-status': 503 };
      await inScene({ ...options, faults }, async ({ simulator, start }) => {
        const vendor = options.tee === 'tdx' ? '--intel-pcs-url' : '--amd-kds-url';
        const proxy = await start(`${vendor}=${simulator.url}`);
        await eventually('a verdict', () => proxy.session.lastVerdict()?.failure != null);
        await assert.rejects(async () => proxy.session.acquire({ timeoutMs: 1_000 }));
        assert.equal(proxy.session.lastVerdict()?.failure?.code, 'collateral_unavailable');
        assert.deepEqual([simulator.counts['secret'], simulator.counts['inference']], [0, 0]);
      });
    });
  }
});
