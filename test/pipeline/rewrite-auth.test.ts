import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { rewriteAuth } from '../../lib/pipeline/rewrite-auth.ts';

const OURS = 'Bearer ours';
const THEIRS = 'Bearer theirs';
const PLACEHOLDER = 'Bearer placeholder';
const OTHERS = 'sk-of-another-vendor';

type Row = [
  name: string,
  authorization: string | undefined,
  apiKeyHeader: string | undefined,
  /** Authorization towards the remote where nothing of ours takes its place; `undefined`: none. */
  sent: string | undefined,
  /** The key that may attest where none is configured. */
  offered?: string | undefined,
  /** Whether ours takes its place with `if-placeholder`. */
  replaced?: boolean,
];
const ROWS: readonly Row[] = [
  ['nothing', undefined, undefined, undefined],
  ['a key', THEIRS, undefined, THEIRS, 'theirs'],
  ['the placeholder', PLACEHOLDER, undefined, PLACEHOLDER, 'placeholder', true],
  ['the placeholder in another case', 'bearer placeholder', undefined, 'bearer placeholder', 'placeholder'],
  ['another scheme', 'Basic dXNlcjpwYXNz', undefined, 'Basic dXNlcjpwYXNz'],
  ['an empty Authorization', '', undefined, ''],
  ['a bearer of two words', 'Bearer a b', undefined, 'Bearer a b'],
  ['x-api-key', undefined, 'theirs', THEIRS, 'theirs'],
  ['x-api-key with the placeholder', undefined, 'placeholder', PLACEHOLDER, 'placeholder', true],
  ['an empty x-api-key', undefined, '', undefined],
  ['both headers, of which Authorization counts alone', THEIRS, OTHERS, THEIRS, 'theirs'],
  ['both, the placeholder in Authorization', PLACEHOLDER, OTHERS, PLACEHOLDER, 'placeholder', true],
  ['both, the placeholder in x-api-key', THEIRS, 'placeholder', THEIRS, 'theirs'],
  ['an empty Authorization, which still counts alone, and x-api-key', '', OTHERS, ''],
];

describe('the key of a request', () => {
  for (const [name, authorization, apiKeyHeader, sent, offered, replaced = false] of ROWS) {
    for (const [fallback, expected] of [
      ['always', OURS],
      ['never', sent],
      ['if-placeholder', replaced ? OURS : sent],
    ] as const) {
      const decide = (configuredKey: string | undefined) =>
        rewriteAuth({ authorization, apiKeyHeader, configuredKey, fallback });
      it(`is the ${expected === OURS ? "proxy's" : "client's, if any"}, with a configured key and --api-key-fallback=${fallback}, when the client sends ${name}`, () =>
        assert.deepEqual(decide('ours'), {
          authorization: expected,
          offeredKey: undefined,
          operatorKey: expected === OURS ? { value: 'ours', of: undefined } : undefined,
        }));
      it(`is the client's, if any, without a configured key and with --api-key-fallback=${fallback}, when the client sends ${name}`, () =>
        assert.deepEqual(decide(undefined), {
          authorization: sent,
          offeredKey: offered,
          operatorKey: undefined,
        }));
    }
  }

  it('is the one of its client in --clients, or else the configured key, and never what was sent', () => {
    const decide = (apiKey: string | undefined, configuredKey: string | undefined) =>
      rewriteAuth({
        authorization: 'Bearer token-of-the-gateway',
        apiKeyHeader: OTHERS,
        configuredKey,
        fallback: 'never',
        client: { name: 'team', apiKey },
      });
    const none = { authorization: undefined, offeredKey: undefined, operatorKey: undefined };
    const own = { ...none, authorization: 'Bearer own', operatorKey: { value: 'own', of: 'team' } };
    assert.deepEqual(decide('own', 'ours'), own);
    assert.deepEqual(decide('own', undefined), { ...own, offeredKey: 'own' });
    const configured = { value: 'ours', of: undefined };
    assert.deepEqual(decide(undefined, 'ours'), { ...none, authorization: OURS, operatorKey: configured });
    assert.deepEqual(decide(undefined, undefined), none);
  });
});
