import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { checkHead } from '../../lib/gateway/admission.ts';
import { plainContentType, remoteHeaders } from '../../lib/gateway/response-headers.ts';
import { requestHeaders } from '../../lib/pipeline/rewrite-auth.ts';
import { refused } from '../support/config.ts';

const toRemote = (...rawHeaders: string[]): Record<string, string> =>
  requestHeaders({ rawHeaders, host: 'api.example', authorization: undefined, requestId: 'proxy_1_0' });
const OURS = Object.keys(toRemote());

/** Has the process say that it runs elsewhere, for one test. */
function runsOn(t: TestContext, name: 'platform' | 'arch', value: string): void {
  const own = Object.getOwnPropertyDescriptor(process, name)!;
  Object.defineProperty(process, name, { ...own, value });
  t.after(() => Object.defineProperty(process, name, own));
}

/** What of these headers got through, apart from what we add. */
const passed = (...rawHeaders: string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(toRemote(...rawHeaders)).filter(([name]) => !OURS.includes(name)));

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

  const once = [
    'Host',
    'Authorization',
    'X-Api-Key',
    'Content-Length',
    'Content-Type',
    'Origin',
    'Sec-Fetch-Site',
  ];
  for (const name of once) {
    it(`two ${name} headers are refused by name, and not quoted`, () => {
      const raw = [name, 'CANARY1', 'Accept', '*/*', name.toLowerCase(), 'CANARY2'];
      const message = refused(() => checkHead(raw), [name.toLowerCase()], 'ambiguous_header');
      assert.ok(!message.includes('CANARY'));
      checkHead([name, 'once', 'Accept', 'a', 'Accept', 'b']);
    });
  }

  it('256 headers are read, 257 are not', () => {
    const many = (count: number): string[] => Array.from({ length: count }, (_, i) => [`x-${i}`, 'v']).flat();
    checkHead(many(256));
    refused(() => checkHead(many(257)), ['256'], 'too_many_headers');
  });

  it('HTTP/1.1 needs a Host, HTTP/1.0 does not', () => {
    checkHead(['Accept', '*/*'], '1.0');
    checkHead(['hOsT', 'localhost'], '1.1');
    refused(() => checkHead(['Accept', '*/*'], '1.1'), ['missing'], 'invalid_host');
  });

  for (const host of [
    ...[
      'localhost',
      'localhost:8080',
      'LOCALHOST:',
      'a.b-c_d~e.:1',
      'xn--bcher-kva.example',
      '127.0.0.1:65535',
    ],
    ...['[::1]', '[::1]:8080', '[FE80::1%25eth0]:1', '[::ffff:1.2.3.4]'],
  ]) {
    it(`Host: ${host} names a host`, () => checkHead(['Host', host]));
  }
  for (const host of [
    ...['', ':', ':8080', 'a,b', 'localhost:8080, evil.example', 'user@localhost', 'u:p@localhost:8080'],
    ...[
      'local host',
      'localhost\t',
      'localhost/',
      'localhost/v1',
      '/',
      'http://localhost',
      'localhost?x',
      'a#b',
    ],
    ...[
      'localhost:8080:1',
      'localhost:x',
      'localhost:123456',
      'a\\b',
      '[::1',
      '::1',
      '[]',
      '[::1]x',
      'b\xfccher',
    ],
  ]) {
    it(`Host: ${JSON.stringify(host)} is refused, and not quoted (RFC 9112 3.2)`, () => {
      const words = refused(() => checkHead(['Host', host]), ['host'], 'invalid_host');
      assert.equal(words, 'the header host is not one host name with an optional port');
    });
  }

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

describe('response headers towards the application', () => {
  const through = [
    ...['Retry-After', 'X-Request-Id', 'Request-Id', 'Date', 'Cache-Control'],
    ...['X-RateLimit-Remaining-Requests', 'x-ratelimit-limit-tokens', 'anthropic-ratelimit-tokens-limit'],
  ];
  for (const name of through) {
    it(`${name} goes through`, () =>
      assert.deepEqual(remoteHeaders([name, 'v']), { [name.toLowerCase()]: 'v' }));
  }

  const denied = [
    ...['Connection', 'Keep-Alive', 'Proxy-Authenticate', 'Proxy-Authorization', 'Proxy-Connection', 'TE'],
    ...['Trailer', 'Trailers', 'Transfer-Encoding', 'Upgrade', 'Content-Length', 'Content-Encoding'],
    ...[
      'Set-Cookie',
      'Set-Cookie2',
      'WWW-Authenticate',
      'Service-Worker-Allowed',
      'Location',
      'Refresh',
      'Link',
    ],
    ...['Content-Type', 'Content-Disposition', 'Content-Location', 'Content-Security-Policy', 'SourceMap'],
    ...['Strict-Transport-Security', 'Alt-Svc', 'Clear-Site-Data', 'NEL', 'Report-To', 'Reporting-Endpoints'],
    ...[
      'Public-Key-Pins',
      'Access-Control-Allow-Origin',
      'Access-Control-Expose-Headers',
      'X-Accel-Redirect',
    ],
    ...[
      'Server',
      'Vary',
      'ETag',
      'Via',
      'X-Powered-By',
      'OpenAI-Processing-Ms',
      'X-Should-Retry',
      '__proto__',
    ],
    ...['Privatemode-Encrypted', 'Privatemode-Proxy-Secret-Id', 'Privatemode-Proxy-Manifest-Sha256'],
    ...['Privatemode-Proxy-Attested-At', 'Privatemode-Proxy-Request-Id', 'Privatemode-Proxy-State'],
    ...[
      'Privatemode-Proxy-Error',
      'Privatemode-Proxy-Unauthenticated',
      'ratelimit-x',
      'x-ratelimit',
      'Date-',
    ],
  ];
  for (const name of denied) it(`${name} does not`, () => assert.deepEqual(remoteHeaders([name, 'v']), {}));

  it('nor does what Connection lists', () => {
    assert.deepEqual(remoteHeaders(['Connection', 'Retry-After, close', 'Retry-After', '1', 'Date', '2']), {
      date: '2',
    });
  });
  it('nor does a value that Node would refuse to send', () => {
    assert.deepEqual(remoteHeaders(['Retry-After', '1\x01', 'Date', '\u0416']), {});
  });
  it('repeated headers stay apart', () => {
    assert.deepEqual(remoteHeaders(['X-RateLimit-A', 'a', 'x-ratelimit-a', 'b', 'X-RATELIMIT-A', 'c']), {
      'x-ratelimit-a': ['a', 'b', 'c'],
    });
  });
});

describe('the type of a body that the service sent in clear', () => {
  const rows: [declared: string | undefined, ours: string][] = [
    ['application/json', 'application/json'],
    ['Application/JSON; charset=latin1', 'application/json'],
    ['application/problem+json', 'application/json'],
    [undefined, 'text/plain; charset=utf-8'],
    ['', 'text/plain; charset=utf-8'],
    ['text/html', 'text/plain; charset=utf-8'],
    ['text/html; application/json', 'text/plain; charset=utf-8'],
    ['application/json, text/html', 'text/plain; charset=utf-8'],
    ['text/event-stream', 'text/plain; charset=utf-8'],
    ['text/javascript', 'text/plain; charset=utf-8'],
    ['image/svg+xml', 'text/plain; charset=utf-8'],
    ['application/jsonp', 'text/plain; charset=utf-8'],
    ['text/x+json', 'text/plain; charset=utf-8'],
  ];
  for (const [declared, ours] of rows) {
    it(`declared as ${declared}: ${ours}`, () => assert.equal(plainContentType(declared), ours));
  }
});
