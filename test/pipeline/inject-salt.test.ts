import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { shardKeyOf } from '../../lib/pipeline/inject-salt.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import { EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { literalUnsealObject } from '../support/remote/literal-envelope.ts';
import { jsonBody, prepare, sealText } from '../support/remote/sealing.ts';
import salts from '../vectors/inference/cache-salt-injection.json' with { type: 'json' };
import shards from '../vectors/inference/shard-keys.json' with { type: 'json' };

const { vectors } = salts;
const SALT = 'S'.repeat(32);
const plain = PLAIN_MEMBERS.C;

/** The body as the service reads it after sealing. */
async function received(text: string, configured: string | undefined): Promise<unknown> {
  const sealed = await sealText(prepare(jsonBody({ salted: true }), text, configured), fixedCipher());
  const opened = literalUnsealObject(EXCHANGE, sealed, [...plain]);
  const members = JSON.parse(sealed) as Record<string, unknown>;
  for (const [name, raw] of opened) members[name] = JSON.parse(raw);
  return members;
}

/** The vectors name no model; the sealer wants one. */
const withModel = (text: string): string =>
  text.includes('"model"') ? text : text.replace('{', `{"model":"m"${/^\{\s*\}$/.test(text) ? '' : ','}`);

describe('cache salt injection', () => {
  for (const { input, output, error } of vectors) {
    it(`${input || '(empty body)'} → ${output ?? error}`, async () => {
      if (error !== null) {
        await assert.rejects(received(withModel(input), SALT), { code: 'salt_too_short' });
      } else if (output === '') {
        await assert.rejects(received(input, SALT), { code: 'invalid_json' });
      } else {
        assert.deepEqual(await received(withModel(input), SALT), JSON.parse(withModel(output!)));
      }
    });
  }

  const MOST = 24 * 1024 * 1024;
  for (const [what, salt, code] of [
    ['that has 32 bytes after decoding', `"${'\\u00e9'.repeat(16)}"`, undefined],
    ['that has 31 bytes after decoding', `"${'\\u0061'.repeat(31)}"`, 'salt_too_short'],
    ['that is an object whose text is long enough', `{"a":"${SALT}"}`, undefined],
    ['that is an empty object', '{}', 'salt_too_short'],
    ['that is a number of 41 digits, written shorter', '1e40', undefined],
    ['that is a number of one digit, written longer', `1.${'0'.repeat(32)}`, 'salt_too_short'],
    ['that is false', 'false', 'salt_too_short'],
    ['that would take too long to decode', `"${'a'.repeat(MOST)}"`, 'context_too_large'],
    ['that would take too long to decode, with an escape', `"\\n${'a'.repeat(MOST)}"`, 'context_too_large'],
    ['that is a number of too many digits', `1.${'1'.repeat(MOST)}`, 'context_too_large'],
  ] as const) {
    it(code === undefined ? `accepts a salt ${what}` : `refuses a salt ${what}: ${code}`, async () => {
      for (const configured of [undefined, SALT]) {
        const sealing = received(`{"model":"m","cache_salt":${salt}}`, configured);
        const message = code === 'context_too_large' ? /longer than 25165824 bytes/ : /./;
        await (code === undefined
          ? assert.doesNotReject(sealing)
          : assert.rejects(sealing, { code, message }));
      }
    });
  }

  it('escapes a configured salt as JSON', async () => {
    const odd = `${SALT}"\n\u{1f600}`;
    assert.deepEqual(await received('{"model":"m"}', odd), { model: 'm', cache_salt: odd });
  });

  it('keeps every other byte of the body', async () => {
    const text = '{ "n" : 1e+1 , "model":"m" }';
    const prepared = prepare(jsonBody({ salted: true }), text, SALT);
    const sealed = await sealText(prepared, fixedCipher());
    assert.match(sealed, /^\{ "n" : 1e\+1 , "model":"m","cache_salt":"[^"]+" \}$/);
  });

  it('draws 32 random bytes for each request without a salt, and gives such a request no shard key', () => {
    const [first, second] = [0, 1].map(() => {
      const { values, shardKey } = prepare(jsonBody({ salted: true }), '{"model":"m"}');
      assert.equal(shardKey, undefined);
      return JSON.parse(values[1]!.bytes.toString()) as string;
    });
    assert.match(first!, /^[A-Za-z0-9+/]{43}=$/);
    assert.notEqual(first, second);
  });
});

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
  for (const { kind, length, salt, expected } of shards.vectors) {
    it(`has ${expected.length} characters for ${length} ${kind} bytes, as the vector says`, () => {
      const content = kind === 'generated' ? generated(length) : Buffer.alloc(length, 'a');
      assert.equal(keyOf(salt, content), expected);
    });
  }

  for (const { name, defaultSalt, body, expected } of shards.bodies) {
    it(`is that of the vector: ${name}`, () => {
      const key = shardKey(body, defaultSalt === '' ? undefined : defaultSalt);
      assert.equal(key ?? '', expected);
    });
  }

  it('is refused for more than a million tokens, with 400 and context_too_large', () => {
    for (const { length } of shards.errors) {
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
      message: /^prompt is too long/,
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
