import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { shardKeyOf } from '../../lib/pipeline/inject-salt.ts';
import { jsonBody, prepare } from '../support/remote/sealing.ts';
import shards from '../vectors/inference/shard-keys.json' with { type: 'json' };

const { vectors, bodies, errors } = shards;

const generated = (length: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, i) => 97 + ((i * 31 + Math.floor(i / 64)) % 26)));

/** The key of a prompt of letters. */
function keyOf(salt: string, prompt: Buffer): string {
  const bytes = Buffer.from(`"${prompt}"`);
  const value = { name: 'prompt', before: Buffer.alloc(0), bytes, isPlain: false };
  return shardKeyOf([value], Buffer.from(salt));
}

const shardKey = (body: string, configured: string | undefined) =>
  prepare(jsonBody({ salted: true }), body, configured).shardKey;

describe('the shard key', () => {
  for (const { kind, length, salt, expected } of vectors) {
    it(`has ${expected.length} characters for ${length} ${kind} bytes, as the vector says`, () => {
      const content = kind === 'generated' ? generated(length) : Buffer.alloc(length, 'a');
      assert.equal(keyOf(salt, content), expected);
    });
  }

  for (const { name, defaultSalt, body, expected } of bodies) {
    it(`is that of the vector: ${name}`, () => {
      const key = shardKey(body, defaultSalt === '' ? undefined : defaultSalt);
      assert.equal(key ?? '', expected);
    });
  }

  it('is refused for more than a million tokens, with 400 and context_too_large', () => {
    for (const { length } of errors) {
      assert.throws(() => keyOf('s', Buffer.alloc(length, 'a')), {
        code: 'context_too_large',
        status: 400,
      });
      assert.doesNotThrow(() => keyOf('s', Buffer.alloc(length - 1, 'a')));
      assert.equal(shardKey(`{"model":"m","messages":"${'a'.repeat(length)}"}`, undefined), undefined);
    }
  });

  it('is made of a prompt of 4,000,000 escaped bytes, while a longer prompt is refused without decoding it', () => {
    const escaped = (count: number) => `{"model":"m","prompt":"${'\\u0061'.repeat(count)}"}`;
    const salt = 'x'.repeat(32);
    assert.equal(shardKey(escaped(4_000_000), salt), keyOf(salt, Buffer.alloc(4_000_000, 'a')));
    assert.throws(() => shardKey(escaped(4_200_000), salt), {
      code: 'context_too_large',
      message: /a text of the request/,
    });
  });
});

describe('shard key, numbers as text', () => {
  const fill = 'x'.repeat(64);
  for (const [written, text] of [
    ['1.50', '1.5'],
    ['1e3', '1000'],
    ['-1E2', '-100'],
    ['1e21', '1000000000000000000000'],
    ['1.25e22', '12500000000000000000000'],
    ['1.5e-7', '0.00000015'],
    ['-0.0', '-0'],
    ['12345678901234567890123', '12345678901234567890123'],
    ['1e400', '+Inf'],
  ] as const) {
    it(`${written} → ${text}`, () => {
      const key = shardKey(`{"model":"m","prompt":${written},"suffix":"${fill}"}`, fill);
      assert.equal(key, keyOf(fill, Buffer.from(text + fill)));
    });
  }
});
