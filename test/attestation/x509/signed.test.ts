/** The algorithms of certificates and CRLs: each with exactly the parameters that its issuers use. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isPssSha384, type PssParameters, parseSigned } from '../../../lib/attestation/x509/signed.ts';
import { contextTag } from '../../../lib/crypto/der.ts';
import { bitString, element, integer, oid, sequence } from '../../../simulator/pki/der.ts';

const NULL = element(0x05, new Uint8Array(0));
const signedWith = (...algorithm: readonly Uint8Array[]) =>
  parseSigned(sequence(sequence(), sequence(...algorithm), bitString(Uint8Array.of(1)))).signed
    .signatureAlgorithm;

describe('a signed object', () => {
  it('has a signature of whole bytes, and nothing behind it', () => {
    const signed = (...end: readonly Uint8Array[]) =>
      parseSigned(sequence(sequence(), sequence(oid('1.2.840.10045.4.3.2')), ...end)).signed.signature;
    assert.equal(Buffer.from(signed(bitString(Uint8Array.of(0x0e)))).toString('hex'), '0e');
    for (const end of [[bitString(Uint8Array.of(0x0e), 1)], [bitString(Uint8Array.of(0x0e)), NULL]]) {
      assert.throws(() => signed(...end), { code: 'evidence_malformed' });
    }
  });
});

describe('signature algorithms', () => {
  it('have no parameters for ECDSA (RFC 5758 3.2)', () => {
    for (const [dotted, name] of [
      ['1.2.840.10045.4.3.2', 'ecdsa-with-SHA256'],
      ['1.2.840.10045.4.3.3', 'ecdsa-with-SHA384'],
    ] as const) {
      assert.equal(signedWith(oid(dotted)).name, name);
      assert.throws(() => signedWith(oid(dotted), NULL), { code: 'evidence_malformed' });
    }
  });

  it('have their object identifier as their name if the program does not know them', () => {
    assert.equal(signedWith(oid('1.2.840.113549.1.1.11'), NULL).name, '1.2.840.113549.1.1.11');
  });

  it('pass for RSASSA-PSS only with the parameters of AMD: SHA-384, MGF1 with it, salt 48, trailer 1', () => {
    const amd: PssParameters = {
      hash: '2.16.840.1.101.3.4.2.2',
      maskGeneration: '1.2.840.113549.1.1.8',
      maskHash: '2.16.840.1.101.3.4.2.2',
      saltLength: 48,
      trailer: 1,
    };
    const accepted = (pss: PssParameters | undefined): boolean => isPssSha384({ oid: '', name: '', pss });
    assert.ok(accepted(amd));
    assert.ok(!accepted(undefined));
    for (const other of [
      { hash: '2.16.840.1.101.3.4.2.1' },
      { maskGeneration: '1.2.840.113549.1.1.9' },
      { maskHash: '1.3.14.3.2.26' },
      { saltLength: 47 },
      { saltLength: 49 },
      { saltLength: 20 },
      { trailer: 2 },
    ]) {
      assert.ok(!accepted({ ...amd, ...other }), JSON.stringify(other));
    }
  });

  describe('the parameters of RSASSA-PSS', () => {
    const SHA384 = oid('2.16.840.1.101.3.4.2.2');
    const wrapped = (n: number, ...content: readonly Uint8Array[]) =>
      element(contextTag(n, true), ...content);
    const read = (...parameters: readonly Uint8Array[]) =>
      signedWith(oid('1.2.840.113549.1.1.10'), sequence(...parameters)).pss;
    const SHA1_BY_DEFAULT: PssParameters = {
      hash: '1.3.14.3.2.26',
      maskGeneration: '1.2.840.113549.1.1.8',
      maskHash: '1.3.14.3.2.26',
      saltLength: 20,
      trailer: 1,
    };

    it('have the defaults of RFC 4055 3.1 if they are left out', () => {
      assert.deepEqual(read(), SHA1_BY_DEFAULT);
      const mask = sequence(oid('1.2.840.113549.1.1.9'), sequence(SHA384, NULL));
      const named = '2.16.840.1.101.3.4.2.2';
      for (const [parameter, changed] of [
        [wrapped(0, sequence(SHA384)), { hash: named }],
        [wrapped(1, mask), { maskGeneration: '1.2.840.113549.1.1.9', maskHash: named }],
        [wrapped(2, integer(1024)), { saltLength: 1024 }],
        [wrapped(3, integer(255)), { trailer: 255 }],
      ] as const) {
        assert.deepEqual(read(parameter), { ...SHA1_BY_DEFAULT, ...changed });
      }
    });

    it('are refused out of order, twice, beyond bounds, or with other algorithm parameters than NULL', () => {
      const one = integer(1);
      const hash = (...parameters: readonly Uint8Array[]) => wrapped(0, sequence(SHA384, ...parameters));
      assert.deepEqual(read(hash()), read(hash(NULL)));
      for (const parameters of [
        [wrapped(2, integer(1025))],
        [wrapped(3, integer(256))],
        [wrapped(4, one)],
        [wrapped(3, one), wrapped(2, one)],
        [wrapped(2, one), wrapped(2, one)],
        [wrapped(2, one, one)],
        [hash(element(0x05, Uint8Array.of(0)))],
        [hash(one)],
        [hash(NULL, NULL)],
      ]) {
        assert.throws(() => read(...parameters), { code: 'evidence_malformed' });
      }
      const pss = oid('1.2.840.113549.1.1.10');
      assert.throws(() => signedWith(pss), { code: 'evidence_malformed' });
      assert.throws(() => signedWith(pss, sequence(), NULL), { code: 'evidence_malformed' });
    });
  });
});
