import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { rewriteAuth } from '../../lib/pipeline/rewrite-auth.ts';

const OURS = 'Bearer ours';
const OTHERS = 'sk-of-another-vendor';

type Row = [
  name: string,
  client: { readonly authorization?: string; readonly apiKeyHeader?: string },
  /** Authorization towards the remote where nothing of ours takes its place; `undefined`: none. */
  theirs: string | undefined,
  /** The key that may attest where none is configured. */
  offered?: string | undefined,
  /** Whether ours takes its place with `if-placeholder`. */
  replaced?: boolean,
];
const ROWS: readonly Row[] = [
  ['nothing', {}, undefined],
  ['a key', { authorization: 'Bearer theirs' }, 'Bearer theirs', 'theirs'],
  ['the placeholder', { authorization: 'Bearer placeholder' }, 'Bearer placeholder', 'placeholder', true],
  [
    'almost the placeholder (case of the scheme)',
    { authorization: 'bearer placeholder' },
    'bearer placeholder',
    'placeholder',
  ],
  [
    'almost the placeholder (case of the word)',
    { authorization: 'Bearer Placeholder' },
    'Bearer Placeholder',
    'Placeholder',
  ],
  ['almost the placeholder (two blanks)', { authorization: 'Bearer  placeholder' }, 'Bearer  placeholder'],
  ['another scheme', { authorization: 'Basic dXNlcjpwYXNz' }, 'Basic dXNlcjpwYXNz'],
  ['an empty Authorization', { authorization: '' }, ''],
  ['a bearer of nothing', { authorization: 'Bearer ' }, 'Bearer '],
  ['a bearer of two words', { authorization: 'Bearer a b' }, 'Bearer a b'],
  ['x-api-key', { apiKeyHeader: 'theirs' }, 'Bearer theirs', 'theirs'],
  [
    'x-api-key with the placeholder',
    { apiKeyHeader: 'placeholder' },
    'Bearer placeholder',
    'placeholder',
    true,
  ],
  ['an empty x-api-key', { apiKeyHeader: '' }, undefined],
  [
    'both headers: Authorization decides alone',
    { authorization: 'Bearer theirs', apiKeyHeader: OTHERS },
    'Bearer theirs',
    'theirs',
  ],
  [
    'both headers, the placeholder in the one that counts',
    { authorization: 'Bearer placeholder', apiKeyHeader: OTHERS },
    'Bearer placeholder',
    'placeholder',
    true,
  ],
  [
    'both headers, the placeholder in the other one',
    { authorization: 'Bearer theirs', apiKeyHeader: 'placeholder' },
    'Bearer theirs',
    'theirs',
  ],
  [
    'an empty Authorization beside x-api-key: still decides alone',
    { authorization: '', apiKeyHeader: OTHERS },
    '',
  ],
];

describe('whose key a request is sent with', () => {
  for (const [name, client, theirs, offered, replaced = false] of ROWS) {
    for (const [fallback, authorization] of [
      ['always', OURS],
      ['never', theirs],
      ['if-placeholder', replaced ? OURS : theirs],
    ] as const) {
      const decide = (configuredKey: string | undefined) =>
        rewriteAuth({
          authorization: undefined,
          apiKeyHeader: undefined,
          ...client,
          configuredKey,
          fallback,
        });

      it(`${name}; a key is configured, ${fallback}`, () =>
        assert.deepEqual(decide('ours'), { authorization, offeredKey: undefined }));
      it(`${name}; no key is configured, ${fallback}`, () =>
        assert.deepEqual(decide(undefined), { authorization: theirs, offeredKey: offered }));
    }
  }
});
