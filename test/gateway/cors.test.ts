import assert from 'node:assert/strict';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { admit, refuseForeignPage } from '../../lib/gateway/admission.ts';
import {
  type CorsPolicy,
  corsHeaders,
  foreignPage,
  ownNames,
  preflightHeaders,
} from '../../lib/gateway/cors.ts';
import { refused } from '../support/doors/config.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const NAMES = ['gpu-box', 'proxy.example', '*.lab.example', 'web.example:8443', 'plain.example:80'];
const OFF: CorsPolicy = { allowedOrigins: [], ownNames: NAMES };
const LIST = { allowedOrigins: ['https://chat.example', 'vscode-webview://abc'], ownNames: NAMES };
const ANY = { allowedOrigins: ['*'], ownNames: NAMES };

const browser = (host: string | undefined, origin?: string, site?: string): IncomingHttpHeaders => ({
  host,
  origin,
  'sec-fetch-site': site,
});
const CHROMIUM = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0' };
const passes = (headers: IncomingHttpHeaders, policy = OFF): boolean =>
  foreignPage(headers, policy) === undefined;

describe('CORS: who may ask', () => {
  const rows: [name: string, headers: IncomingHttpHeaders, passes: boolean][] = [
    ['a program', browser('localhost:8080'), true],
    ['a program under any host name', browser('proxy.default.svc.cluster.local:8080'), true],
    ['a program without Host', browser(undefined), true],
    ['a page of another site', browser('localhost:8080', 'https://evil.example', 'cross-site'), false],
    [
      'a page of another site that sends no Origin',
      browser('localhost:8080', undefined, 'cross-site'),
      false,
    ],
    [
      'a page on another port of this machine',
      browser('localhost:8080', 'http://localhost:3000', 'same-site'),
      false,
    ],
    ['an image or form of another site', browser('127.0.0.1:8080', undefined, 'cross-site'), false],
    ['a sandboxed page', browser('localhost:8080', 'null', 'cross-site'), false],
    ['an unknown Sec-Fetch-Site', browser('localhost:8080', undefined, 'nearby'), false],
    ['an empty Sec-Fetch-Site', browser('localhost:8080', undefined, ''), false],
    ['our own page', browser('localhost:8080', 'http://localhost:8080', 'same-origin'), true],
    ['our own page without Origin', browser('127.0.0.1:8080', undefined, 'same-origin'), true],
    ['the address bar', browser('localhost:8080', undefined, 'none'), true],
    // Browsers without Sec-Fetch-Site, and all of them where the page was not loaded over TLS or from
    // loopback.
    ['older browser, our own page', browser('localhost:8080', 'http://localhost:8080'), true],
    ['older browser, our own page, other case', browser('LocalHost:8080', 'http://localhost:8080'), true],
    ['older browser, port 80 left out', browser('localhost:80', 'http://localhost'), true],
    ['older browser, port 443 left out', browser('localhost', 'https://localhost:443'), true],
    ['older browser, another port', browser('localhost:8080', 'http://localhost:3000'), false],
    ['older browser, another host', browser('localhost:8080', 'https://evil.example'), false],
    ['older browser, a sandboxed page', browser('localhost:8080', 'null'), false],
    ['older browser, an extension', browser('localhost:8080', 'chrome-extension://abc'), false],
    ['older browser, no Host', browser(undefined, 'http://localhost:8080'), false],
    ['older browser, an empty Origin', browser('localhost:8080', ''), false],
    [
      'older browser, a host that only begins alike',
      browser('localhost:8080', 'http://localhost:8080.evil.example'),
      false,
    ],
    [
      'older browser, credentials before the host',
      browser('localhost:8080', 'http://x@localhost:8080'),
      false,
    ],
    // DNS rebinding: the page's own name points at us.
    ['rebound name', browser('evil.example:8080', 'http://evil.example:8080'), false],
    [
      'rebound name, with Sec-Fetch-Site',
      browser('evil.example:8080', 'http://evil.example:8080', 'same-origin'),
      false,
    ],
    ['rebound name, without Origin', browser('evil.example:8080', undefined, 'same-origin'), false],
    // Over plain HTTP a browser tells neither header of a same-origin GET.
    ['rebound name, GET over plain HTTP', { host: 'evil.example:8080', ...CHROMIUM }, false],
    ['a browser at localhost, GET', { host: 'localhost:8080', ...CHROMIUM }, true],
    ['a browser at a name of ours, GET', { host: 'gpu-box:8080', ...CHROMIUM }, true],
    ['a browser at a name of ours with a final dot, GET', { host: 'gpu-box.:8080', ...CHROMIUM }, true],
    ['a browser at localhost with a final dot, GET', { host: 'localhost.:8080', ...CHROMIUM }, true],
    ["Node's fetch under any host name", { host: 'proxy.default.svc:8080', 'user-agent': 'node' }, true],
    ['an agent that names Mozilla later', { host: 'p.svc', 'user-agent': 'x Mozilla/5.0' }, true],
    ['a browser without Host', { ...CHROMIUM }, false],
    ['the address bar, under any name', browser('evil.example', undefined, 'none'), true],
    ['an allowed host with its port', { host: 'web.example:8443', ...CHROMIUM }, true],
    ['an allowed host with another port', { host: 'web.example:8080', ...CHROMIUM }, false],
    ['an allowed host without its port', { host: 'web.example', ...CHROMIUM }, false],
    ["an allowed host whose port is the scheme's", { host: 'plain.example', ...CHROMIUM }, true],
    ['the page of an allowed host', browser('web.example:8443', 'https://web.example:8443'), true],
    ['another page at an allowed host', browser('web.example:8443', 'https://evil.example'), false],
    ['rebound name with a final dot', browser('evil.example.:8080', 'http://evil.example.:8080'), false],
    [
      'rebound name that begins like localhost',
      browser('localhost.evil.example', 'http://localhost.evil.example'),
      false,
    ],
    [
      'rebound name that looks like an address',
      browser('127.0.0.1.evil.example', 'http://127.0.0.1.evil.example'),
      false,
    ],
    ['an IPv4 literal', browser('192.168.1.5:8080', 'http://192.168.1.5:8080'), true],
    ['an IPv6 literal', browser('[::1]:8080', 'http://[::1]:8080'), true],
    ['the listen address', browser('gpu-box:8080', 'http://gpu-box:8080'), true],
    ['a name in our certificate', browser('proxy.example', 'https://proxy.example', 'same-origin'), true],
    ['a name under a wildcard of our certificate', browser('a.lab.example', 'https://a.lab.example'), true],
    ['a name two labels under the wildcard', browser('a.b.lab.example', 'https://a.b.lab.example'), false],
    ['the wildcard domain itself', browser('lab.example', 'https://lab.example'), false],
    ['broken Host', browser('localhost:8080:1', 'http://localhost:8080:1'), false],
  ];
  for (const [name, headers, expected] of rows) {
    it(`${name}: ${expected ? 'passes' : 'refused'}`, () => assert.equal(passes(headers), expected));
  }

  it('a refusal names the flag and quotes nothing', () => {
    const rows: [headers: IncomingHttpHeaders, flag: RegExp][] = [
      [browser('localhost', 'https://CANARY.example', 'cross-site'), /--cors-allowed-origins/],
      [browser('CANARY', 'http://CANARY'), /--allowed-hosts/],
    ];
    for (const [headers, flag] of rows) {
      const refusal = foreignPage(headers, OFF)?.message;
      assert.match(refusal ?? '', flag);
      assert.ok(!refusal?.includes('CANARY'));
    }
  });

  const allowed: [name: string, headers: IncomingHttpHeaders, policy: CorsPolicy, passes: boolean][] = [
    ['a listed origin', browser('localhost:8080', 'https://chat.example', 'cross-site'), LIST, true],
    [
      'a listed origin of any scheme',
      browser('localhost:8080', 'vscode-webview://abc', 'cross-site'),
      LIST,
      true,
    ],
    [
      'a listed origin under a strange host name',
      browser('evil.example', 'https://chat.example'),
      LIST,
      true,
    ],
    [
      'an origin that is not listed',
      browser('localhost:8080', 'https://evil.example', 'cross-site'),
      LIST,
      false,
    ],
    ['a listed origin in other letter case', browser('localhost:8080', 'HTTPS://Chat.Example'), LIST, true],
    ['a listed host under another scheme', browser('localhost:8080', 'http://chat.example'), LIST, false],
    ['a listed host on another port', browser('localhost:8080', 'https://chat.example:444'), LIST, false],
    ['a name under a listed one', browser('localhost:8080', 'https://x.chat.example'), LIST, false],
    [
      'a cross-site request without Origin, whatever is listed',
      browser('localhost', undefined, 'cross-site'),
      LIST,
      false,
    ],
    ['any origin with *', browser('localhost:8080', 'https://evil.example', 'cross-site'), ANY, true],
    ['a sandboxed page with *', browser('localhost:8080', 'null', 'cross-site'), ANY, true],
    [
      '* with a browser that tells no origin, at a foreign name',
      { host: 'evil.example', ...CHROMIUM },
      ANY,
      false,
    ],
  ];
  for (const [name, headers, policy, expected] of allowed) {
    it(`${name}: ${expected ? 'passes' : 'refused'}`, () => assert.equal(passes(headers, policy), expected));
  }
});

/**
 * Where a foreign page is, and what its browser tells of it: of a rebound name over plain HTTP, nothing with
 * a GET.
 */
const PAGES = [
  ...['evil.example', 'EVIL.example.:8080', 'localhost.evil.example', '127.0.0.1.evil.example'].map(
    (host) => ({ host }),
  ),
  { host: 'evil.example', origin: 'http://evil.example' },
  { host: 'evil.example', origin: 'https://evil.example', 'sec-fetch-site': 'same-origin' },
  { host: 'localhost:8080', origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  { host: '127.0.0.1', origin: 'http://127.0.0.1:3000', 'sec-fetch-site': 'same-site' },
  { host: 'localhost', 'sec-fetch-site': 'cross-site' },
  { host: '[::1]', origin: 'null' },
];
/** What a page may set: any key and language and, in Firefox, the user agent. */
const SET = {
  authorization: fc.constantFrom('Bearer x', 'Bearer placeholder', 'Basic eDp4'),
  'x-api-key': fc.constantFrom('x', 'placeholder', ''),
  'accept-language': fc.constantFrom('*', '', '*, en'),
  'user-agent': fc.constant('curl/8.5.0'),
};

it('a foreign page passes only if it sends neither Origin nor Sec-Fetch-Site, and sets a key or User-Agent', () => {
  const attack = fc.record({
    page: fc.constantFrom(...PAGES),
    set: fc.record(SET, { requiredKeys: [] }),
    path: fc.constantFrom('/v1/models', '/v1', '/status'),
    configuredKey: fc.constantFrom('k', undefined),
    fallback: fc.constantFrom('always' as const, 'if-placeholder' as const, 'never' as const),
  });
  const property = fc.property(attack, ({ page, set, path, configuredKey, fallback }) => {
    const headers = { ...CHROMIUM, 'accept-language': 'en', ...set, ...page };
    const rawHeaders = Object.entries(headers).flat();
    const req = { method: 'GET', url: path, httpVersion: '1.1', headers, rawHeaders } as unknown;
    const key = set.authorization ?? (set['x-api-key'] && `Bearer ${set['x-api-key']}`);
    const isOurs = fallback === 'always' || (fallback === 'if-placeholder' && key === 'Bearer placeholder');
    const decides = path === '/v1/models' && Boolean(key) && !(configuredKey !== undefined && isOurs);
    // A page that tells neither, and that its browser lets pass for a program, is known by nothing.
    const isSilent = !('origin' in page || 'sec-fetch-site' in page);
    const poses = isSilent && set['user-agent'] !== undefined;
    const keys = { configuredKey: () => configuredKey, fallback, offered: [] };
    const { admission } = admit(req as IncomingMessage, OFF, keys);
    const refused = admission.kind === 'refusal' && admission.error.code === 'origin_forbidden';
    assert.equal(refused, !(isSilent && decides) && !poses, 'the gateway');
    const asksAdmin = (): void => refuseForeignPage(req as IncomingMessage, OFF);
    if (poses && set['accept-language'] === '*') asksAdmin();
    else assert.throws(asksAdmin, { code: 'origin_forbidden' });
  });
  fc.assert(property, { seed: 20261123, numRuns: 3_000 });
});

describe('CORS headers', () => {
  const from = (origin: string | undefined, policy: CorsPolicy) => corsHeaders(origin, policy);

  it('are none while CORS is off', () => assert.deepEqual(from('https://chat.example', OFF), {}));
  it('name a listed origin, with Vary', () => {
    const headers = from('https://chat.example', LIST);
    assert.equal(headers['access-control-allow-origin'], 'https://chat.example');
    assert.equal(headers['vary'], 'Origin');
    assert.ok(!('access-control-allow-credentials' in headers));
  });
  it('are only Vary for an origin that is not listed', () =>
    assert.deepEqual(from('https://evil.example', LIST), { vary: 'Origin' }));
  it('are only Vary for a request without Origin', () =>
    assert.deepEqual(from(undefined, LIST), { vary: 'Origin' }));
  it('allow * to every request if any origin is allowed', () => {
    const headers = from('https://evil.example', ANY);
    assert.equal(headers['access-control-allow-origin'], '*');
    assert.deepEqual(from(undefined, ANY), headers);
    assert.ok(!('vary' in headers));
  });
  it('let the page read the receipt and the error code', () => {
    const exposed = from('https://chat.example', LIST)['access-control-expose-headers']?.split(', ');
    for (const name of [
      ...[
        'Privatemode-Proxy-Secret-Id',
        'Privatemode-Proxy-Manifest-Sha256',
        'Privatemode-Proxy-Attested-At',
      ],
      ...['Privatemode-Proxy-Request-Id', 'Retry-After', 'Request-Id', 'X-Request-Id'],
      ...['Privatemode-Proxy-Error', 'Privatemode-Proxy-Unauthenticated', 'Privatemode-Encrypted'],
    ])
      assert.ok(exposed?.includes(name), name);
  });
});

describe('preflights', () => {
  const asking = { origin: 'https://chat.example', 'access-control-request-method': 'POST' };

  it('are answered for 24 hours, with the headers that were asked for', () => {
    const wanted = 'authorization, content-type, x-stainless-os, anthropic-version';
    const headers = preflightHeaders(
      'OPTIONS',
      { ...asking, 'access-control-request-headers': wanted },
      LIST,
    );
    assert.deepEqual(headers, {
      'access-control-allow-origin': 'https://chat.example',
      'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
      'access-control-allow-headers': wanted,
      'access-control-max-age': '86400',
      vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
    });
  });
  it('are answered with * if any origin is allowed', () => {
    assert.equal(preflightHeaders('OPTIONS', asking, ANY)?.['access-control-allow-origin'], '*');
  });
  it('get no Access-Control-Allow-Headers if what they ask for is no list of header names', () => {
    const headers = preflightHeaders(
      'OPTIONS',
      { ...asking, 'access-control-request-headers': 'a\x01<b>' },
      LIST,
    );
    assert.ok(headers && !('access-control-allow-headers' in headers));
  });
  it('let a public page reach a private network if it asks for that', () => {
    const headers = preflightHeaders(
      'OPTIONS',
      { ...asking, 'access-control-request-private-network': 'true' },
      LIST,
    );
    assert.equal(headers?.['access-control-allow-private-network'], 'true');
  });

  const none: [name: string, method: string, headers: Record<string, string>, policy: CorsPolicy][] = [
    ['a foreign origin', 'OPTIONS', { ...asking, origin: 'https://evil.example' }, LIST],
    ['CORS off', 'OPTIONS', asking, OFF],
    ['another method', 'POST', asking, LIST],
    ['no Origin', 'OPTIONS', { 'access-control-request-method': 'POST' }, LIST],
    ['no requested method', 'OPTIONS', { origin: 'https://chat.example' }, LIST],
  ];
  for (const [name, method, headers, policy] of none) {
    it(`are not answered with ${name}`, () =>
      assert.equal(preflightHeaders(method, headers, policy), undefined));
  }
});

describe("the gateway's own names", () => {
  it('include the listen address, in lower case', () => assert.deepEqual(ownNames('GPU-Box'), ['gpu-box']));
  it('include the DNS names of the certificate', () => {
    const { cert } = createTestAuthority('test').issue(['Proxy.example', '*.lab.example', '127.0.0.1']);
    assert.deepEqual(ownNames('0.0.0.0', cert), ['0.0.0.0', 'proxy.example', '*.lab.example']);
  });
});

describe('a listener that knows no keys', () => {
  const asking = (headers: Record<string, string>) => () =>
    refuseForeignPage({ rawHeaders: Object.entries(headers).flat(), headers }, OFF);

  it('lets programs in under any host name, and browsers under its own names', () => {
    asking({ host: 'metrics.default.svc:9100', 'user-agent': 'Prometheus/3.1' })();
    asking({ host: 'gpu-box:9100', ...CHROMIUM })();
    // Node's fetch
    asking({ host: 'metrics.default.svc:9100', 'accept-language': '*', 'sec-fetch-mode': 'cors' })();
    asking({ host: 'gpu-box:9100', 'accept-language': 'de' })();
  });
  it('reads the head of a request as strictly as the gateway', () => {
    refused(asking({ host: 'a,b' }), [], 'invalid_host');
  });
});
