import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sha256 } from '#crypto';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import { commonName, parseCertificate } from '../../lib/attestation/x509.ts';
import { decodeOneCertificate } from '../../lib/crypto/der.ts';
import { trustText } from '../support/evidence/attestation-vectors.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

/** The rows of the table in test/vectors/trust/README.md, by subject CN. */
const TABLE = new Map(
  trustText('README.md')
    .split('\n')
    .filter((line) => line.startsWith('| amd_') || line.startsWith('| intel_'))
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .map(([, file = '', cn = '', serial = '', until = '', der = '', spki = '']) => [
      cn,
      { file, serial, until, der, spki },
    ]),
);

const { Milan, Genoa, ...otherLines } = PRODUCTION_ROOTS.snp;
const EMBEDDED: readonly (readonly [string, string | undefined])[] = [
  ['ARK-Milan', Milan?.ark],
  ['SEV-Milan', Milan?.ask],
  ['ARK-Genoa', Genoa?.ark],
  ['SEV-Genoa', Genoa?.ask],
  ['Intel SGX Root CA', PRODUCTION_ROOTS.tdx?.root],
];

describe('the production roots', () => {
  for (const [cn, pem] of EMBEDDED) {
    it(`have ${cn} with the fingerprints of test/vectors/trust/README.md`, () => {
      const row = TABLE.get(cn);
      assert.ok(row && pem);
      const certificate = parseCertificate(decodeOneCertificate(pem));
      assert.equal(commonName(certificate.subject), cn);
      assert.equal(toHex(sha256(certificate.der)), row.der);
      assert.equal(toHex(sha256(certificate.spki)), row.spki);
      assert.equal(certificate.serial, row.serial);
      assert.equal(certificate.notAfter.toISOString().slice(0, 10), row.until);
    });
  }

  it('have no other root, such as one for Turin or VLEK', () => {
    assert.equal(TABLE.size, 10);
    assert.deepEqual(otherLines, {});
    assert.deepEqual(Object.keys(PRODUCTION_ROOTS), ['snp', 'tdx']);
  });
});
