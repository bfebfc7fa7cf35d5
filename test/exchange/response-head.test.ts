import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { describe, it } from 'node:test';
import {
  plainContentType,
  RECEIPT_HEADER_NAMES,
  receiptHeaders,
  remoteHeaders,
  responseKind,
} from '../../lib/exchange/response-head.ts';

const STREAM = { 'content-type': 'text/event-stream; charset=utf-8' };
const JSON_BODY = { 'content-type': 'application/json' };
const PLAIN = { ...JSON_BODY, 'privatemode-encrypted': 'false' };

/** How an answer is read: the kind, or the code of the refusal. */
function read(status: number, headers: IncomingHttpHeaders, encrypted: boolean, streaming: boolean): string {
  const kind = responseKind(status, headers, encrypted, streaming);
  return typeof kind === 'string' ? kind : kind.code;
}

describe('an upstream answer, by its head', () => {
  type Row = [name: string, status: number, headers: IncomingHttpHeaders, streaming: boolean, is: string];
  const rows: Row[] = [
    ['a body, as asked', 200, JSON_BODY, false, 'encrypted-body'],
    ['a stream, as asked', 200, STREAM, true, 'encrypted-stream'],
    ['a body without a type', 200, {}, false, 'encrypted-body'],
    ['a body in place of a stream', 200, JSON_BODY, true, 'response_malformed'],
    ['a stream in place of a body', 200, STREAM, false, 'response_malformed'],
    ['another success in place of a stream', 201, JSON_BODY, true, 'response_malformed'],
    ['the last success', 299, JSON_BODY, true, 'response_malformed'],
    ['a success that says it is plain', 200, PLAIN, false, 'response_not_encrypted'],
    ['an error that says it is plain', 400, PLAIN, false, 'plain'],
    ['an error that says it is plain, to a stream', 500, PLAIN, true, 'plain'],
    ['the first error, sealed', 400, JSON_BODY, true, 'encrypted-body'],
    ['an error that is a stream', 500, STREAM, false, 'encrypted-stream'],
    [
      'another word for false',
      400,
      { ...JSON_BODY, 'privatemode-encrypted': 'FALSE' },
      false,
      'encrypted-body',
    ],
    ['the last error, plain', 599, PLAIN, false, 'plain'],
    ['a status that clients take for no error, plain', 600, PLAIN, false, 'response_malformed'],
    ['the last number, plain', 999, PLAIN, true, 'response_malformed'],
    ['a status of no kind, sealed', 600, JSON_BODY, false, 'response_malformed'],
    ['a status of no kind, a stream', 999, STREAM, true, 'response_malformed'],
    ['less than a success', 199, JSON_BODY, false, 'response_malformed'],
    ['a success without a body in place of a stream', 204, STREAM, true, 'response_malformed'],
    ['a success whose body clients do not read', 205, STREAM, true, 'response_malformed'],
    ['a success without a body in place of a body', 204, JSON_BODY, false, 'response_malformed'],
    ['the first redirect', 300, PLAIN, false, 'upstream_redirect'],
    ['the last redirect', 399, PLAIN, false, 'upstream_redirect'],
    [
      'no compression, said so',
      200,
      { ...JSON_BODY, 'content-encoding': 'identity' },
      false,
      'encrypted-body',
    ],
    ['the same in capitals', 200, { ...JSON_BODY, 'content-encoding': 'Identity' }, false, 'encrypted-body'],
    ['compression', 200, { ...JSON_BODY, 'content-encoding': 'gzip' }, false, 'response_malformed'],
    ['compression of an error', 500, { ...PLAIN, 'content-encoding': 'br' }, false, 'response_malformed'],
  ];
  for (const [name, status, headers, streaming, is] of rows) {
    it(`${name}: ${is}`, () => assert.equal(read(status, headers, true, streaming), is));
  }

  it('of an endpoint without encryption is shown as it is, redirects and compression aside', () => {
    assert.equal(read(200, JSON_BODY, false, false), 'plain');
    assert.equal(read(503, {}, false, false), 'plain');
    assert.equal(read(302, {}, false, false), 'upstream_redirect');
    assert.equal(read(600, JSON_BODY, false, false), 'response_malformed');
    assert.equal(read(204, {}, false, false), 'response_malformed');
    assert.equal(read(200, { 'content-encoding': 'gzip' }, false, false), 'response_malformed');
  });
});

describe('response headers towards the application', () => {
  const [sealed, plain] = [{ authenticated: true }, { authenticated: false }];
  const hints = [
    'Retry-After',
    ...['X-RateLimit-Remaining-Requests', 'x-ratelimit-limit-tokens', 'anthropic-ratelimit-tokens-limit'],
  ];
  for (const name of hints) {
    it(`${name} goes through`, () => {
      for (const body of [sealed, plain])
        assert.deepEqual(remoteHeaders([name, 'v'], body), { [name.toLowerCase()]: 'v' });
    });
  }
  for (const name of ['X-Request-Id', 'Request-Id', 'Date', 'Cache-Control', 'CACHE-CONTROL']) {
    it(`${name} goes through beside a body that authenticates only`, () => {
      assert.deepEqual(remoteHeaders([name, 'v'], sealed), { [name.toLowerCase()]: 'v' });
      assert.deepEqual(remoteHeaders([name, 'v'], plain), {});
    });
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
  for (const name of denied) {
    it(`${name} does not`, () => {
      for (const body of [sealed, plain]) assert.deepEqual(remoteHeaders([name, 'v'], body), {});
    });
  }

  it('nor does what Connection lists', () => {
    const raw = ['Connection', 'Retry-After, close', 'Retry-After', '1', 'Date', '2'];
    assert.deepEqual(remoteHeaders(raw, sealed), { date: '2' });
  });
  it('nor does a value that Node would refuse to send', () => {
    assert.deepEqual(remoteHeaders(['Retry-After', '1\x01', 'Date', '\u0416'], sealed), {});
  });
  it('repeated headers stay apart', () => {
    const raw = ['X-RateLimit-A', 'a', 'x-ratelimit-a', 'b', 'X-RATELIMIT-A', 'c'];
    assert.deepEqual(remoteHeaders(raw, plain), { 'x-ratelimit-a': ['a', 'b', 'c'] });
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

describe('receipt', () => {
  it('names the secret, the manifest, the time of attestation and the request', () => {
    const epoch = { secretId: 'c2VjcmV0', manifestSha256: 'ab'.repeat(32), attestedAt: 1_795_234_567_891 };
    const headers = receiptHeaders(epoch, 'proxy_1_0');
    assert.deepEqual(headers, {
      'Privatemode-Proxy-Secret-Id': 'c2VjcmV0',
      'Privatemode-Proxy-Manifest-Sha256': 'ab'.repeat(32),
      'Privatemode-Proxy-Attested-At': '2026-11-21T04:16:07.891Z',
      'Privatemode-Proxy-Request-Id': 'proxy_1_0',
    });
    // The receipt itself is named where one is written.
    assert.deepEqual([...Object.keys(headers), 'Privatemode-Proxy-Receipt'], RECEIPT_HEADER_NAMES);
  });
});
