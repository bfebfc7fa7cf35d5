import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadTrustStore } from '../../lib/network/trust-store.ts';
import { caFile, createTestAuthority } from '../support/remote/tls-authority.ts';

const ours = createTestAuthority('Test Root');
const inspector = createTestAuthority('Corp TLS Inspection');

describe('trust store', () => {
  it('is exactly the file that SSL_CERT_FILE names', (_t) => {
    const store = loadTrustStore({ SSL_CERT_FILE: caFile(ours.pem, inspector.pem) });
    assert.deepEqual(store, [ours.pem.trim(), inspector.pem.trim()]);
  });

  it('is the system store and the bundled one if SSL_CERT_FILE is unset or empty', () => {
    for (const env of [{}, { SSL_CERT_FILE: '' }]) assert.ok(loadTrustStore(env).length > 50);
  });

  it('refuses a file that is missing, empty or not a certificate', (_t) => {
    const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    for (const path of ['/nonexistent/ca.pem', caFile(''), caFile(broken)]) {
      assert.throws(() => loadTrustStore({ SSL_CERT_FILE: path }), {
        name: 'PrivatemodeError',
        code: 'config_invalid',
        message: /SSL_CERT_FILE/,
      });
    }
  });

  it('says what to do if the bundle does not exist', () => {
    assert.throws(() => loadTrustStore({ SSL_CERT_FILE: '/nowhere/ca.pem' }), {
      code: 'config_invalid',
      message:
        'failed to read the file "/nowhere/ca.pem" of SSL_CERT_FILE: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    });
  });
});
