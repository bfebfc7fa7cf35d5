import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type FallbackMode, requestHeaders, rewriteAuth } from '../../lib/pipeline/rewrite-auth.ts';

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

const toRemote = (...rawHeaders: string[]): Record<string, string> =>
  requestHeaders({ rawHeaders, host: 'api.example', authorization: undefined, requestId: 'proxy_1_0' });
const ADDED = Object.keys(toRemote());

/** Has the process say that it runs elsewhere, for one test. */
function runsOn(t: TestContext, name: 'platform' | 'arch', value: string): void {
  const own = Object.getOwnPropertyDescriptor(process, name)!;
  Object.defineProperty(process, name, { ...own, value });
  t.after(() => Object.defineProperty(process, name, own));
}

/** What of these headers got through, apart from what we add. */
const passed = (...rawHeaders: string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(toRemote(...rawHeaders)).filter(([name]) => !ADDED.includes(name)));

describe('request headers towards the remote', () => {
  const through: [name: string, value: string][] = [
    ['Accept', 'text/event-stream'],
    ['Content-Type', 'application/json'],
    ['anthropic-version', '2023-06-01'],
    ['Anthropic-Beta', 'a,b'],
    ['OpenAI-Beta', 'assistants=v2'],
  ];
  for (const [name, value] of through) {
    it(`${name} goes through`, () => assert.deepEqual(passed(name, value), { [name.toLowerCase()]: value }));
  }

  const kept = [
    ...[
      'Cookie',
      'User-Agent',
      'Referer',
      'Origin',
      'Via',
      'Forwarded',
      'X-Real-IP',
      'Accept-Language',
      'From',
      'DNT',
    ],
    ...[
      'X-Forwarded-For',
      'X-Forwarded-Host',
      'X-Forwarded-Proto',
      'Sec-Fetch-Site',
      'Sec-CH-UA',
      'Priority',
    ],
    ...[
      'X-Api-Key',
      'Api-Key',
      'Authorization',
      'Proxy-Authorization',
      'X-Request-ID',
      'X-Session-Id',
      'Traceparent',
    ],
    ...[
      'Privatemode-Secret-ID',
      'Privatemode-Shard-Key',
      'Privatemode-Target-Model',
      'Privatemode-Encrypted',
    ],
    ...['Privatemode-NVIDIA-OCSP-Policy', 'X-Stainless-OS', 'X-Claude-Code-Session-Id', 'X-App'],
    ...[
      'Connection',
      'Keep-Alive',
      'TE',
      'Trailer',
      'Transfer-Encoding',
      'Upgrade',
      'Expect',
      'Content-Length',
    ],
    ...['Content-Encoding', 'If-None-Match', 'Range', 'x-anthropic-version', '__proto__'],
    // Of the vendors' names, only the documented ones that decide over a response go out.
    ...['OpenAI-Organization', 'OpenAI-Project', 'OpenAI-Api-Key', 'OpenAI-Beta-2', 'OpenAI-', 'OpenAI'],
    ...['Anthropic-Api-Key', 'Anthropic-User-Id', 'Anthropic-Client-Sha', 'anthropic-beta-x', 'anthropic-'],
    'Anthropic-Dangerous-Direct-Browser-Access',
  ];
  for (const name of kept) it(`${name} stays here`, () => assert.deepEqual(passed(name, 'CANARY'), {}));

  const ours: [name: string, value: string][] = [
    ['host', 'api.example'],
    ['accept-encoding', 'identity'],
    ['privatemode-version', 'v1.40.0'],
    ['privatemode-os', 'linux'],
    ['privatemode-architecture', 'amd64'],
    ['privatemode-client', 'Proxy'],
    ['privatemode-user-request-id', 'proxy_1_0'],
  ];
  for (const [name, value] of ours) {
    it(`${name} is ours, whatever the client says`, (t) => {
      runsOn(t, 'platform', 'linux');
      runsOn(t, 'arch', 'x64');
      assert.equal(toRemote(name, 'CANARY')[name], value);
    });
  }

  it('authorization is what was decided, and absent where nothing was', () => {
    const input = { rawHeaders: ['Authorization', 'Bearer mine'], host: 'h', requestId: 'r' };
    assert.equal(requestHeaders({ ...input, authorization: 'Bearer ours' })['authorization'], 'Bearer ours');
    assert.ok(!('authorization' in requestHeaders({ ...input, authorization: undefined })));
  });

  it('a header that Connection lists belongs to that connection', () => {
    assert.deepEqual(
      passed(
        'Connection',
        'close, Anthropic-Beta',
        'anthropic-beta',
        'x',
        'Connection',
        'accept',
        'Accept',
        'y',
      ),
      {},
    );
  });

  it('repeated headers are joined in their order', () => {
    assert.deepEqual(passed('anthropic-beta', 'a', 'Anthropic-Beta', 'b'), { 'anthropic-beta': 'a, b' });
  });

  it('a value that Node would refuse to send is left out instead of throwing mid-request', () => {
    assert.deepEqual(passed('anthropic-beta', 'a\x01b', 'openai-beta', '\u0416', 'accept', 'caf\xe9'), {
      accept: 'caf\xe9',
    });
  });

  const platforms: [string, string][] = [
    ['linux', 'linux'],
    ['darwin', 'darwin'],
    ['win32', 'windows'],
    ['freebsd', 'freebsd'],
    ['sunos', 'solaris'],
  ];
  for (const [node, go] of platforms)
    it(`${node} is announced as ${go}`, (t) => {
      runsOn(t, 'platform', node);
      assert.equal(toRemote()['privatemode-os'], go);
    });
  const architectures: [string, string][] = [
    ['x64', 'amd64'],
    ['arm64', 'arm64'],
    ['ia32', '386'],
    ['arm', 'arm'],
    ['ppc64', 'ppc64le'],
    ['s390x', 's390x'],
    ['riscv64', 'riscv64'],
  ];
  for (const [node, go] of architectures)
    it(`${node} is announced as ${go}`, (t) => {
      runsOn(t, 'arch', node);
      assert.equal(toRemote()['privatemode-architecture'], go);
    });
});
