import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import type { FaultName } from '../../simulator/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { type Verified, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'a-key-that-must-not-be-found-anywhere';

describe('verify of a live service', () => {
  let directory: string;
  const simulators: Record<'snp' | 'tdx', Simulator> = {} as never;
  before(async () => {
    directory = temporaryDirectory('verify-live-');
    for (const tee of ['snp', 'tdx'] as const) {
      simulators[tee] = await startTestSimulator({ tee, directory: join(directory, tee), apiKey: KEY });
    }
  });
  afterEach(() => {
    for (const simulator of Object.values(simulators)) simulator.faults.clear();
  });
  after(async () => {
    for (const simulator of Object.values(simulators)) await simulator.close();
  });

  const flags = (tee: 'snp' | 'tdx'): string[] => {
    const { port, url } = simulators[tee];
    return [
      ...[`--api-endpoint=localhost:${port}`, `--api-key=${KEY}`, `--cdn-base-url=${url}`],
      ...[`--amd-kds-url=${url}`, `--intel-pcs-url=${url}`],
      `--unsafe-trust-roots=${join(directory, tee, 'roots')}`,
      '--accept-custom-roots',
    ];
  };
  const ENV = (tee = 'snp') => ({ SSL_CERT_FILE: join(directory, tee, 'ca.pem') });
  const verify = (tee: 'snp' | 'tdx', ...more: string[]): Promise<Verified> =>
    verifyCommand([...flags(tee), ...more], { env: ENV(tee) });
  const verifyAgain = (saved: string): Promise<Verified> => verifyCommand(['--saved', saved, '--json']);
  const recordIn = (saved: string) => JSON.parse(readFileSync(saved, 'utf8')) as Record<string, unknown>;

  it('accepts a deployment under its published manifest, secret exchange included', async () => {
    const { code, stdout, stderr } = await verify('snp', '--verbose');
    assert.equal(code, 0, stdout);
    assert.match(stdout, /✓ Signature on the secret exchange +valid/);
    assert.match(stdout, new RegExp(`SHA-256 ${simulators.snp.manifestSha256}$`, 'm'));
    assert.match(stdout, /published at https:\/\/localhost/);
    assert.doesNotMatch(stdout, /✗|\?/);
    assert.match(stderr, /!! WARNING: --unsafe-trust-roots/);
  });

  const saves: readonly (readonly ['snp' | 'tdx', exit: number, failure: string | undefined, FaultName[]])[] =
    [
      ['snp', 0, undefined, []],
      ['snp', 0, undefined, ['evidence-no-crl', 'evidence-no-vcek']],
      ['tdx', 0, undefined, []],
      ['snp', 10, 'snp.report_data', ['evidence-stale-nonce']],
      ['snp', 10, 'snp.report.signature', ['evidence-signature']],
      ['snp', 10, 'secret.signature', ['secret-signature']],
      ['snp', 10, 'mesh.certificate.signature', ['secret-foreign-ca']],
      ['tdx', 40, 'tdx.tcb_info.format', ['collateral-status']],
      ['snp', 40, undefined, ['secret-status']],
    ];
  for (const [tee, exit, id, faults] of saves) {
    it(`saves a ${tee} exchange with ${faults.join(' and ') || 'no fault'} that anybody can verify again to the same bytes`, async () => {
      for (const fault of faults)
        simulators[tee].faults.set(fault, (fault.endsWith('-status') ? 503 : true) as never);
      const saved = join(directory, `saved-${tee}-${faults.join()}`);
      const first = await verify(tee, '--save', saved, '--json');
      assert.equal(first.code, exit, first.stdout);
      assert.equal(first.json().failure?.id ?? undefined, id);
      const again = await verifyAgain(saved);
      assert.equal(again.code, exit === 0 ? 35 : exit);
      assert.equal(again.stdout, first.stdout);
      assert.doesNotMatch(again.stderr, /Warning/);
      const { collateral, secret, host } = recordIn(saved);
      assert.equal(host, `https://localhost:${simulators[tee].port}`);
      assert.equal(secret !== undefined, exit === 0 || (id !== undefined && /^(mesh|secret)\./.test(id)));
      if (exit === 0) assert.equal((collateral as object[]).length, tee === 'tdx' ? 4 : faults.length);
    });
  }

  it('counts collateral as missing that a record lacks: nothing is proved', async () => {
    const saved = join(directory, 'saved-tdx');
    assert.equal((await verify('tdx', '--save', saved)).code, 0);
    writeFileSync(saved, JSON.stringify({ ...recordIn(saved), collateral: [] }));
    const { code, json } = await verifyAgain(saved);
    const { outcome, failure } = json();
    assert.deepEqual([code, outcome, failure?.code], [40, 'unavailable', 'collateral_unavailable']);
    assert.match(failure?.found ?? '', /the record has no answer to intel/);
  });

  it('saves one file for its owner only, with the manifest byte for byte, and without the API key and the secret', async () => {
    const { secrets, manifest } = simulators.snp;
    const saved = join(directory, 'saved-once');
    secrets.dropAll();
    const { stdout, stderr } = await verify('snp', '--save', saved);
    assert.equal(statSync(saved).mode & 0o777, 0o600);
    assert.deepEqual(Buffer.from(recordIn(saved)['manifest'] as string, 'base64'), Buffer.from(manifest));
    const texts = [stdout, stderr, readFileSync(saved, 'latin1')].join('\n');
    assert.ok(!texts.includes(KEY));
    const [id = '', ...others] = secrets.ids();
    assert.deepEqual(others, []);
    const secret = Buffer.from(secrets.lookup(id) as Uint8Array);
    for (const form of ['latin1', 'hex', 'base64', 'base64url'] as const)
      assert.ok(!texts.includes(secret.toString(form).replace(/=$/, '')), form);
  });

  it('refuses to save into a file that is there, or where it cannot write, before it sends any request', async () => {
    const taken = join(directory, 'taken');
    writeFileSync(taken, '{}');
    const before = { ...simulators.snp.counts };
    const { code, stderr } = await verify('snp', '--save', taken);
    assert.equal(code, 1);
    assert.match(stderr, /^Error: --save: .*taken is there already; name a new file$/m);
    const below = await verify('snp', '--save', join(taken, 'below'));
    assert.equal(below.code, 1);
    assert.match(below.stderr, /^Error: --save: .* cannot be written: ENOTDIR: /);
    assert.deepEqual(simulators.snp.counts, before);
    assert.equal(readFileSync(taken, 'utf8'), '{}');
  });

  it('sends the nonce of --nonce', async () => {
    const nonce = Buffer.alloc(32, 0x5a).toString('base64');
    const saved = join(directory, 'saved-challenge');
    assert.equal((await verify('snp', '--nonce', nonce, '--save', saved)).code, 0);
    assert.equal(recordIn(saved)['nonce'], nonce);
    assert.equal((await verifyAgain(saved)).code, 35);
  });

  it('fails the check manifest.expected if the manifest in force is not that of --manifest-path', async () => {
    const path = join(directory, 'old-manifest.json');
    writeFileSync(path, `${Buffer.from(simulators.snp.manifest).toString('utf8')}\n`);
    const { code, stdout } = await verify('snp', '--manifest-path', path);
    assert.equal(code, 10);
    const words = /^✗ The expected manifest\n[^✗]+ {2}check +manifest\.expected .* \[manifest_mismatch\]$/m;
    assert.match(stdout, words);
    assert.match(stdout, /^Find out what changed, and who says so/m);
    simulators.snp.faults.set('evidence-signature', true);
    const forged = await verify('snp', '--manifest-path', path);
    assert.equal(forged.code, 10);
    assert.match(forged.stdout, /^Do not trust the remote; report it with the proof/m);
    assert.match(forged.stdout, /\[attestation_failed\]$/m);
    assert.doesNotMatch(forged.stdout, /Find out what changed/);
  });

  for (const [what, fault, value, code] of [
    ['a manifest that cannot be fetched', 'manifest-status', 503, 'manifest_unavailable'],
    ['a key that is refused', 'attest-status', 401, 'api_key_rejected'],
  ] as const) {
    it(`exits with 40, without a verdict, for ${what}`, async () => {
      simulators.snp.faults.set(fault, value as never);
      const { code: exitCode, json } = await verify('snp', '--json');
      const { outcome, failure } = json();
      assert.deepEqual([exitCode, outcome, failure?.code, failure?.id], [40, 'unavailable', code, null]);
    });
  }

  it('sends no request without the CA of the host, and none without the file of --manifest-path', async () => {
    const before = { ...simulators.snp.counts };
    const { code, json } = await verifyCommand([...flags('snp'), '--json']);
    assert.deepEqual([code, json().failure?.code], [40, 'upstream_tls_untrusted']);
    const env = { PRIVATEMODE_PROXY_MANIFEST_PATH: join(directory, 'none.json') };
    const none = await verifyCommand([...flags('snp'), '--json'], { env });
    assert.deepEqual([none.code, none.json().outcome], [30, 'malformed']);
    assert.deepEqual(simulators.snp.counts, before);
    assert.equal(existsSync(join(directory, 'none.json')), false);
  });

  it('refuses --unsafe-trust-roots if the API or the CDN is that of the real service', async () => {
    const argv = ['--api-key=k', `--unsafe-trust-roots=${join(directory, 'snp', 'roots')}`];
    for (const more of [[], ['--api-endpoint=API.privatemode.ai.'], ['--api-endpoint=localhost:9']]) {
      const { code, stderr } = await verifyCommand([...argv, ...more]);
      assert.equal(code, 1);
      assert.match(stderr, /^Error: --unsafe-trust-roots .*refused for/, more.join());
    }
  });
});
