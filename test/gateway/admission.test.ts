/** What is decided by the head of a request: ambiguous heads, and which web pages may use the proxy. */
import assert from 'node:assert/strict';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Config } from '../../lib/config/config.ts';
import { admit, checkHead, refuseForeignPage } from '../../lib/gateway/admission.ts';
import {
  type CorsPolicy,
  corsHeaders,
  foreignPage,
  ownNames,
  preflightHeaders,
  saysBrowser,
} from '../../lib/gateway/cors.ts';
import { refused } from '../support/doors/config.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { completion } from '../support/remote/sealed-answers.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

describe('the head of a request', () => {
  it('may have each header that decides something once, and the error names the header and no value', () => {
    const once = ['Host', 'Authorization', 'X-Api-Key', 'Content-Length', 'Transfer-Encoding'];
    for (const name of [...once, 'Content-Type', 'Origin', 'Sec-Fetch-Site']) {
      const raw = [name, 'CANARY1', 'Accept', '*/*', name.toLowerCase(), 'CANARY2'];
      const message = refused(() => checkHead(raw), [name.toLowerCase()], 'ambiguous_header');
      assert.ok(!message.includes('CANARY'));
      checkHead([name, 'once', 'Accept', 'a', 'Accept', 'b']);
    }
  });

  it('may have 256 headers, but not 257', () => {
    const many = (count: number): string[] => Array.from({ length: count }, (_, i) => [`x-${i}`, 'v']).flat();
    checkHead(many(256));
    refused(() => checkHead(many(257)), ['256'], 'too_many_headers');
  });

  it('must have a Host in HTTP/1.1, but not in HTTP/1.0', () => {
    checkHead(['Accept', '*/*'], '1.0');
    checkHead(['hOsT', 'localhost'], '1.1');
    refused(() => checkHead(['Accept', '*/*'], '1.1'), ['missing'], 'invalid_host');
  });

  it('has one host name or address as its Host, with a port or without, which no error quotes (RFC 9112 3.2)', () => {
    for (const host of [
      ...['localhost', 'localhost:8080', 'LOCALHOST:', 'a.b-c_d~e.:1', 'xn--bcher-kva.example'],
      ...['127.0.0.1:65535', '[::1]', '[::1]:8080', '[FE80::1%25eth0]:1', '[::ffff:1.2.3.4]'],
    ])
      checkHead(['Host', host], '1.1');
    for (const host of [
      ...['', ':8080', 'a,b', 'localhost:8080, evil.example', 'user@localhost', 'local host', 'localhost\t'],
      ...['localhost/v1', 'http://localhost', 'localhost?x', 'a#b', 'a\\b', 'localhost:1:2', 'localhost:x'],
      ...['localhost:123456', '[::1', '::1', '[]', '[::1]x', 'b\xfccher'],
    ]) {
      const words = refused(() => checkHead(['Host', host]), ['host'], 'invalid_host');
      assert.equal(words, 'the header host is not one host name with an optional port');
    }
  });
});

const NAMES = ['gpu-box', 'proxy.example', '*.lab.example', 'web.example:8443', 'plain.example:80'];
const OFF: CorsPolicy = { allowedOrigins: [], ownNames: NAMES };
const LIST = { allowedOrigins: ['https://chat.example', 'vscode-webview://abc'], ownNames: NAMES };
const ANY = { allowedOrigins: ['*'], ownNames: NAMES };
const CHROMIUM = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0' };

const isRefused = (headers: IncomingHttpHeaders, policy = OFF): boolean =>
  foreignPage(headers, policy, saysBrowser(headers)) !== undefined;

describe('the gateway', () => {
  type Row = [name: string, host: string | undefined, origin?: string | undefined, site?: string];
  const serves: Row[] = [
    ['a program under any host name', 'proxy.default.svc.cluster.local:8080'],
    ['its own page', 'localhost:8080', 'http://localhost:8080', 'same-origin'],
    ['the address bar, under any name', 'evil.example', undefined, 'none'],
    // Older browsers, and all of them where the page came neither over TLS nor from loopback.
    ['its own page in another case, in an older browser', 'LocalHost:8080', 'http://localhost:8080'],
    ['its own page at port 80, which is left out', 'localhost:80', 'http://localhost'],
    ['the page of an allowed host', 'web.example:8443', 'https://web.example:8443'],
    ['a page at an IPv4 literal', '192.168.1.5:8080', 'http://192.168.1.5:8080'],
    ['a page at an IPv6 literal', '[::1]:8080', 'http://[::1]:8080'],
    ['a page at a name in its certificate', 'proxy.example', 'https://proxy.example', 'same-origin'],
    ['a page at a name under a wildcard of its certificate', 'a.lab.example', 'https://a.lab.example'],
  ];
  const refuses: Row[] = [
    ['a page of another site', 'localhost:8080', 'https://evil.example', 'cross-site'],
    ['an unknown Sec-Fetch-Site', 'localhost:8080', undefined, 'nearby'],
    ['a page on another port, in an older browser', 'localhost:8080', 'http://localhost:3000'],
    ['a page without Host', undefined, 'http://localhost:8080'],
    ['an empty Origin', 'localhost:8080', ''],
    ['an origin that only begins like the host', 'localhost:8080', 'http://localhost:8080.evil.example'],
    ['an origin with credentials before the host', 'localhost:8080', 'http://x@localhost:8080'],
    ['a page two labels under a wildcard', 'a.b.lab.example', 'https://a.b.lab.example'],
    ['a page at the domain of a wildcard', 'lab.example', 'https://lab.example'],
    // DNS rebinding: the page's own name points at us.
    ['a rebound name like localhost', 'localhost.evil.example', 'http://localhost.evil.example'],
  ];
  for (const [verb, rows] of Object.entries({ serves, refuses })) {
    it(`${verb} ${rows.length} kinds of pages and programs`, () => {
      for (const [name, host, origin, site] of rows) {
        const refusal = foreignPage({ host, origin, 'sec-fetch-site': site }, OFF, false);
        assert.equal(refusal !== undefined, verb === 'refuses', name);
        assert.ok(!refusal?.message.includes('evil'), 'the refusal quotes the page');
      }
    });
  }

  it('knows a browser that tells neither header, as of a GET over plain HTTP, by its user agent', () => {
    const refuses = (headers: IncomingHttpHeaders): boolean => isRefused({ ...CHROMIUM, ...headers });
    for (const host of ['localhost:8080', 'gpu-box.:8080', 'web.example:8443', 'plain.example'])
      assert.ok(!refuses({ host }), host);
    for (const host of ['evil.example:8080', 'web.example', undefined])
      assert.ok(refuses({ host }), String(host));
    for (const agent of ['node', 'x Mozilla/5.0'])
      assert.ok(!refuses({ host: 'p.svc', 'user-agent': agent }));
  });

  it('serves the origins that are listed, or all of them with *', () => {
    const asks = (origin: string, host = 'localhost') => ({ host, origin, 'sec-fetch-site': 'cross-site' });
    for (const origin of ['https://chat.example', 'vscode-webview://abc', 'HTTPS://Chat.Example'])
      assert.ok(!isRefused(asks(origin, 'evil.example'), LIST), origin);
    const others = ['http://chat.example', 'https://chat.example:444', 'https://x.chat.example', 'null'];
    for (const origin of others) {
      assert.ok(isRefused(asks(origin), LIST), origin);
      assert.ok(!isRefused(asks(origin), ANY), origin);
    }
    assert.ok(isRefused({ host: 'localhost', 'sec-fetch-site': 'cross-site' }, LIST));
    assert.ok(isRefused({ host: 'evil.example', ...CHROMIUM }, ANY));
  });
});

/**
 * Where a foreign page is, and what its browser tells of it: of a rebound name over plain HTTP, nothing with
 * a GET.
 */
const PAGES = [
  ...['evil.example', 'EVIL.example.:8080', 'localhost.evil.example'].map((host) => ({ host })),
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
    const settings = { apiKeyFallback: fallback } as Config;
    const deps = { cors: () => OFF, key: { value: () => configuredKey }, settings };
    const { decision } = admit(deps, req as IncomingMessage);
    const refused = decision.kind === 'refusal' && decision.error.code === 'origin_forbidden';
    assert.equal(refused, !(isSilent && decides) && !poses, 'the gateway');
    const asksAdmin = (): void => refuseForeignPage(req as IncomingMessage, OFF);
    if (poses && set['accept-language'] === '*') asksAdmin();
    else assert.throws(asksAdmin, { code: 'origin_forbidden' });
  });
  fc.assert(property, { seed: 20261123, numRuns: 3_000 });
});

it('CORS headers name a listed origin, with Vary, or every origin with *, and let a page read what the proxy adds', () => {
  const foreign = 'https://evil.example';
  assert.deepEqual(corsHeaders('https://chat.example', OFF), {});
  const { 'access-control-expose-headers': exposed, ...headers } = corsHeaders('https://chat.example', LIST);
  assert.deepEqual(headers, { 'access-control-allow-origin': 'https://chat.example', vary: 'Origin' });
  const names = ['Secret-Id', 'Manifest-Sha256', 'Receipt', 'Error', 'Unauthenticated'];
  for (const name of [...names.map((each) => `Privatemode-Proxy-${each}`), 'Retry-After', 'X-Request-Id'])
    assert.ok(exposed?.includes(name), name);
  for (const origin of [foreign, undefined]) {
    assert.deepEqual(corsHeaders(origin, LIST), { vary: 'Origin' });
    const { vary, ...any } = corsHeaders(origin, ANY);
    assert.deepEqual([vary, any['access-control-allow-origin']], [undefined, '*']);
  }
});

it('preflights are those of an allowed origin that name a method, and are answered for 24 hours', () => {
  const asking = { origin: 'https://chat.example', 'access-control-request-method': 'POST' };
  const wanted = 'authorization, content-type, x-stainless-os';
  const requested = (names: string) => ({ ...asking, 'access-control-request-headers': names });
  assert.deepEqual(preflightHeaders('OPTIONS', requested(wanted), LIST), {
    'access-control-allow-origin': 'https://chat.example',
    'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
    'access-control-allow-headers': wanted,
    'access-control-max-age': '86400',
    vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
  });
  assert.equal(preflightHeaders('OPTIONS', asking, ANY)?.['access-control-allow-origin'], '*');
  const noNames = preflightHeaders('OPTIONS', requested('a\x01<b>'), LIST) ?? {};
  assert.ok(!('access-control-allow-headers' in noNames));
  const { origin, 'access-control-request-method': method } = asking;
  for (const [asked, headers, policy] of [
    ['OPTIONS', { ...asking, origin: 'https://evil.example' }, LIST],
    ['OPTIONS', asking, OFF],
    ['POST', asking, LIST],
    ['OPTIONS', { 'access-control-request-method': method }, LIST],
    ['OPTIONS', { origin }, LIST],
  ] as const)
    assert.equal(preflightHeaders(asked, headers, policy), undefined);
});

it("the gateway's own names are its listen address and the DNS names of its certificate", () => {
  const { cert } = createTestAuthority('test').issue(['Proxy.example', '*.lab.example', '127.0.0.1']);
  assert.deepEqual(ownNames('GPU-Box'), ['gpu-box']);
  assert.deepEqual(ownNames('0.0.0.0', cert), ['0.0.0.0', 'proxy.example', '*.lab.example']);
});

const PAGE = 'https://chat.example';
const LISTED: CorsPolicy = { allowedOrigins: [PAGE], ownNames: ['127.0.0.1'] };
const BROWSER = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';

it('a web page may read answers and errors only from a listed origin, and another one gets no preflight', async (t) => {
  const { upstream, ask } = await gatewayFixture(t, { cors: LISTED, answers: completion });
  const asking = ['Origin: https://evil.example', 'Access-Control-Request-Method: POST'];
  const refused = await ask(get('/v1/chat/completions', asking).replace('GET', 'OPTIONS'));
  assertError(refused, 403, 'origin_forbidden');
  assert.ok(!Object.keys(refused.headers).some((header) => header.startsWith('access-control-')));
  assert.equal(upstream.connections.total, 0);
  for (const [body, status] of Object.entries({ [chatBody()]: 200, '{': 400 })) {
    const answer = await ask(post(body, { headers: [`Origin: ${PAGE}`, 'Sec-Fetch-Site: cross-site'] }));
    assert.deepEqual([answer.status, answer.headers['access-control-allow-origin']], [status, PAGE]);
  }
});

it('a browser is served at a host of --allowed-hosts and refused at another one, on both listeners', async (t) => {
  const adminPort = await freePort();
  const flags = [`--admin-address=127.0.0.1:${adminPort}`, '--allowed-hosts=proxy.lab.example'];
  const stack = await startStack({ flags });
  t.after(() => stack.close());
  const headers = [BROWSER, 'X-Api-Key: x', 'Accept-Language: *'];
  for (const [host, status] of Object.entries({ 'proxy.lab.example': 200, 'evil.example': 403 })) {
    for (const [path, port] of Object.entries({
      '/healthz': new URL(stack.url).port,
      '/metrics': adminPort,
    })) {
      const client = rawClient(Number(port));
      t.after(() => client.socket.destroy());
      client.send(get(path, headers).replace('localhost:8080', host));
      assert.equal((await answerTo(client)).status, status, `${host}${path}`);
    }
  }
});
