import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { gcmEncryption, type SecretKey } from '#crypto/aead';
import { openSlots, sealSlots, slots } from '#crypto/short-messages';
import { keyOf, wrongKeyOf } from '../support/evidence/engine.ts';
import { hex } from '../support/remote/exchange-fixture.ts';

const AAD_BYTES = 16;
/** The longest ciphertext that is opened or sealed here; how many messages at a time at most. */
const SHORT_BYTES = 512;
const SLOTS = 8;

interface Sealed {
  readonly iv: Uint8Array;
  readonly aad: Uint8Array;
  readonly ciphertext: Uint8Array;
  readonly tag: Uint8Array;
}

type Parts = Pick<Sealed, 'iv' | 'aad'> & { readonly plaintext: Uint8Array };

function open(key: SecretKey, messages: readonly Sealed[]): Buffer[] | undefined {
  for (const [k, { iv, aad, ciphertext, tag }] of messages.entries()) {
    const slot = slots[k]!;
    slot.iv.set(iv);
    slot.tag.set(tag);
    slot.bytes.fill(0xff); // what another message left there
    slot.bytes.set(aad);
    slot.bytes.set(ciphertext, AAD_BYTES);
    slot.size = ciphertext.length;
  }
  return openSlots(key, messages.length)?.map((text) => Buffer.from(text, 'latin1'));
}

function sealed(key: SecretKey, iv: Uint8Array, aad: Uint8Array, plaintext: Uint8Array): Sealed {
  const encryption = gcmEncryption(key, iv, aad);
  const ciphertext = encryption.update(plaintext);
  encryption.final();
  return { iv, aad, ciphertext, tag: encryption.getAuthTag() };
}

/** The same by the slots, all at once. */
function sealTogether(key: SecretKey, all: readonly Parts[]): Sealed[] {
  for (const [k, { iv, aad }] of all.entries()) {
    slots[k]!.iv.set(iv);
    slots[k]!.bytes.fill(0xff); // what another message left there
    slots[k]!.bytes.set(aad);
  }
  sealSlots(
    key,
    all.map(({ plaintext }) => plaintext),
  );
  return all.map(({ iv, aad }, k) => {
    const { bytes, size, tag } = slots[k]!;
    const ciphertext = Buffer.from(bytes.subarray(AAD_BYTES, AAD_BYTES + size));
    return { iv, aad, ciphertext, tag: Buffer.from(tag) };
  });
}

const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const key = bytes(32).map(keyOf);
const message = fc.record({
  iv: bytes(12),
  aad: bytes(AAD_BYTES),
  plaintext: fc.oneof(
    fc.uint8Array({ maxLength: 70 }),
    fc.uint8Array({ minLength: SHORT_BYTES - 20, maxLength: SHORT_BYTES, size: 'max' }),
  ),
});
const messages = fc.array(message, { minLength: 1, maxLength: SLOTS });

describe('AES-256-GCM of short messages', () => {
  it(`opens ${SLOTS} messages of up to ${SHORT_BYTES} bytes at once`, () => {
    const secret = keyOf(Buffer.alloc(32, 7));
    for (const size of [1, 15, 16, 17, 496, 511, 512]) {
      const plaintexts = Array.from({ length: SLOTS }, (_, i) => Buffer.alloc(size, i));
      const all = plaintexts.map((plaintext, i) =>
        sealed(secret, Buffer.alloc(12, i), Buffer.alloc(AAD_BYTES, i), plaintext),
      );
      assert.deepEqual(open(secret, all), plaintexts);
    }
  });

  it('opens together what was sealed one by one, in any number and size', () => {
    fc.assert(
      fc.property(key, messages, (secret, all) => {
        const opened = open(
          secret,
          all.map(({ iv, aad, plaintext }) => sealed(secret, iv, aad, plaintext)),
        );
        assert.deepEqual(
          opened,
          all.map(({ plaintext }) => Buffer.from(plaintext)),
        );
      }),
      { seed: 20261121, numRuns: 300 },
    );
  });

  it('seals messages together to the same bytes as one by one, in any number and size', () => {
    fc.assert(
      fc.property(key, messages, (secret, all) => {
        const one = all.map(({ iv, aad, plaintext }) => sealed(secret, iv, aad, plaintext));
        assert.deepEqual(sealTogether(secret, all), one);
      }),
      { seed: 20261124, numRuns: 300 },
    );
  });

  it('leaves no plaintext in its slots', () => {
    const plaintext = Buffer.alloc(SHORT_BYTES, 'a prompt ');
    const parts = { iv: Buffer.alloc(12), aad: Buffer.alloc(AAD_BYTES), plaintext };
    sealTogether(keyOf(Buffer.alloc(32, 7)), [parts]);
    assert.ok(!slots.some(({ bytes: left }) => left.includes('a prompt')));
  });

  it('refuses all messages if one bit is flipped in the iv, AAD, ciphertext or tag of any of them', () => {
    const where = fc.record({ of: fc.nat(), part: fc.nat(), bit: fc.nat() });
    fc.assert(
      fc.property(key, messages, where, (secret, all, { of, part, bit }) => {
        const good = all.map(({ iv, aad, plaintext }) => sealed(secret, iv, aad, plaintext));
        const harmed = of % good.length;
        const parts = Object.entries(good[harmed]!).filter(([, value]) => value.length > 0);
        const [name, value] = parts[part % parts.length]!;
        const flipped = Buffer.from(value);
        const at = bit % (8 * flipped.length);
        flipped[at >>> 3]! ^= 1 << (at & 7);
        assert.equal(open(secret, good.with(harmed, { ...good[harmed]!, [name]: flipped })), undefined);
        assert.ok(open(secret, good));
      }),
      { seed: 20261121, numRuns: 300 },
    );
  });

  it('refuses a message under another key, and with the AAD of another message', () => {
    const [one, two] = [keyOf(Buffer.alloc(32, 1)), keyOf(Buffer.alloc(32, 2))];
    const [first, second] = [0, 1].map((k) =>
      sealed(one, Buffer.alloc(12, k), Buffer.alloc(16, k), Buffer.from('the same')),
    ) as [Sealed, Sealed];
    assert.equal(open(two, [first]), undefined);
    assert.equal(open(one, [{ ...first, aad: second.aad }]), undefined);
    assert.equal(open(one, [first, second])?.length, 2);
  });

  it(`agrees with Wycheproof in its vectors whose AAD has ${AAD_BYTES} bytes`, () => {
    const file = join(import.meta.dirname, '../vectors/foreign/wycheproof/aes_gcm_test.json');
    const { testGroups } = JSON.parse(readFileSync(file, 'utf8')) as {
      testGroups: { tests: Record<'key' | 'iv' | 'aad' | 'msg' | 'ct' | 'tag' | 'result', string>[] }[];
    };
    const seen = { valid: 0, invalid: 0 };
    for (const t of testGroups.flatMap(({ tests }) => tests)) {
      if (t.key.length !== 64 || t.iv.length !== 24 || t.aad.length !== 32) continue;
      const opened = open(keyOf(hex(t.key)), [
        { iv: hex(t.iv), aad: hex(t.aad), ciphertext: hex(t.ct), tag: hex(t.tag) },
      ]);
      assert.deepEqual(opened, t.result === 'valid' ? [hex(t.msg)] : undefined);
      const parts = { iv: hex(t.iv), aad: hex(t.aad), plaintext: hex(t.msg) };
      const [again] = sealTogether(keyOf(hex(t.key)), [parts]);
      assert.equal(Buffer.concat([again!.ciphertext, again!.tag]).toString('hex'), t.ct + t.tag);
      seen[t.result as 'valid' | 'invalid'] += 1;
    }
    assert.deepEqual(seen, { valid: 1, invalid: 0 });
  });

  it('refuses a key that is not of 32 bytes', () => {
    assert.throws(() => openSlots(wrongKeyOf(Buffer.alloc(16)), 1), { code: 'internal' });
    assert.throws(() => sealSlots(wrongKeyOf(Buffer.alloc(16)), [Buffer.alloc(1)]), { code: 'internal' });
  });
});
