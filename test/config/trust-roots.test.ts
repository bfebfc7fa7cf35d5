import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { readTrustRoots, trustRoots, withSimulatorHint } from '../../lib/config/trust-roots.ts';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const VECTORS = join(import.meta.dirname, '../vectors');
const ARK = join(VECTORS, 'attestation/synthetic/test_ark.pem');
const ASK = join(VECTORS, 'attestation/synthetic/test_ask.pem');
const INTEL = join(VECTORS, 'attestation/synthetic_tdx/test_intel_root.pem');

function directory(_t: TestContext, files: Record<string, string>): string {
  const created = temporaryDirectory('roots-');
  for (const [name, source] of Object.entries(files)) copyFileSync(source, join(created, name));
  return created;
}

const refused = (code: string, words: RegExp) => (error: unknown) => {
  assert.ok(error instanceof PrivatemodeError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, words);
  return true;
};

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
    'api.privatemode.ai.:8443',
    'api.privatemode.ai..',
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
    'localhost:9443',
    '127.0.0.1:9443',
    '[::1]:9443',
    '::1',
    '2001:db8::1',
    '127.0.0.1',
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
  it('certificates are recognized by their subject, whatever the files are called', (t) => {
    const roots = unsafeRoots(directory(t, { 'x.pem': ARK, 'y.pem': INTEL, 'a.pem': ASK }));
    assert.deepEqual(Object.keys(roots.snp), ['Genoa']);
    assert.equal(roots.snp.Genoa?.ark, readFileSync(ARK, 'utf8'));
    assert.equal(roots.snp.Genoa?.ask, readFileSync(ASK, 'utf8'));
    assert.equal(roots.tdx?.root, readFileSync(INTEL, 'utf8'));
  });

  it('one file may hold several certificates, and the roots of one vendor may be missing', (t) => {
    const created = directory(t, { 'notes.txt': ARK });
    writeFileSync(join(created, 'all.pem'), `${readFileSync(ASK)}${readFileSync(ARK)}`);
    const roots = unsafeRoots(created);
    assert.deepEqual([Object.keys(roots.snp), roots.tdx], [['Genoa'], undefined]);
  });

  it('the flag is refused before anything is read if any host is a production host', () => {
    for (const hosts of [['api.privatemode.ai.'], ['localhost', 'cdn.confidential.cloud:8443']] as const) {
      assert.throws(
        () => unsafeRoots('/nonexistent', ...hosts),
        refused('unsafe_roots_refused', new RegExp(`refused for ${hosts.at(-1)}`)),
      );
    }
  });

  it('the CDN may be a production host if --manifest-path names a file', (t) => {
    const created = directory(t, { 'root.pem': INTEL });
    assert.equal(unsafeRoots(created, 'localhost').tdx?.root, readFileSync(INTEL, 'utf8'));
    assert.throws(() => unsafeRoots(created, 'localhost', 'cdn.confidential.cloud'), {
      code: 'unsafe_roots_refused',
      remedy:
        'The manifest would come from there (--cdn-base-url): name that of the simulator with --manifest-path, such as sim/manifest.json.',
    });
  });

  const settings = {
    roots: '--unsafe-trust-roots DIR/roots',
    manifest: '--manifest-path DIR/manifest.json',
    ca: 'SSL_CERT_FILE=DIR/ca.pem',
  };
  const hints: [
    host: string,
    code: ErrorCode,
    given: (keyof typeof settings)[],
    named: string | undefined,
  ][] = [
    ['localhost', 'attestation_failed', ['manifest', 'ca'], settings.roots],
    ['localhost', 'upstream_tls_untrusted', ['manifest', 'roots'], settings.ca],
    ['127.0.0.1', 'manifest_unavailable', [], `${settings.roots}, ${settings.manifest}, ${settings.ca}`],
    ['::1', 'manifest_mismatch', ['roots', 'ca'], settings.manifest],
    ['localhost', 'api_key_rejected', [], undefined],
    ['api.privatemode.ai', 'attestation_failed', [], undefined],
    ['localhost.example.com', 'attestation_failed', [], undefined],
  ];
  for (const [host, code, given, named] of hints) {
    it(`the remedy names ${named ?? 'no setting'} if ${host} fails with ${code} and ${given.join(' and ') || 'nothing'} was given`, () => {
      const error = new PrivatemodeError(code, 'message');
      const config = {
        apiEndpoint: { host, port: 9443 },
        unsafeTrustRoots: given.includes('roots') ? 'sim/roots' : undefined,
        manifestPath: given.includes('manifest') ? 'sim/manifest.json' : undefined,
      };
      const env = given.includes('ca') ? { SSL_CERT_FILE: 'sim/ca.pem' } : {};
      const { message, remedy } = withSimulatorHint(error, config, env);
      const hint = `If the service is a simulator, add ${named}, where DIR is the "dir" that it printed. Else: `;
      assert.deepEqual([message, remedy], ['message', `${named === undefined ? '' : hint}${error.remedy}`]);
    });
  }

  it('the remedy suspects files of another simulator if all were given and attestation of a local service fails', () => {
    const config = {
      apiEndpoint: { host: 'localhost', port: 9443 },
      unsafeTrustRoots: 'sim/roots',
      manifestPath: 'sim/manifest.json',
    };
    const error = new PrivatemodeError('attestation_failed', 'message');
    const { remedy } = withSimulatorHint(error, config, { SSL_CERT_FILE: 'sim/ca.pem' });
    const mismatch = new PrivatemodeError('manifest_mismatch', 'message');
    assert.equal(
      withSimulatorHint(mismatch, config, { SSL_CERT_FILE: 'sim/ca.pem' }).remedy,
      mismatch.remedy,
    );
    assert.match(
      remedy,
      /^The files that you named may be those of another simulator: .* Else: Do not trust/,
    );
  });

  for (const [missingRoot, names] of [
    ['Genoa', 'ARK-Genoa and SEV-Genoa'],
    ['tdx', 'Intel SGX Root CA'],
  ] as const) {
    it(`the remedy names ${names} if the roots that were given lack ${missingRoot}`, () => {
      const error = new PrivatemodeError('attestation_failed', 'message', { detail: { missingRoot } });
      const config = {
        apiEndpoint: { host: 'sim.example', port: 9443 },
        unsafeTrustRoots: 'sim/roots',
        manifestPath: 'sim/manifest.json',
      };
      const hinted = withSimulatorHint(error, config, { SSL_CERT_FILE: 'sim/ca.pem' });
      assert.equal(
        hinted.remedy,
        `The directory of --unsafe-trust-roots lacks ${names}: if the service is a simulator, name the "roots" in the "dir" that it printed. Else: ${error.remedy}`,
      );
      assert.deepEqual(hinted.detail, { missingRoot });
    });
  }

  it('files that hold no usable roots are refused', (t) => {
    const foreign = join(VECTORS, 'attestation/synthetic/mesh_ca.pem');
    const cases: [string, RegExp][] = [
      [
        '/nonexistent',
        /failed to read the directory "\/nonexistent" of --unsafe-trust-roots: ENOENT: no such/,
      ],
      [directory(t, {}), /holds no certificate/],
      [directory(t, { 'ark.crt': ARK }), /holds no certificate/],
      [directory(t, { 'ark.pem': ARK }), /must be given together/],
      [directory(t, { 'ask.pem': ASK }), /must be given together/],
      [directory(t, { 'a.pem': ARK, 'b.pem': ARK, 'c.pem': ASK }), /b.pem: a second "ARK-Genoa"/],
      [
        directory(t, { 'mesh.pem': foreign }),
        /"system:coordinator:intermediate" is not one of .*; name the directory that holds these alone/,
      ],
      [directory(t, { 'no.pem': join(VECTORS, 'attestation/README.md') }), /no.pem is not a PEM certificate/],
    ];
    for (const [path, words] of cases) {
      assert.throws(() => unsafeRoots(path), refused('config_invalid', words));
    }
  });
});

describe('roots among other certificates', () => {
  const options = { flag: '--roots', others: 'ignored' } as const;

  it('are found, and the other certificates are not trusted', (t) => {
    const mesh = join(VECTORS, 'attestation/synthetic/mesh_ca.pem');
    const roots = readTrustRoots(directory(t, { 'a.pem': ARK, 'm.pem': mesh, 'z.pem': ASK }), options);
    assert.deepEqual([Object.keys(roots.snp), roots.tdx], [['Genoa'], undefined]);
    assert.equal(roots.snp.Genoa?.ark, readFileSync(ARK, 'utf8'));
  });

  it('are required, and the error names the flag if there are none', (t) => {
    const mesh = join(VECTORS, 'attestation/synthetic/mesh_ca.pem');
    assert.throws(
      () => readTrustRoots(directory(t, { 'm.pem': mesh }), options),
      refused('config_invalid', /^--roots: .* holds no certificate/),
    );
  });
});
