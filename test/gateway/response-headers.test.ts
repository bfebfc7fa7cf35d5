import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { plainContentType, remoteHeaders } from '../../lib/pipeline/response-head.ts';

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
