import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { type AeadEngine, nativeAead } from '../../lib/crypto/aead.ts';
import { portableAead } from '../../lib/crypto/portable-aead.ts';
import { hex } from '../support/exchange-fixture.ts';

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
const ENGINES: readonly AeadEngine[] = [nativeAead, portableAead];

function encryptAll(engine: AeadEngine, key: Buffer, iv: Buffer, aad: Buffer, pieces: readonly Uint8Array[]) {
  const encryption = engine.withKey(createSecretKey(key)).encrypt(iv, aad);
  const ciphertext = Buffer.concat(pieces.map((piece) => encryption.update(piece)));
  return { ciphertext, tag: encryption.final() };
}

for (const engine of ENGINES) {
  describe(`AES-256-GCM, ${engine.name} engine`, () => {
    it('agrees with Wycheproof on 256-bit keys and 96-bit ivs', () => {
      let valid = 0;
      let invalid = 0;
      for (const { keySize, ivSize, tests } of testGroups) {
        if (keySize !== 256 || ivSize !== 96) continue;
        for (const t of tests) {
          const [key, iv, aad] = [hex(t.key), hex(t.iv), hex(t.aad)];
          const opened = engine.withKey(createSecretKey(key)).decrypt(iv, aad, hex(t.ct), hex(t.tag));
          if (t.result === 'valid') {
            valid += 1;
            assert.equal(opened?.toString('hex'), t.msg, `tcId ${t.tcId}`);
            const { ciphertext, tag } = encryptAll(engine, key, iv, aad, [hex(t.msg)]);
            assert.equal(ciphertext.toString('hex') + tag.toString('hex'), t.ct + t.tag, `tcId ${t.tcId}`);
          } else {
            invalid += 1;
            assert.equal(opened, undefined, `tcId ${t.tcId}`);
          }
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
          assert.throws(() => engine.withKey(key).decrypt(iv, aad, hex(t.ct), hex(t.tag)), {
            code: 'internal',
          });
          assert.throws(() => engine.withKey(key).encrypt(iv, aad), { code: 'internal' });
          refused += 1;
        }
      }
      assert.equal(refused, 250);
    });

    it('refuses truncated tags, down to none', () => {
      const [key, iv, aad] = [Buffer.alloc(32, 1), Buffer.alloc(12, 2), Buffer.alloc(16, 3)];
      const { ciphertext, tag } = encryptAll(engine, key, iv, aad, [Buffer.from('truncated')]);
      for (let length = 0; length < 16; length++) {
        const opened = engine
          .withKey(createSecretKey(key))
          .decrypt(iv, aad, ciphertext, tag.subarray(0, length));
        assert.equal(opened, undefined, `${length} bytes`);
      }
      assert.ok(engine.withKey(createSecretKey(key)).decrypt(iv, aad, ciphertext, tag));
    });
  });
}

describe('the two engines', () => {
  const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });

  it('produce the same bytes, however the plaintext is cut', () => {
    fc.assert(
      fc.property(
        bytes(32),
        bytes(12),
        bytes(16),
        fc.array(fc.uint8Array({ maxLength: 70 }), { maxLength: 6 }),
        (key, iv, aad, pieces) => {
          const [native, portable] = ENGINES.map((engine) =>
            encryptAll(engine, Buffer.from(key), Buffer.from(iv), Buffer.from(aad), pieces),
          );
          assert.deepEqual(native, portable);
          const opened = ENGINES.map((engine) =>
            engine.withKey(createSecretKey(key)).decrypt(iv, aad, native!.ciphertext, native!.tag),
          );
          assert.deepEqual(opened, [Buffer.concat(pieces), Buffer.concat(pieces)]);
        },
      ),
      { seed: 20261121, numRuns: 200 },
    );
  });
});
