import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { gcmDecrypt, gcmEncryption, type SecretKey } from '#crypto/aead';
import * as portable from '../../lib/crypto/portable/aead.ts';
import { keyOf, wrongKeyOf } from '../support/evidence/engine.ts';
import { hex } from '../support/remote/exchange-fixture.ts';

interface Wycheproof {
  readonly testGroups: readonly {
    readonly keySize: number;
    readonly ivSize: number;
    readonly tests: readonly {
      readonly tcId: number;
      readonly key: string;
      readonly iv: string;
      readonly aad: string;
      readonly msg: string;
      readonly ct: string;
      readonly tag: string;
      readonly result: 'valid' | 'invalid';
    }[];
  }[];
}

const file = join(import.meta.dirname, '../vectors/foreign/wycheproof/aes_gcm_test.json');
const { testGroups } = JSON.parse(readFileSync(file, 'utf8')) as Wycheproof;
/** Ciphertext and tag of a plaintext that is given in pieces. */
function encryptAll(key: SecretKey, iv: Buffer, aad: Buffer, pieces: readonly Uint8Array[]) {
  const encryption = gcmEncryption(key, iv, aad);
  const ciphertext = Buffer.concat(pieces.map((piece) => encryption.update(piece)));
  encryption.final();
  return { ciphertext, tag: encryption.getAuthTag() };
}

describe('AES-256-GCM', () => {
  it('agrees with Wycheproof for 256-bit keys and 96-bit ivs', () => {
    let valid = 0;
    let invalid = 0;
    for (const { keySize, ivSize, tests } of testGroups) {
      if (keySize !== 256 || ivSize !== 96) continue;
      for (const t of tests) {
        const [key, iv, aad] = [keyOf(hex(t.key)), hex(t.iv), hex(t.aad)];
        const open = [
          () => gcmDecrypt(key, iv, aad, hex(t.ct), hex(t.tag)),
          () => portable.gcmDecrypt(portable.secretKey(hex(t.key)), iv, aad, hex(t.ct), hex(t.tag)),
        ];
        for (const opened of open.map((by) => by())) {
          assert.equal(opened?.toString('hex'), t.result === 'valid' ? t.msg : undefined, `tcId ${t.tcId}`);
        }
        if (t.result === 'valid') {
          valid += 1;
          const { ciphertext, tag } = encryptAll(key, iv, aad, [hex(t.msg)]);
          assert.equal(ciphertext.toString('hex') + tag.toString('hex'), t.ct + t.tag, `tcId ${t.tcId}`);
        } else invalid += 1;
      }
    }
    assert.deepEqual({ valid, invalid }, { valid: 39, invalid: 27 });
  });

  it('refuses keys and ivs of every other length in Wycheproof', () => {
    let refused = 0;
    for (const { keySize, ivSize, tests } of testGroups) {
      if (keySize === 256 && ivSize === 96) continue;
      for (const t of tests) {
        const [key, iv, aad] = [() => wrongKeyOf(hex(t.key)), hex(t.iv), hex(t.aad)];
        assert.throws(() => gcmDecrypt(key(), iv, aad, hex(t.ct), hex(t.tag)), { code: 'internal' });
        assert.throws(() => gcmEncryption(key(), iv, aad), { code: 'internal' });
        refused += 1;
      }
    }
    assert.equal(refused, 250);
  });

  it('refuses tags of fewer than 16 bytes, down to none', () => {
    const [key, iv, aad] = [keyOf(Buffer.alloc(32, 1)), Buffer.alloc(12, 2), Buffer.alloc(16, 3)];
    const { ciphertext, tag } = encryptAll(key, iv, aad, [Buffer.from('truncated')]);
    for (let length = 0; length < 16; length++) {
      const opened = gcmDecrypt(key, iv, aad, ciphertext, tag.subarray(0, length));
      assert.equal(opened, undefined, `${length} bytes`);
    }
    assert.ok(gcmDecrypt(key, iv, aad, ciphertext, tag));
  });

  it('gives the same bytes as the portable engine, in whatever pieces the plaintext comes', () => {
    const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
    fc.assert(
      fc.property(
        bytes(32),
        bytes(12).map((raw) => Buffer.from(raw)),
        bytes(16).map((raw) => Buffer.from(raw)),
        fc.array(fc.uint8Array({ maxLength: 70 }), { maxLength: 6 }),
        (secret, iv, aad, pieces) => {
          const ours = encryptAll(keyOf(secret), iv, aad, pieces);
          const key = portable.secretKey(Uint8Array.from(secret));
          const encryption = portable.gcmEncryption(key, iv, aad);
          const theirs = Buffer.concat(pieces.map((piece) => encryption.update(piece)));
          encryption.final();
          assert.deepEqual(ours, { ciphertext: theirs, tag: encryption.getAuthTag() });
          for (const opened of [
            gcmDecrypt(keyOf(secret), iv, aad, ours.ciphertext, ours.tag),
            portable.gcmDecrypt(key, iv, aad, ours.ciphertext, ours.tag),
          ]) {
            assert.deepEqual(opened, Buffer.concat(pieces));
          }
        },
      ),
      { seed: 20261121, numRuns: 200 },
    );
  });
});
