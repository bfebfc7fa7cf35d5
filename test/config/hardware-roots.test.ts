import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { trustRoots, withSimulatorHint } from '../../lib/config/hardware-roots.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const VECTORS = join(import.meta.dirname, '../vectors');
const ARK = join(VECTORS, 'attestation/synthetic/test_ark.pem');
const ASK = join(VECTORS, 'attestation/synthetic/test_ask.pem');
const INTEL = join(VECTORS, 'attestation/synthetic_tdx/test_intel_root.pem');

function directory(files: Record<string, string>): string {
  const created = temporaryDirectory('roots-');
  for (const [name, source] of Object.entries(files)) copyFileSync(source, join(created, name));
  return created;
}

/**
 * The roots of --unsafe-trust-roots for a configuration with this API host, and this CDN unless a manifest
 * file is given.
 */
const unsafeRoots = (unsafeTrustRoots: string, host = 'localhost', cdn?: string) =>
  trustRoots({
    unsafeTrustRoots,
    apiEndpoint: { host, port: 9443 },
    cdnBaseUrl: `https://${cdn ?? 'cdn.confidential.cloud'}`,
    manifestPath: cdn === undefined ? 'manifest.json' : undefined,
  });

describe('the rule for production hosts', () => {
  for (const host of [
    'privatemode.ai',
    'api.privatemode.ai',
    'API.Privatemode.AI',
    'api.privatemode.ai.',
    'api.privatemode.ai:443',
    ' api.privatemode.ai ',
    'a.b.privatemode.ai',
    'api%2eprivatemode%2Eai',
    'api。privatemode。ai',
    'ａｐｉ.privatemode.ai',
    'cdn.confidential.cloud',
    'confidential.cloud.',
    'user@api.privatemode.ai',
    '',
    'a b',
    'x:notaport',
  ]) {
    it(`counts ${JSON.stringify(host)} as production`, () =>
      assert.throws(() => unsafeRoots('/nonexistent', host), { code: 'unsafe_roots_refused' }));
  }
  for (const host of [
    'localhost',
    '127.0.0.1:9443',
    '[::1]:9443',
    '2001:db8::1',
    'simulator.test',
    'notprivatemode.ai',
    'privatemode.ai.example',
    'privatemode.example',
  ]) {
    it(`does not count ${JSON.stringify(host)} as production`, () =>
      assert.throws(() => unsafeRoots('/nonexistent', host), { code: 'config_invalid' }));
  }
});

describe('--unsafe-trust-roots', () => {
  it('certificates are recognized by their subject, whatever the files are called', () => {
    const roots = unsafeRoots(directory({ 'x.pem': ARK, 'y.pem': INTEL, 'a.pem': ASK }));
    assert.deepEqual(Object.keys(roots.snp), ['Genoa']);
    assert.equal(roots.snp.Genoa?.ark, readFileSync(ARK, 'utf8'));
    assert.equal(roots.snp.Genoa?.ask, readFileSync(ASK, 'utf8'));
    assert.equal(roots.tdx?.root, readFileSync(INTEL, 'utf8'));
  });

  it('one file may hold several certificates, and the roots of one vendor may be missing', () => {
    const created = directory({ 'notes.txt': ARK });
    writeFileSync(join(created, 'all.pem'), `${readFileSync(ASK)}${readFileSync(ARK)}`);
    const roots = unsafeRoots(created);
    assert.deepEqual([Object.keys(roots.snp), roots.tdx], [['Genoa'], undefined]);
  });

  it('the CDN may be a production host if --manifest-path names a file', () => {
    const created = directory({ 'root.pem': INTEL });
    assert.equal(unsafeRoots(created, 'localhost').tdx?.root, readFileSync(INTEL, 'utf8'));
    assert.throws(() => unsafeRoots(created, 'localhost', 'cdn.confidential.cloud:8443'), {
      code: 'unsafe_roots_refused',
      message: /refused for cdn\.confidential\.cloud:8443/,
    });
  });

  for (const [host, code, hinted] of [
    ['localhost', 'attestation_failed', true],
    ['127.0.0.1', 'evidence_malformed', true],
    ['::1', 'manifest_mismatch', true],
    ['localhost', 'upstream_tls_untrusted', true],
    ['localhost', 'api_key_rejected', false],
    ['api.privatemode.ai', 'attestation_failed', false],
    ['localhost.example.com', 'attestation_failed', false],
  ] as const)
    it(`the remedy ${hinted ? 'names' : 'does not name'} what a simulator needs if ${host} fails with ${code}`, () => {
      const error = new PrivatemodeError(code, 'message', { detail: { clock: 'late' } });
      const { message, remedy, detail } = withSimulatorHint(error, {
        apiEndpoint: { host, port: 9443 },
        unsafeTrustRoots: undefined,
      });
      assert.deepEqual([message, detail], ['message', { clock: 'late' }]);
      assert.equal(/^If the service is a simulator, give --unsafe-trust-roots DIR/.test(remedy), hinted);
      assert.ok(remedy.endsWith(error.remedy));
    });

  it('the remedy names nothing of a simulator if its roots are given', () => {
    const error = new PrivatemodeError('attestation_failed', 'message');
    const given = { apiEndpoint: { host: 'localhost', port: 9443 }, unsafeTrustRoots: 'roots' };
    assert.equal(withSimulatorHint(error, given), error);
  });

  it('files that hold no usable roots are refused', () => {
    const foreign = join(VECTORS, 'attestation/synthetic/mesh_ca.pem');
    const cases: [string, RegExp][] = [
      [
        '/nonexistent',
        /failed to read the directory "\/nonexistent" of --unsafe-trust-roots: ENOENT: no such/,
      ],
      [directory({}), /holds no certificate/],
      [directory({ 'ark.crt': ARK }), /holds no certificate/],
      [directory({ 'ark.pem': ARK }), /must be given together/],
      [directory({ 'ask.pem': ASK }), /must be given together/],
      [directory({ 'a.pem': ARK, 'b.pem': ARK, 'c.pem': ASK }), /b.pem: "ARK-Genoa" is there twice/],
      [directory({ 'mesh.pem': foreign }), /"system:coordinator:intermediate" is not one of ARK-/],
      [directory({ 'no.pem': join(VECTORS, 'attestation/README.md') }), /no.pem is not a PEM certificate/],
    ];
    for (const [path, message] of cases)
      assert.throws(() => unsafeRoots(path), { code: 'config_invalid', message });
  });
});
