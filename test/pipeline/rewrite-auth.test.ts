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
    'the placeholder with its scheme in lower case',
    { authorization: 'bearer placeholder' },
    'bearer placeholder',
    'placeholder',
  ],
  ['another scheme', { authorization: 'Basic dXNlcjpwYXNz' }, 'Basic dXNlcjpwYXNz'],
  ['an empty Authorization', { authorization: '' }, ''],
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
    'both headers, of which Authorization counts alone',
    { authorization: 'Bearer theirs', apiKeyHeader: OTHERS },
    'Bearer theirs',
    'theirs',
  ],
  [
    'both headers, the placeholder in Authorization',
    { authorization: 'Bearer placeholder', apiKeyHeader: OTHERS },
    'Bearer placeholder',
    'placeholder',
    true,
  ],
  [
    'both headers, the placeholder in x-api-key',
    { authorization: 'Bearer theirs', apiKeyHeader: 'placeholder' },
    'Bearer theirs',
    'theirs',
  ],
  [
    'an empty Authorization, which still counts alone, and x-api-key',
    { authorization: '', apiKeyHeader: OTHERS },
    '',
  ],
];

describe('the key of a request', () => {
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

      it(`is the ${authorization === OURS ? "proxy's" : "client's, if any"}, with a configured key and --api-key-fallback=${fallback}, when the client sends ${name}`, () =>
        assert.deepEqual(decide('ours'), { authorization, offeredKey: undefined }));
      it(`is the client's, if any, without a configured key and with --api-key-fallback=${fallback}, when the client sends ${name}`, () =>
        assert.deepEqual(decide(undefined), { authorization: theirs, offeredKey: offered }));
    }
  }
});
