import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { AUDIT_HEADERS, epochHeaders, remoteHeaders, requestHeaders } from '../../lib/http-rules/headers.ts';

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
  for (const name of kept)
    it(`${name} of the application does not go through`, () => assert.deepEqual(passed(name, 'CANARY'), {}));

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
    it(`${name} is set by the gateway, whatever the client says`, (t) => {
      runsOn(t, 'platform', 'linux');
      runsOn(t, 'arch', 'x64');
      assert.equal(toRemote(name, 'CANARY')[name], value);
    });
  }

  it('authorization is what the gateway decided on, and absent if it decided on none', () => {
    const input = { rawHeaders: ['Authorization', 'Bearer mine'], host: 'h', requestId: 'r' };
    assert.equal(requestHeaders({ ...input, authorization: 'Bearer ours' })['authorization'], 'Bearer ours');
    assert.ok(!('authorization' in requestHeaders({ ...input, authorization: undefined })));
  });

  it('a header that Connection lists does not go through', () => {
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

  const machines = {
    platform: { linux: 'linux', darwin: 'darwin', win32: 'windows', freebsd: 'freebsd', sunos: 'solaris' },
    arch: {
      ...{ x64: 'amd64', arm64: 'arm64', ia32: '386', arm: 'arm' },
      ...{ ppc64: 'ppc64le', s390x: 's390x', riscv64: 'riscv64' },
    },
  };
  for (const [of, names] of Object.entries(machines)) {
    for (const [node, go] of Object.entries(names)) {
      it(`${node} is announced as ${go}`, (t) => {
        runsOn(t, of as 'platform' | 'arch', node);
        assert.equal(toRemote()[of === 'arch' ? 'privatemode-architecture' : 'privatemode-os'], go);
      });
    }
  }
});

describe('response headers towards the application', () => {
  // Which names go through: test/fuzz/gateway-attacks.test.ts.
  const [sealed, plain] = [{ authenticated: true }, { authenticated: false }];
  it('a header that Connection lists does not go through', () => {
    const raw = ['Connection', 'Retry-After, close', 'Retry-After', '1', 'Date', '2'];
    assert.deepEqual(remoteHeaders(raw, sealed), { date: '2' });
  });
  it('a value that Node would refuse to send does not go through', () => {
    assert.deepEqual(remoteHeaders(['Retry-After', '1\x01', 'Date', '\u0416'], sealed), {});
  });
  it('repeated headers stay apart', () => {
    const raw = ['X-RateLimit-A', 'a', 'x-ratelimit-a', 'b', 'X-RATELIMIT-A', 'c'];
    assert.deepEqual(remoteHeaders(raw, plain), { 'x-ratelimit-a': ['a', 'b', 'c'] });
  });
});

describe('the headers that say what protected a response', () => {
  it('name the secret, the manifest, the time of attestation and the request', () => {
    const epoch = { secretId: 'c2VjcmV0', manifestSha256: 'ab'.repeat(32), attestedAt: 1_795_234_567_891 };
    const headers = epochHeaders(epoch, 'proxy_1_0');
    assert.deepEqual(headers, {
      'Privatemode-Proxy-Secret-Id': 'c2VjcmV0',
      'Privatemode-Proxy-Manifest-Sha256': 'ab'.repeat(32),
      'Privatemode-Proxy-Attested-At': '2026-11-21T04:16:07.891Z',
      'Privatemode-Proxy-Request-Id': 'proxy_1_0',
    });
    // The receipt itself is named where one is written.
    assert.deepEqual([...Object.keys(headers), 'Privatemode-Proxy-Receipt'], Object.values(AUDIT_HEADERS));
  });
});
