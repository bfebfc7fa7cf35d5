import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PROTOCOL_VERSION } from '../../lib/envelope/protection.ts';
import {
  checkHead,
  goArchitecture,
  goOs,
  requestHeaders,
  responseHeaders,
} from '../../lib/gateway/headers.ts';
import { RECEIPT_HEADER_NAMES } from '../../lib/transparency/receipt.ts';
import { refused } from '../support/config.ts';

const toRemote = (...rawHeaders: string[]): Record<string, string> =>
  requestHeaders({ rawHeaders, host: 'api.example', authorization: undefined, requestId: 'proxy_1_0' });
const OURS = Object.keys(toRemote());

/** What of these headers got through, apart from what we add. */
const passed = (...rawHeaders: string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(toRemote(...rawHeaders)).filter(([name]) => !OURS.includes(name)));

describe('request headers towards the remote', () => {
  const through: [name: string, value: string][] = [
    ['Accept', 'text/event-stream'],
    ['Content-Type', 'application/json'],
    ['anthropic-version', '2023-06-01'],
    ['Anthropic-Beta', 'a,b'],
    ['OpenAI-Organization', 'org'],
    ['openai-project', 'p'],
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
  ];
  for (const name of kept) it(`${name} stays here`, () => assert.deepEqual(passed(name, 'CANARY'), {}));

  const ours: [name: string, value: string][] = [
    ['host', 'api.example'],
    ['accept-encoding', 'identity'],
    ['privatemode-version', PROTOCOL_VERSION],
    ['privatemode-os', goOs(process.platform)],
    ['privatemode-architecture', goArchitecture(process.arch)],
    ['privatemode-client', 'Proxy'],
    ['privatemode-user-request-id', 'proxy_1_0'],
  ];
  for (const [name, value] of ours) {
    it(`${name} is ours, whatever the client says`, () =>
      assert.equal(toRemote(name, 'CANARY')[name], value));
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
    assert.deepEqual(passed('anthropic-beta', 'a\x01b', 'openai-project', '\u0416', 'accept', 'caf\xe9'), {
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
    it(`trap 9: two ${name} headers are refused by name, and not quoted`, () => {
      const raw = [name, 'CANARY1', 'Accept', '*/*', name.toLowerCase(), 'CANARY2'];
      for (const ask of [() => checkHead(raw), () => toRemote(...raw)]) {
        assert.ok(!refused(ask, [name.toLowerCase()], 'ambiguous_header').includes('CANARY'));
      }
      checkHead([name, 'once', 'Accept', 'a', 'Accept', 'b']);
    });
  }

  const platforms: [string, string][] = [
    ['linux', 'linux'],
    ['darwin', 'darwin'],
    ['win32', 'windows'],
    ['freebsd', 'freebsd'],
    ['sunos', 'solaris'],
  ];
  for (const [node, go] of platforms) it(`${node} is announced as ${go}`, () => assert.equal(goOs(node), go));
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
    it(`${node} is announced as ${go}`, () => assert.equal(goArchitecture(node), go));
});

describe('response headers towards the application', () => {
  const through = [
    ...['Content-Type', 'Retry-After', 'X-RateLimit-Remaining-Requests', 'anthropic-ratelimit-tokens-limit'],
    ...[
      'X-Request-Id',
      'Request-Id',
      'OpenAI-Processing-Ms',
      'Date',
      'Server',
      'Vary',
      'Cache-Control',
      'Privatemode-Encrypted',
    ],
  ];
  for (const name of through) {
    it(`${name} goes through`, () =>
      assert.deepEqual(responseHeaders([name, 'v']), { [name.toLowerCase()]: 'v' }));
  }

  const denied = [
    ...[
      'Connection',
      'Keep-Alive',
      'Proxy-Authenticate',
      'Proxy-Authorization',
      'Proxy-Connection',
      'TE',
      'Trailer',
    ],
    ...[
      'Trailers',
      'Transfer-Encoding',
      'Upgrade',
      'Content-Length',
      'Content-Encoding',
      'Set-Cookie',
      'Set-Cookie2',
    ],
    ...['Strict-Transport-Security', 'Alt-Svc', 'Clear-Site-Data', 'NEL', 'Report-To', 'Reporting-Endpoints'],
    ...[
      'Public-Key-Pins',
      'Access-Control-Allow-Origin',
      'Access-Control-Expose-Headers',
      'access-control-max-age',
    ],
    ...RECEIPT_HEADER_NAMES,
    'Privatemode-Proxy-State',
  ];
  for (const name of denied) it(`${name} does not`, () => assert.deepEqual(responseHeaders([name, 'v']), {}));

  it('nor does what Connection lists', () => {
    assert.deepEqual(responseHeaders(['Connection', 'X-Hop, close', 'X-Hop', '1', 'X-End', '2']), {
      'x-end': '2',
    });
  });
  it('repeated headers stay apart', () => {
    assert.deepEqual(responseHeaders(['Link', 'a', 'link', 'b', 'LINK', 'c']), { link: ['a', 'b', 'c'] });
  });
  it('a header named __proto__ is a header', () => {
    const headers = responseHeaders(['__proto__', 'a', '__proto__', 'b', 'X', '1']);
    assert.deepEqual(Object.keys(headers), ['__proto__', 'x']);
    assert.equal(Object.getPrototypeOf(headers), Object.prototype);
  });
});
