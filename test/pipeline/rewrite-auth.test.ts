import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type FallbackMode, rewriteAuth } from '../../lib/pipeline/rewrite-auth.ts';

interface Row {
  readonly name: string;
  readonly authorization?: string;
  readonly apiKeyHeader?: string;
  /** Authorization towards the remote in each mode while `ours` is configured; `undefined`: none. */
  readonly never: string | undefined;
  readonly ifPlaceholder: string | undefined;
  /** Without a configured key: what is sent, and which key may attest. */
  readonly alone: string | undefined;
  readonly offered: string | undefined;
}

const OURS = 'Bearer ours';

const ROWS: readonly Row[] = [
  { name: 'nothing', never: undefined, ifPlaceholder: undefined, alone: undefined, offered: undefined },
  {
    name: 'a key',
    authorization: 'Bearer theirs',
    never: 'Bearer theirs',
    ifPlaceholder: 'Bearer theirs',
    alone: 'Bearer theirs',
    offered: 'theirs',
  },
  {
    name: 'the placeholder',
    authorization: 'Bearer placeholder',
    never: 'Bearer placeholder',
    ifPlaceholder: OURS,
    alone: 'Bearer placeholder',
    offered: 'placeholder',
  },
  {
    name: 'almost the placeholder (case of the scheme)',
    authorization: 'bearer placeholder',
    never: 'bearer placeholder',
    ifPlaceholder: 'bearer placeholder',
    alone: 'bearer placeholder',
    offered: 'placeholder',
  },
  {
    name: 'almost the placeholder (case of the word)',
    authorization: 'Bearer Placeholder',
    never: 'Bearer Placeholder',
    ifPlaceholder: 'Bearer Placeholder',
    alone: 'Bearer Placeholder',
    offered: 'Placeholder',
  },
  {
    name: 'almost the placeholder (two blanks)',
    authorization: 'Bearer  placeholder',
    never: 'Bearer  placeholder',
    ifPlaceholder: 'Bearer  placeholder',
    alone: 'Bearer  placeholder',
    offered: undefined,
  },
  {
    name: 'another scheme',
    authorization: 'Basic dXNlcjpwYXNz',
    never: 'Basic dXNlcjpwYXNz',
    ifPlaceholder: 'Basic dXNlcjpwYXNz',
    alone: 'Basic dXNlcjpwYXNz',
    offered: undefined,
  },
  {
    name: 'an empty Authorization',
    authorization: '',
    never: '',
    ifPlaceholder: '',
    alone: '',
    offered: undefined,
  },
  {
    name: 'a bearer of nothing',
    authorization: 'Bearer ',
    never: 'Bearer ',
    ifPlaceholder: 'Bearer ',
    alone: 'Bearer ',
    offered: undefined,
  },
  {
    name: 'a bearer of two words',
    authorization: 'Bearer a b',
    never: 'Bearer a b',
    ifPlaceholder: 'Bearer a b',
    alone: 'Bearer a b',
    offered: undefined,
  },
  {
    name: 'x-api-key',
    apiKeyHeader: 'theirs',
    never: 'Bearer theirs',
    ifPlaceholder: 'Bearer theirs',
    alone: 'Bearer theirs',
    offered: 'theirs',
  },
  {
    name: 'x-api-key with the placeholder',
    apiKeyHeader: 'placeholder',
    never: 'Bearer placeholder',
    ifPlaceholder: OURS,
    alone: 'Bearer placeholder',
    offered: 'placeholder',
  },
  {
    name: 'an empty x-api-key',
    apiKeyHeader: '',
    never: undefined,
    ifPlaceholder: undefined,
    alone: undefined,
    offered: undefined,
  },
  {
    name: 'both headers: Authorization decides alone',
    authorization: 'Bearer theirs',
    apiKeyHeader: 'sk-of-another-vendor',
    never: 'Bearer theirs',
    ifPlaceholder: 'Bearer theirs',
    alone: 'Bearer theirs',
    offered: 'theirs',
  },
  {
    name: 'both headers, the placeholder in the one that counts',
    authorization: 'Bearer placeholder',
    apiKeyHeader: 'sk-of-another-vendor',
    never: 'Bearer placeholder',
    ifPlaceholder: OURS,
    alone: 'Bearer placeholder',
    offered: 'placeholder',
  },
  {
    name: 'both headers, the placeholder in the other one',
    authorization: 'Bearer theirs',
    apiKeyHeader: 'placeholder',
    never: 'Bearer theirs',
    ifPlaceholder: 'Bearer theirs',
    alone: 'Bearer theirs',
    offered: 'theirs',
  },
  {
    name: 'an empty Authorization beside x-api-key: still decides alone',
    authorization: '',
    apiKeyHeader: 'sk-of-another-vendor',
    never: '',
    ifPlaceholder: '',
    alone: '',
    offered: undefined,
  },
];

describe('whose key a request is sent with', () => {
  for (const { name, authorization, apiKeyHeader, ...expected } of ROWS) {
    const decide = (configuredKey: string | undefined, fallback: FallbackMode) =>
      rewriteAuth({ authorization, apiKeyHeader, configuredKey, fallback });

    it(`${name}; a key is configured, always`, () =>
      assert.deepEqual(decide('ours', 'always'), { authorization: OURS, offeredKey: undefined }));
    it(`${name}; a key is configured, never`, () =>
      assert.deepEqual(decide('ours', 'never'), { authorization: expected.never, offeredKey: undefined }));
    it(`${name}; a key is configured, if-placeholder`, () =>
      assert.deepEqual(decide('ours', 'if-placeholder'), {
        authorization: expected.ifPlaceholder,
        offeredKey: undefined,
      }));
    for (const mode of ['always', 'never', 'if-placeholder'] as const) {
      it(`${name}; no key is configured, ${mode}`, () =>
        assert.deepEqual(decide(undefined, mode), {
          authorization: expected.alone,
          offeredKey: expected.offered,
        }));
    }
  }
});
