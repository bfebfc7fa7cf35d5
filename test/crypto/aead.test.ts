import assert from 'node:assert/strict';
import { createSecretKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { gcmDecrypt, gcmEncryption } from '#crypto/aead';
import { hex } from '../support/exchange-fixture.ts';
import { portableDecrypt, portableEncryption } from '../support/portable-aead.ts';

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
function encryptAll(key: KeyObject, iv: Buffer, aad: Buffer, pieces: readonly Uint8Array[]) {
  const encryption = gcmEncryption(key, iv, aad);
  const ciphertext = pieces.map((piece) => encryption.update(piece));
  return { ciphertext: Buffer.concat([...ciphertext, encryption.final()]), tag: encryption.getAuthTag() };
}

describe('AES-256-GCM', () => {
  it('agrees with Wycheproof on 256-bit keys and 96-bit ivs', () => {
    let valid = 0;
    let invalid = 0;
    for (const { keySize, ivSize, tests } of testGroups) {
      if (keySize !== 256 || ivSize !== 96) continue;
      for (const t of tests) {
        const [key, iv, aad] = [createSecretKey(hex(t.key)), hex(t.iv), hex(t.aad)];
        for (const decrypt of [gcmDecrypt, portableDecrypt]) {
          const opened = decrypt(key, iv, aad, hex(t.ct), hex(t.tag));
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

  it('refuses every other key and iv length of Wycheproof', () => {
    let refused = 0;
    for (const { keySize, ivSize, tests } of testGroups) {
      if (keySize === 256 && ivSize === 96) continue;
      for (const t of tests) {
        const [key, iv, aad] = [createSecretKey(hex(t.key)), hex(t.iv), hex(t.aad)];
        assert.throws(() => gcmDecrypt(key, iv, aad, hex(t.ct), hex(t.tag)), { code: 'internal' });
        assert.throws(() => gcmEncryption(key, iv, aad), { code: 'internal' });
        refused += 1;
      }
    }
    assert.equal(refused, 250);
  });

  it('refuses truncated tags, down to none', () => {
    const [key, iv, aad] = [createSecretKey(Buffer.alloc(32, 1)), Buffer.alloc(12, 2), Buffer.alloc(16, 3)];
    const { ciphertext, tag } = encryptAll(key, iv, aad, [Buffer.from('truncated')]);
    for (let length = 0; length < 16; length++) {
      const opened = gcmDecrypt(key, iv, aad, ciphertext, tag.subarray(0, length));
      assert.equal(opened, undefined, `${length} bytes`);
    }
    assert.ok(gcmDecrypt(key, iv, aad, ciphertext, tag));
  });

  it('produces the bytes of @noble/ciphers, however the plaintext is cut', () => {
    const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
    fc.assert(
      fc.property(
        bytes(32).map((raw) => createSecretKey(raw)),
        bytes(12).map((raw) => Buffer.from(raw)),
        bytes(16).map((raw) => Buffer.from(raw)),
        fc.array(fc.uint8Array({ maxLength: 70 }), { maxLength: 6 }),
        (key, iv, aad, pieces) => {
          const ours = encryptAll(key, iv, aad, pieces);
          const portable = portableEncryption(key, iv, aad);
          const theirs = Buffer.concat(pieces.map((piece) => portable.update(piece)));
          assert.deepEqual(ours, { ciphertext: theirs, tag: portable.tag() });
          for (const decrypt of [gcmDecrypt, portableDecrypt]) {
            assert.deepEqual(decrypt(key, iv, aad, ours.ciphertext, ours.tag), Buffer.concat(pieces));
          }
        },
      ),
      { seed: 20261121, numRuns: 200 },
    );
  });
});
