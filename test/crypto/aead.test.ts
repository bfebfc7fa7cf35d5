import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { type SealedParts, SecretKey, SHORT_BYTES } from '#crypto';
import * as portable from '../../lib/crypto/portable.ts';
import { keyOf, ONLY_OPENSSL } from '../support/evidence/engine.ts';
import { wycheproof } from '../support/evidence/wycheproof.ts';
import { hex } from '../support/remote/exchange-fixture.ts';

interface Group {
  readonly keySize: number;
  readonly ivSize: number;
}
type Values = Readonly<Record<'key' | 'iv' | 'aad' | 'msg' | 'ct' | 'tag', string>>;
const VECTORS = wycheproof<Group, Values>('aes_gcm_test');

/** What all engines must make of it, by OpenSSL's own interface: ciphertext and tag in hex. */
function expected(key: Uint8Array, { iv, aad, plaintext }: Parts): string {
  const cipher = createCipheriv('aes-256-gcm', key, iv).setAAD(aad);
  return cipher.update(plaintext).toString('hex') + cipher.final('hex') + cipher.getAuthTag().toString('hex');
}

interface Parts {
  readonly iv: Uint8Array;
  readonly aad: Uint8Array;
  readonly plaintext: Uint8Array;
}

const sealed = (key: Uint8Array, parts: Parts): SealedParts => ({
  iv: Buffer.from(parts.iv).toString('hex'),
  aad: parts.aad,
  body: expected(key, parts),
});
const latin1 = ({ plaintext }: Parts): string => Buffer.from(plaintext).toString('latin1');

function sealInPieces(
  key: SecretKey | portable.SecretKey,
  { iv, aad }: Omit<Parts, 'plaintext'>,
  pieces: readonly Uint8Array[],
): string {
  const sealing = key.seal(iv, aad);
  const ciphertext = Buffer.concat(pieces.map((piece) => sealing.update(piece)));
  sealing.final();
  return ciphertext.toString('hex') + sealing.getAuthTag().toString('hex');
}

const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const message = fc.record({
  iv: bytes(12),
  aad: bytes(16),
  plaintext: fc.oneof(
    { weight: 4, arbitrary: fc.uint8Array({ maxLength: 70 }) },
    fc.uint8Array({ minLength: SHORT_BYTES - 20, maxLength: SHORT_BYTES + 20, size: 'max' }),
  ),
});
const messages = fc.array(message, { minLength: 1, maxLength: 20 });

describe('AES-256-GCM', () => {
  it('agrees with Wycheproof for 256-bit keys and 96-bit ivs', () => {
    const seen = { valid: 0, invalid: 0, acceptable: 0 };
    for (const { group, test: t } of VECTORS) {
      if (group.keySize !== 256 || group.ivSize !== 96) continue;
      const aad = hex(t.aad);
      for (const key of [keyOf(hex(t.key)), new portable.SecretKey(hex(t.key))]) {
        const opened = key.open([{ iv: t.iv, aad, body: t.ct + t.tag }]);
        const wanted = t.result === 'valid' ? [hex(t.msg).toString('latin1')] : 'not authentic';
        assert.deepEqual(opened, wanted, `tcId ${t.tcId}`);
        if (t.result === 'invalid') continue;
        const parts = { iv: hex(t.iv), aad };
        assert.equal(sealInPieces(key, parts, [hex(t.msg)]), t.ct + t.tag, `tcId ${t.tcId}`);
      }
      seen[t.result] += 1;
    }
    assert.deepEqual(seen, { valid: 39, invalid: 27, acceptable: 0 });
  });

  it('refuses keys and ivs of every other length in Wycheproof', () => {
    const good = keyOf(Buffer.alloc(32));
    const others = VECTORS.filter(({ group }) => group.keySize !== 256 || group.ivSize !== 96);
    assert.equal(others.length, 250);
    for (const { group, test: t } of others) {
      const [iv, aad] = [hex(t.iv), hex(t.aad)];
      if (group.keySize !== 256) assert.throws(() => keyOf(hex(t.key)), { code: 'internal' });
      if (group.ivSize === 96) continue;
      for (const any of [aad, Buffer.alloc(16)])
        assert.equal(good.open([{ iv: t.iv, aad: any, body: t.ct + t.tag }]), 'malformed');
      assert.throws(() => good.seal(iv, aad), { code: 'internal' });
      assert.throws(() => good.sealShort(iv, Buffer.alloc(16), hex(t.msg)), { code: 'internal' });
    }
  });

  it('refuses what is not hex of an iv, a ciphertext and a whole tag, short and long', () => {
    const key = keyOf(Buffer.alloc(32, 1));
    for (const size of [0, 9, SHORT_BYTES, SHORT_BYTES + 1, 5000]) {
      const parts = { iv: Buffer.alloc(12, 2), aad: Buffer.alloc(16, 3), plaintext: Buffer.alloc(size) };
      const good = sealed(Buffer.alloc(32, 1), parts);
      const { iv, body } = good;
      assert.deepEqual(key.open([good]), [latin1(parts)]);
      for (const bad of [
        ...['', iv.slice(1), iv.slice(2), `${iv}0`, `${iv}00`, `${iv.slice(1)}g`].map((iv) => ({ iv })),
        ...[`${body}0`, body.slice(1), `g${body.slice(1)}`, `${body.slice(1)}g`].map((body) => ({ body })),
        ...[0, 2, 8, 24, 30].map((digits) => ({ body: body.slice(0, digits) })),
      ]) {
        assert.equal(key.open([{ ...good, ...bad }]), 'malformed', `${size} ${JSON.stringify(bad)}`);
        assert.equal(key.open([good, { ...good, ...bad }]), 'malformed');
      }
      if (size > 0) assert.equal(key.open([{ ...good, body: body.slice(2) }]), 'not authentic');
    }
  });

  it('seals to the same bytes in either engine, in whatever whole blocks the plaintext comes', () => {
    const pieces = fc.array(fc.nat(4), { maxLength: 6 });
    fc.assert(
      fc.property(bytes(32), message, pieces, (secret, parts, sizes) => {
        const wanted = expected(secret, parts);
        const cut: Uint8Array[] = [];
        let at = 0;
        for (const blocks of sizes) {
          if (at + 16 * blocks > parts.plaintext.length) break;
          cut.push(parts.plaintext.subarray(at, at + 16 * blocks));
          at += 16 * blocks;
        }
        cut.push(parts.plaintext.subarray(at));
        const { iv, aad, plaintext } = parts;
        for (const key of [keyOf(secret), new portable.SecretKey(Uint8Array.from(secret))]) {
          assert.equal(sealInPieces(key, parts, cut), wanted);
          if (plaintext.length <= SHORT_BYTES) assert.equal(key.sealShort(iv, aad, plaintext), wanted);
        }
      }),
      { seed: 20261124, numRuns: 300 },
    );
  });

  it('refuses all messages if one bit is flipped in the iv, AAD, ciphertext or tag of any of them', () => {
    const where = fc.record({ of: fc.nat(), part: fc.nat(2), bit: fc.nat() });
    fc.assert(
      fc.property(bytes(32), messages, where, (secret, all, { of, part, bit }) => {
        const good = all.map((parts) => sealed(secret, parts));
        const harmed = of % good.length;
        const { iv, aad, body } = good[harmed]!;
        const values = [hex(iv), Buffer.from(aad), hex(body)];
        const at = bit % (8 * values[part]!.length);
        values[part]![at >>> 3]! ^= 1 << (at & 7);
        const flipped = { iv: values[0]!.toString('hex'), aad: values[1]!, body: values[2]!.toString('hex') };
        for (const key of [keyOf(secret), new portable.SecretKey(Uint8Array.from(secret))]) {
          assert.equal(key.open(good.with(harmed, flipped)), 'not authentic');
          assert.deepEqual(key.open(good), all.map(latin1));
        }
      }),
      { seed: 20261121, numRuns: 300 },
    );
  });

  it('refuses a message under another key, and with the AAD of another message', () => {
    const secret = Buffer.alloc(32, 1);
    const [one, two] = [keyOf(secret), keyOf(Buffer.alloc(32, 2))];
    const same = (k: number): SealedParts => {
      const plaintext = Buffer.from('the same');
      return sealed(secret, { iv: Buffer.alloc(12, k), aad: Buffer.alloc(16, k), plaintext });
    };
    const [first, second] = [same(0), same(1)];
    assert.equal(two.open([first]), 'not authentic');
    assert.equal(one.open([{ ...first, aad: second.aad }]), 'not authentic');
    assert.deepEqual(one.open([first, second]), ['the same', 'the same']);
  });

  it('refuses to seal as short what is longer, or has another AAD', ONLY_OPENSSL('noble takes any'), () => {
    const key = keyOf(Buffer.alloc(32));
    const iv = Buffer.alloc(12);
    for (const [aad, size] of [
      [16, SHORT_BYTES + 1],
      [15, 1],
      [17, 1],
    ] as const) {
      assert.throws(() => key.sealShort(iv, Buffer.alloc(aad), Buffer.alloc(size)), { code: 'internal' });
    }
  });

  it('refuses a piece after one that ends within a block, where its place would be lost', () => {
    const sealing = new portable.SecretKey(Buffer.alloc(32)).seal(Buffer.alloc(12), Buffer.alloc(16));
    sealing.update(Buffer.alloc(17));
    assert.throws(() => sealing.update(Buffer.alloc(16)), { code: 'internal' });
  });

  it(
    'wipes what a long message decrypts to, if it is not authentic',
    ONLY_OPENSSL('it decrypts first'),
    (t) => {
      const key = keyOf(Buffer.alloc(32, 1));
      const [iv, aad, plaintext] = [Buffer.alloc(12), Buffer.alloc(16), Buffer.alloc(5000, 'a prompt ')];
      const good = sealed(Buffer.alloc(32, 1), { iv, aad, plaintext });
      const prototype = Object.getPrototypeOf(createDecipheriv('aes-256-gcm', Buffer.alloc(32), iv));
      const update = t.mock.method(prototype, 'update');
      assert.equal(key.open([{ ...good, body: `${good.body.slice(0, -2)}${'00'}` }]), 'not authentic');
      const decrypted = update.mock.calls[0]?.result as Buffer;
      assert.equal(decrypted.length, 5000);
      assert.ok(decrypted.every((byte) => byte === 0));
    },
  );
});

describe('a key', () => {
  it('wipes the bytes that it is made of, also if they are too few or too many', () => {
    for (const length of [16, 31, 32, 33, 64]) {
      const given = Buffer.alloc(length, 7);
      if (length === 32) new SecretKey(given);
      else assert.throws(() => new SecretKey(given), { code: 'internal' });
      assert.deepEqual(given, Buffer.alloc(length));
    }
  });

  it('is not shown by inspection, and hashes as HMAC-SHA256', () => {
    const key = keyOf(Buffer.alloc(32, 'k'));
    assert.equal(inspect(key, { showHidden: true, depth: 9 }), 'SecretKey {}');
    assert.equal(JSON.stringify(key), '{}');
    const mac = createHmac('sha256', Buffer.alloc(32, 'k')).update('é').digest('hex');
    assert.equal(key.hmacSha256('é'), mac);
  });
});
