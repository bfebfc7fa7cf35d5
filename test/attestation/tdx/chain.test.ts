import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  linkDefects,
  profileDefects,
  readCertificates,
  readPckChain,
} from '../../../lib/attestation/tdx/chain.ts';
import type { Certificate } from '../../../lib/attestation/x509.ts';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const { quote } = tdxPlatform();
const chain = readPckChain(
  quote.signedData.certificationData.qeReportCertificationData.pckCertificateChainData.pckCertChain,
);

describe('a chain in PEM', () => {
  const { leaf, intermediate } = chain;
  const two = [leaf, intermediate].map(({ der }) => toPem(der)).join('');
  const malformed = (message: RegExp) => ({ code: 'evidence_malformed', message });

  it('has 32 KiB at most', () => {
    const spaced = (length: number): string => two + ' '.repeat(length - two.length);
    assert.equal(readCertificates(spaced(32_768), 2).length, 2);
    assert.throws(() => readCertificates(spaced(32_769), 2), malformed(/too large/));
  });

  it('has exactly the expected number of certificates, and no other block', () => {
    for (const count of [1, 3]) {
      assert.throws(() => readCertificates(two, count), malformed(/a chain of 2 certificates instead of/));
    }
    const other = two.replaceAll('CERTIFICATE', 'X509 CRL');
    assert.throws(() => readCertificates(other, 2), malformed(/not PEM blocks of certificates/));
    const last = toPem(leaf.der) + toPem(intermediate.der, 'X509 CRL');
    assert.throws(() => readCertificates(last, 2), malformed(/not PEM blocks of certificates/));
  });
});

describe('the profile of a certificate of Intel', () => {
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
  it('is met by the PCK certificate of the platform', () => assert.deepEqual(profileDefects(leaf, NAME), []));
  for (const [name, certificate] of altered) {
    it(`refuses ${name}, and describes the defect`, () => {
      const [defect, ...more] = profileDefects(certificate, NAME);
      assert.match(defect ?? '', /\w+ \w+/);
      assert.deepEqual(more, []);
    });
  }

  it('lets a CA have as many CAs below it as its path length allows', async () => {
    assert.deepEqual(await linkDefects(intermediate, root, 1), []);
    assert.equal((await linkDefects(intermediate, root, 2)).length, 1);
    assert.equal((await linkDefects(leaf, intermediate, 1)).length, 1);
    const unlimited = { ...root, basicConstraints: { ca: true, pathLength: undefined } };
    assert.deepEqual(await linkDefects(intermediate, unlimited, 9), []);
  });
});
