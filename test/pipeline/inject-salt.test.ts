import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createJsonSealer } from '../../lib/pipeline/json/encrypt-members.ts';
import type { PreparedBody } from '../../lib/pipeline/request-body.ts';
import { EXCHANGE, fixedCipher, inferenceVectors } from '../support/exchange-fixture.ts';
import { literalUnsealObject } from '../support/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../support/plain-members.ts';
import { prepare, sealText } from '../support/sealing.ts';

interface SaltVectors {
  readonly vectors: readonly {
    readonly input: string;
    readonly output: string | null;
    readonly error: string | null;
  }[];
}

const { vectors } = inferenceVectors<SaltVectors>('cache-salt-injection');
const SALT = 'S'.repeat(32);
const plain = PLAIN_MEMBERS.C;

/** The body as the service reads it after sealing. */
function received(text: string, configured: string | undefined): unknown {
  const stage = createJsonSealer({ plain, salt: { configured, random: () => SALT } });
  const prepared = prepare(stage, [Buffer.from(text)]) as PreparedBody;
  const sealed = sealText(prepared, fixedCipher());
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
    it(`${input || '(empty body)'} → ${output ?? error}`, () => {
      for (const configured of [undefined, SALT]) {
        if (error !== null) {
          assert.throws(() => received(withModel(input), configured), { code: 'salt_too_short' });
        } else if (output === '') {
          assert.throws(() => received(input, configured), { code: 'invalid_json' });
        } else {
          assert.deepEqual(received(withModel(input), configured), JSON.parse(withModel(output!)));
        }
      }
    });
  }

  it('keeps a short-looking salt that is long enough in bytes once decoded', () => {
    const salt = '\\u00e9'.repeat(16);
    assert.doesNotThrow(() => received(`{"model":"m","cache_salt":"${salt}"}`, undefined));
    assert.throws(() => received(`{"model":"m","cache_salt":"${'\\u0061'.repeat(31)}"}`, undefined), {
      code: 'salt_too_short',
    });
  });

  it('lets objects pass by the length of their text, and refuses false', () => {
    assert.doesNotThrow(() => received(`{"model":"m","cache_salt":{"a":"${SALT}"}}`, undefined));
    assert.throws(() => received('{"model":"m","cache_salt":{}}', undefined), { code: 'salt_too_short' });
    assert.throws(() => received('{"model":"m","cache_salt":false}', undefined), { code: 'salt_too_short' });
  });

  it('refuses a salt that would take too long to decode, whatever is written in it', () => {
    const size = 24 * 1024 * 1024;
    for (const salt of [`"${'a'.repeat(size)}"`, `"\\n${'a'.repeat(size - 2)}"`, `1.${'1'.repeat(size)}`]) {
      const text = `{"model":"m","cache_salt":${salt}}`;
      for (const configured of [undefined, SALT]) {
        assert.throws(() => received(text, configured), {
          code: 'context_too_large',
          message: /longer than 25165824 bytes/,
        });
      }
    }
  });

  it('escapes a configured salt as JSON', () => {
    const odd = `${SALT}"\n\u{1f600}`;
    assert.deepEqual(received('{"model":"m"}', odd), { model: 'm', cache_salt: odd });
  });

  it('keeps every other byte of the body', () => {
    const stage = createJsonSealer({
      plain: new Set(['a', 'model', 'cache_salt']),
      salt: { configured: SALT },
    });
    const text = '{ "a" : 1.50e+10 , "model":"m" }';
    const prepared = prepare(stage, [Buffer.from(text)]) as PreparedBody;
    const sealed = sealText(prepared, fixedCipher());
    assert.ok(sealed.startsWith('{ "a" : 1.50e+10 , "model":"m"') && sealed.endsWith(' }'), sealed);
  });
});
