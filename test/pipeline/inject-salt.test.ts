import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { literalUnsealObject } from '../support/remote/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
import { jsonBody, prepare, sealText } from '../support/remote/sealing.ts';
import salts from '../vectors/inference/cache-salt-injection.json' with { type: 'json' };

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
