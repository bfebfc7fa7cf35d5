import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { linkDefects, profileDefects, readPckChain } from '../../lib/attestation/tdx/chain.ts';
import type { Certificate } from '../../lib/attestation/x509/certificate.ts';
import { tdxPlatform } from '../support/tdx-platform.ts';

const { quote } = tdxPlatform();
const chain = readPckChain(
  quote.signedData.certificationData.qeReportCertificationData.pckCertificateChainData.pckCertChain,
);

describe('certificate profile', () => {
  const { leaf, intermediate, root } = chain;
  const NAME = 'Intel SGX PCK Certificate';

  const altered: readonly (readonly [string, Certificate])[] = [
    ['another X.509 version', { ...leaf, version: 1 }],
    [
      'another signature algorithm',
      { ...leaf, signatureAlgorithm: { ...leaf.signatureAlgorithm, name: 'ecdsa-with-SHA384' } },
    ],
    ['a key on another curve', { ...leaf, publicKey: { ...leaf.publicKey, curve: 'P-384' } }],
    ['a key that is not elliptic', { ...leaf, publicKey: { ...leaf.publicKey, curve: undefined } }],
    [
      'two common names',
      {
        ...leaf,
        subject: { ...leaf.subject, attributes: [...leaf.subject.attributes, { type: 'CN', value: NAME }] },
      },
    ],
  ];
  it('is held by the certificates of the platform', () => assert.deepEqual(profileDefects(leaf, NAME), []));
  for (const [name, certificate] of altered) {
    it(`refuses ${name}`, () => assert.equal(profileDefects(certificate, NAME).length, 1));
  }

  it('lets a CA stand above as many others as its path length says', async () => {
    assert.deepEqual(await linkDefects(intermediate, root, 1), []);
    assert.equal((await linkDefects(intermediate, root, 2)).length, 1);
    assert.equal((await linkDefects(leaf, intermediate, 1)).length, 1);
  });
});
