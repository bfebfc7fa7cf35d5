import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAIN_ROWS, readPckChain, readSignerChain } from '../../../lib/attestation/tdx/chain.ts';
import type { Certificate } from '../../../lib/attestation/x509.ts';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { NOW, tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const { quote } = tdxPlatform();
const [leaf, intermediate, root] = readPckChain(
  quote.signedData.certificationData.qeReportCertificationData.pckCertificateChainData.pckCertChain,
);

describe('a chain in PEM', () => {
  const pem = [leaf, intermediate].map(({ der }) => toPem(der));
  const two = pem.join('');
  const malformed = (message: RegExp) => ({ code: 'evidence_malformed', message });

  it('has 32 KiB at most', () => {
    const spaced = (length: number): string => two + ' '.repeat(length - two.length);
    assert.equal(readSignerChain(spaced(32_768)).length, 2);
    assert.throws(() => readSignerChain(spaced(32_769)), malformed(/too large/));
  });

  it('has exactly the expected number of certificates', () => {
    for (const text of [pem[0] ?? '', two + two])
      assert.throws(() => readSignerChain(text), malformed(/a chain of [14] certificates instead of 2/));
  });
});

describe('the profile of a certificate of Intel', () => {
  const judge = (changed: Certificate) =>
    CHAIN_ROWS.find(({ id }) => id === 'tdx.pck.profile')?.judge({
      chain: [changed, intermediate, root],
      pinned: root,
      now: NOW,
    });
  const { signatureAlgorithm, publicKey, subject } = leaf;
  const twoNames = [...subject.attributes, { type: 'CN', value: 'Intel SGX PCK Certificate' }];
  const altered: Readonly<Record<string, Partial<Certificate>>> = {
    'another X.509 version': { version: 1 },
    'another signature algorithm': {
      signatureAlgorithm: { ...signatureAlgorithm, name: 'ecdsa-with-SHA384' },
    },
    'a key on another curve': { publicKey: { ...publicKey, curve: 'P-384' } },
    'a key that is not elliptic': { publicKey: { ...publicKey, curve: undefined } },
    'two common names': { subject: { ...subject, attributes: twoNames } },
  };
  for (const [name, changes] of Object.entries(altered)) {
    it(`refuses ${name}, and describes the one defect`, async () => {
      const { outcome, found } = (await judge({ ...leaf, ...changes })) ?? {};
      assert.equal(outcome, 'fail');
      assert.match(found ?? '', /^[^;]*\w+ \w+[^;]*$/);
    });
  }
});
