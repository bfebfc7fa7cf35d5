import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeTlsFailure } from '../../lib/network/tls-failure.ts';

describe('a certificate or CRL outside its validity period', () => {
  for (const [code, words, clock] of [
    ['CERT_HAS_EXPIRED', 'it has expired', 'late'],
    ['CERT_NOT_YET_VALID', 'it is not valid yet', 'early'],
    ['CRL_HAS_EXPIRED', 'its revocation list has expired', 'late'],
    ['CRL_NOT_YET_VALID', 'its revocation list is not valid yet', 'early'],
  ] as const) {
    it(`${code}: the error says to check the clock, and does not mention SSL_CERT_FILE`, () => {
      const error = describeTlsFailure(Object.assign(new Error(code), { code }), 'api.example');
      assert.match(
        error?.message ?? '',
        new RegExp(
          `^api\\.example presented a certificate that is refused: ${words}\\. Check the clock of this machine, which says \\d{4}-\\d\\d-\\d\\d, past \\d\\d:00 UTC$`,
        ),
      );
      assert.equal(
        error?.remedy,
        'Check the clock of this machine first; if it is right, do not trust the remote and report this.',
      );
      assert.doesNotMatch(`${error?.message} ${error?.remedy}`, /SSL_CERT_FILE/);
      assert.deepEqual(error?.detail, { clock });
    });
  }
});
