import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { loadTrustStore } from '../../lib/network/trust-store.ts';
import { createTestAuthority } from '../support/tls-authority.ts';

const ours = createTestAuthority('Test Root');
const inspector = createTestAuthority('Corp TLS Inspection');

function caFile(t: TestContext, ...pems: string[]): string {
  const directory = mkdtempSync(join(tmpdir(), 'outbound-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'ca.pem');
  writeFileSync(path, `# a comment\n${pems.join('text between\n')}`);
  return path;
}

describe('trust store', () => {
  it('is exactly the file that SSL_CERT_FILE names', (t) => {
    const store = loadTrustStore({ SSL_CERT_FILE: caFile(t, ours.pem, inspector.pem) });
    assert.deepEqual(store, [ours.pem.trim(), inspector.pem.trim()]);
  });

  it('is the system store and the bundled one where SSL_CERT_FILE is unset or empty', () => {
    for (const env of [{}, { SSL_CERT_FILE: '' }]) assert.ok(loadTrustStore(env).length > 50);
  });

  it('refuses a file that is missing, empty or not a certificate', (t) => {
    const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    for (const path of ['/nonexistent/ca.pem', caFile(t, ''), caFile(t, broken)]) {
      assert.throws(() => loadTrustStore({ SSL_CERT_FILE: path }), {
        name: 'PrivatemodeError',
        code: 'config_invalid',
        message: /SSL_CERT_FILE/,
      });
    }
  });
});
