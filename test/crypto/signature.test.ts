import assert from 'node:assert/strict';
import { constants, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { describe, it } from 'node:test';
import { p384 } from '@noble/curves/nist.js';
import fc from 'fast-check';
import { multiplyBaseP384 } from '#crypto';
import {
  type EcCurve,
  type EcdsaHash,
  type PublicKey,
  publicKeyFromPoint,
  publicKeyFromSpki,
  verifyEcdsa,
  verifyRsaPssSha384,
} from '../../lib/crypto/signature.ts';
import { malformed } from '../support/evidence/readers.ts';
import { fromHex, wycheproof } from '../support/evidence/wycheproof.ts';

/** Our key of an OpenSSL one. */
const keyOf = (key: KeyObject): PublicKey => publicKeyFromSpki(key.export({ type: 'spki', format: 'der' }));

interface EcdsaGroup {
  readonly publicKeyDer: string;
  readonly publicKey: { readonly uncompressed: string };
}

const SETS: readonly { file: string; curve: EcCurve; hash: EcdsaHash; tests: number; size: number }[] = [
  { file: 'ecdsa_secp256r1_sha256_test', curve: 'P-256', hash: 'sha256', tests: 484, size: 32 },
  { file: 'ecdsa_secp384r1_sha384_test', curve: 'P-384', hash: 'sha384', tests: 504, size: 48 },
];

describe('an ECDSA signature', () => {
  it('is valid only under a key on P-256 or P-384, and only if ECDSA made it', async () => {
    const data = Buffer.from('data');
    const verified = (publicKey: KeyObject, signature: Uint8Array, encoding: 'der' | 'raw' = 'der') =>
      verifyEcdsa({ key: keyOf(publicKey), hash: 'sha256', encoding, data, signature });
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
    assert.equal(await verified(rsa.publicKey, sign('sha256', data, rsa.privateKey)), false);
    const ed25519 = generateKeyPairSync('ed25519');
    assert.equal(await verified(ed25519.publicKey, sign(null, data, ed25519.privateKey)), false);
    for (const [namedCurve, holds] of [
      ['P-256', true],
      ['P-384', true],
      ['secp256k1', false],
      ['P-521', false],
    ] as const) {
      const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve });
      assert.equal(await verified(publicKey, sign('sha256', data, privateKey)), holds, namedCurve);
      const raw = sign('sha256', data, { key: privateKey, dsaEncoding: 'ieee-p1363' });
      assert.equal(await verified(publicKey, raw, 'raw'), holds, namedCurve);
    }
  });

  for (const { file, curve, hash, tests: count, size } of SETS) {
    const tests = wycheproof<EcdsaGroup, { msg: string; sig: string }>(file);

    it(`in DER on ${curve} is judged as in all ${count} vectors of Wycheproof`, async () => {
      assert.equal(tests.length, count);
      for (const { group, test } of tests) {
        const key = publicKeyFromSpki(fromHex(group.publicKeyDer));
        assert.equal(key.curve, curve);
        const point = fromHex(group.publicKey.uncompressed);
        assert.deepEqual(publicKeyFromPoint(curve, point).point, key.point);
        const [data, signature] = [fromHex(test.msg), fromHex(test.sig)];
        const valid = await verifyEcdsa({ key, hash, encoding: 'der', data, signature });
        assert.equal(valid, test.result === 'valid', `tcId ${test.tcId} ${test.comment}`);
      }
    });

    it(`as raw r || s on ${curve} is refused at another length, and with a number of zero or beyond the order`, async () => {
      const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: curve });
      const data = Buffer.from('data');
      const good = sign(hash, data, { key: privateKey, dsaEncoding: 'ieee-p1363' });
      const [r, s] = [good.subarray(0, size), good.subarray(size)];
      const [zero, most] = [Buffer.alloc(size), Buffer.alloc(size, 0xff)];
      const verified = (...parts: Uint8Array[]) =>
        verifyEcdsa({ key: keyOf(publicKey), hash, encoding: 'raw', data, signature: Buffer.concat(parts) });
      assert.equal(await verified(r, s), true);
      for (const parts of [[r], [r, s, zero], [r, s.subarray(1)], [zero, s], [r, zero], [most, s], [r, most]])
        assert.equal(await verified(...parts), false);
    });
  }
});

describe('a raw public key', () => {
  it('is refused if its point is not on its curve', () => {
    const { point = new Uint8Array() } = keyOf(generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey);
    const moved = Uint8Array.from(point);
    moved[96] = (moved[96] as number) ^ 1;
    assert.throws(() => publicKeyFromPoint('P-384', moved), malformed);
    assert.throws(() => publicKeyFromPoint('P-256', point), malformed);
    assert.throws(() => publicKeyFromPoint('P-384', new Uint8Array(97)), malformed);
  });
});

describe('RSASSA-PSS with SHA-384', () => {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = keyOf(publicKey);
  const data = new Uint8Array([1, 2, 3]);
  const signed = (saltLength: number, hash = 'sha384'): Uint8Array =>
    sign(hash, data, { key: privateKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength });

  it('accepts a salt of 48 bytes and no other (docs/protocol/attestation.md 7)', async () => {
    assert.equal(await verifyRsaPssSha384(key, data, signed(48)), true);
    for (const saltLength of [0, 20, 32, 47, 49, 64]) {
      assert.equal(await verifyRsaPssSha384(key, data, signed(saltLength)), false, `salt ${saltLength}`);
    }
  });

  it('refuses a key that is bound to PSS (RFC 4055 3.1)', async () => {
    const bound = generateKeyPairSync('rsa-pss', { modulusLength: 2048 });
    const padding = constants.RSA_PKCS1_PSS_PADDING;
    const signature = sign('sha384', data, { key: bound.privateKey, padding, saltLength: 48 });
    assert.equal(await verifyRsaPssSha384(keyOf(bound.publicKey), data, signature), false);
  });

  it('refuses a signature without its leading zero (RFC 8017 8.1.2)', async () => {
    let withZero = signed(48);
    while (withZero[0] !== 0) withZero = signed(48); // one of 256 begins so
    assert.equal(await verifyRsaPssSha384(key, data, withZero), true);
    assert.equal(await verifyRsaPssSha384(key, data, withZero.subarray(1)), false);
  });

  it('refuses another hash, padding, key type, altered data and short signatures', async () => {
    assert.equal(await verifyRsaPssSha384(key, data, signed(48, 'sha256')), false);
    assert.equal(await verifyRsaPssSha384(key, data, sign('sha384', data, privateKey)), false);
    assert.equal(await verifyRsaPssSha384(key, new Uint8Array([1, 2, 4]), signed(48)), false);
    assert.equal(await verifyRsaPssSha384(key, data, signed(48).subarray(1)), false);
    const ec = generateKeyPairSync('ec', { namedCurve: 'P-384' });
    const byEcdsa = sign('sha384', data, ec.privateKey);
    assert.equal(await verifyRsaPssSha384(keyOf(ec.publicKey), data, byEcdsa), false);
  });
});

const { n: ORDER } = p384.Point.CURVE();
const oracle = (scalar: bigint): Buffer => Buffer.from(p384.Point.BASE.multiply(scalar).toBytes(false));

describe('the product of the P-384 base point', () => {
  it('agrees with an independent library for any scalar', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: ORDER - 1n }), (k) => {
        assert.deepEqual(Buffer.from(multiplyBaseP384(k)), oracle(k));
      }),
      { seed: 20261201, numRuns: 25 },
    );
  });

  it('agrees for the smallest and the largest scalar, and scalars outside of these are refused', () => {
    for (const k of [1n, ORDER - 1n]) assert.deepEqual(Buffer.from(multiplyBaseP384(k)), oracle(k));
    for (const bad of [0n, ORDER, -1n]) assert.throws(() => multiplyBaseP384(bad));
  });
});
