/** What a client is told, by cause, in both styles (docs/protocol/inference.md section 11, "a better mapping"). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession, startGateway, type TestGatewayOptions } from '../support/doors/gateway.ts';
import { answerTo, CANARY, chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { type RawAnswer, rawClient } from '../support/doors/raw-client.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chunked,
  completion,
  http,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

/** After the upload: this answer. */
const saying =
  (answer: (body: Buffer) => string | Uint8Array): Script =>
  async (scripted) => {
    await scripted.write(answer(await scripted.body()));
  };

interface Cause {
  readonly script?: Script;
  readonly body?: string;
  readonly headers?: readonly string[];
  readonly options?: Omit<TestGatewayOptions, 'upstream'>;
  readonly status: number;
  readonly code: ErrorCode;
  readonly words?: RegExp;
}

const JSON_TYPE = { 'Content-Type': 'application/json' };

/** Of an answer of the service, which is 502. */
const answered = (code: ErrorCode, answer: (body: Buffer) => string | Uint8Array): Cause => ({
  ...{ script: saying(answer), status: 502, code },
});

const CAUSES: Readonly<Record<string, Cause>> = {
  'bad JSON': { status: 400, code: 'invalid_json', body: '{' },
  'a form where JSON belongs': {
    ...{ status: 400, code: 'invalid_json', body: `--b\r\n${CANARY}` },
    headers: ['Content-Type: multipart/form-data; boundary=b'],
    words:
      /the body is multipart\/form-data, and this endpoint takes JSON \(Content-Type: application\/json\)/,
  },
  'text where JSON belongs': {
    ...{
      status: 400,
      code: 'invalid_json',
      body: CANARY,
      headers: ['content-type: Text/Plain;charset=UTF-8'],
    },
    words: /the body is text\/plain, and this endpoint takes JSON/,
  },
  'no model': { status: 400, code: 'missing_model', body: '{"messages":[]}' },
  'a local media URL': {
    status: 400,
    code: 'media_url_refused',
    body: chatBody({
      messages: [{ role: 'user', content: [{ type: 'video_url', video_url: { url: `https://${CANARY}` } }] }],
    }),
  },
  'a compressed body': { status: 415, code: 'unsupported_encoding', headers: ['Content-Encoding: gzip'] },
  'a body over the limit': { status: 413, code: 'body_too_large', options: { limits: { maxBodyBytes: 20 } } },
  'a redirect': answered(
    'upstream_redirect',
    () => 'HTTP/1.1 308 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n',
  ),
  'a success that says it is not encrypted': answered('response_not_encrypted', () =>
    http(200, '{"choices":[]}', { ...JSON_TYPE, 'Privatemode-Encrypted': 'false' }),
  ),
  'a plain success': answered('response_not_authentic', () => http(200, '{"choices":[]}', JSON_TYPE)),
  'a forged answer': answered('response_not_authentic', (body) => tampered(completion(body))),
  'an answer that is no JSON': answered('response_malformed', () => http(200, '<html>', JSON_TYPE)),
  'a compressed answer': answered('response_malformed', () =>
    http(200, gzipSync('{}').toString('latin1'), { 'Content-Encoding': 'gzip', 'Content-Length': '22' }),
  ),
  'a head beyond all measure': answered('response_malformed', () =>
    http(200, '{}', { X: 'y'.repeat(100_000) }),
  ),
};

const STYLES = {
  openai: {
    path: '/v1/chat/completions',
    codeIn: (json: never) => (json as { error: { code: string } }).error.code,
  },
  anthropic: {
    path: '/v1/messages',
    codeIn(json: never) {
      const { type, error, request_id } = json as {
        type: string;
        error: { code: string };
        request_id: string;
      };
      assert.equal(type, 'error');
      assert.match(request_id, /^proxy_/);
      return error.code;
    },
  },
} as const;

/** The rules that hold for every error answer of ours. */
function assertOurs(answer: RawAnswer, style: keyof typeof STYLES, status: number, code: ErrorCode): void {
  assert.deepEqual([answer.status, STYLES[style].codeIn(JSON.parse(answer.body) as never)], [status, code]);
  assert.equal(status, ERRORS[code].status);
  assert.equal(answer.headers['privatemode-encrypted'], 'false');
  assert.equal(answer.headers['content-type'], 'application/json');
  assert.match(answer.headers[style === 'openai' ? 'x-request-id' : 'request-id'] ?? '', /^proxy_/);
  assert.ok(
    answer.body.includes(JSON.stringify(ERRORS[code].remedy).slice(1, -1)),
    'it does not say what to do',
  );
  assert.ok(!answer.body.includes(CANARY), 'it quotes the request');
  assert.equal(answer.headers['privatemode-proxy-secret-id'], undefined, 'nothing protected this');
  assert.equal(answer.headers['privatemode-proxy-error'], code);
  assert.equal(answer.headers['privatemode-proxy-unauthenticated'], undefined, 'these are our own words');
  assertInert(answer);
}

/** Nothing in the body runs in a browser, whatever it is. */
function assertInert({ headers }: RawAnswer): void {
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['content-security-policy'], 'sandbox');
}

for (const style of ['openai', 'anthropic'] as const) {
  describe(`errors in the ${style} style`, { concurrency: true }, () => {
    for (const [name, { script, body, headers, options, status, code, words }] of Object.entries(CAUSES)) {
      it(`${name}: ${status} ${code}`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t, options);
        if (script !== undefined) upstream.on(script);
        const answer = await ask(
          post(body ?? chatBody(), { path: STYLES[style].path, headers: headers ?? [] }),
        );
        assertOurs(answer, style, status, code);
        if (words !== undefined) assert.match(answer.body, words);
        assert.equal(upstream.requests.length, script === undefined ? 0 : 1);
      });
    }

    const session = (Object.keys(ERRORS) as ErrorCode[]).filter((code) =>
      /^(not_ready|api_key_|attestation_|evidence_|manifest_|collateral_|secret_exchange|control_api)/.test(
        code,
      ),
    );
    it(`a remote that is not attested: ${session.join(', ')}`, async (t) => {
      for (const code of session) {
        const acquire = async (): Promise<never> => {
          throw new PrivatemodeError(code, 'words');
        };
        const { upstream, ask } = await gatewayFixture(t, { session: fakeSession({ acquire }) });
        const answer = await ask(post(chatBody(), { path: STYLES[style].path }));
        assertOurs(answer, style, ERRORS[code].status, code);
        assert.equal(upstream.connections.total, 0);
      }
    });

    it('a client that takes events only gets its error as one', async (t) => {
      const { ask } = await gatewayFixture(t);
      const answer = await ask(
        post('{', { path: STYLES[style].path, headers: ['Accept: text/event-stream'] }),
      );
      assert.deepEqual([answer.status, answer.headers['content-type']], [400, 'text/event-stream']);
      assert.match(
        answer.body,
        style === 'openai' ? /^data: \{"error":.*\n\n$/ : /^event: error\ndata: .*\n\n$/,
      );
    });
  });
}

/** Of id, date and cache headers. */
function assertOnlyOurs({ headers }: RawAnswer): void {
  const ids = [headers['x-request-id'], headers['request-id']].filter((id) => id !== undefined);
  assert.equal(ids.length, 1);
  assert.match(String(ids[0]), /^proxy_[0-9a-f-]{36}$/);
  assert.equal(headers['cache-control'], 'no-store');
  assert.ok(Math.abs(Date.parse(headers['date'] ?? '') - Date.now()) < 60_000, String(headers['date']));
  for (const name of ['age', 'expires', 'etag']) assert.equal(headers[name], undefined, name);
}

describe('errors of the service', { concurrency: true }, () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504]) {
    it(`a plain ${status} that says so is shown as it is`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(
        saying(() =>
          plainError(status, 'words of the service', {
            ...{ 'Retry-After': '7', 'X-RateLimit-Limit': '9' },
            ...{
              'X-Request-Id': 'req_forged',
              'Request-Id': 'req_forged',
              Date: 'Thu, 01 Jan 2099 00:00:00 GMT',
            },
            ...{ 'Cache-Control': 'public, max-age=31536000', Age: '1', Expires: 'never', ETag: '"x"' },
          }),
        ),
      );
      const answer = await ask(post());
      assert.equal(answer.status, status);
      assert.equal(answer.body, '{"error":{"message":"words of the service","type":"server_error"}}');
      assert.equal(answer.headers['content-type'], 'application/json');
      assert.equal(answer.headers['privatemode-encrypted'], 'false');
      assert.equal(answer.headers['privatemode-proxy-unauthenticated'], 'true');
      assert.equal(answer.headers['privatemode-proxy-error'], undefined, 'it is not our own');
      assert.equal(answer.headers['privatemode-proxy-secret-id'], undefined, 'nothing protected this');
      assertInert(answer);
      assert.deepEqual([answer.headers['retry-after'], answer.headers['x-ratelimit-limit']], ['7', '9']);
      assertOnlyOurs(answer);
    });

    it(`a sealed ${status} is opened`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(
        saying((body) =>
          http(status, sealedAnswers(body).object({ error: { message: 'the model says no' } }), JSON_TYPE),
        ),
      );
      const answer = await ask(post());
      assert.equal(answer.status, status);
      assert.match(answer.body, /"message":"the model says no"/);
      assert.equal(answer.headers['privatemode-encrypted'], undefined);
      assert.equal(answer.headers['privatemode-proxy-unauthenticated'], undefined);
      assert.equal(answer.headers['privatemode-proxy-error'], undefined, 'it is not our own');
      assertInert(answer);
      assert.ok(answer.headers['privatemode-proxy-secret-id'] !== undefined);
    });

    it(`a ${status} of whom nobody knows keeps its status, and not its text`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const text = 'upstream connect error, visit https://evil.example';
      upstream.on(saying(() => http(status, text, { 'Content-Type': 'text/plain', 'Retry-After': '7' })));
      const answer = await ask(post());
      assert.equal(answer.status, status);
      assert.match(answer.body, /"code":"response_malformed"/);
      assert.ok(!answer.body.includes('evil'));
      assert.equal(answer.headers['retry-after'], '7');
      assert.equal(answer.headers['privatemode-proxy-error'], 'response_malformed');
    });
  }
});

describe('what the service says in clear', { concurrency: true }, () => {
  const PLAIN = { 'Privatemode-Encrypted': 'false' };
  const types: [declared: Record<string, string>, shown: string][] = [
    [{ 'Content-Type': 'text/html' }, 'text/plain; charset=utf-8'],
    [{ 'Content-Type': 'text/event-stream' }, 'text/plain; charset=utf-8'],
    [{ 'Content-Type': 'text/javascript' }, 'text/plain; charset=utf-8'],
    [{}, 'text/plain; charset=utf-8'],
    [{ 'Content-Type': 'application/json; charset=utf-7' }, 'application/json'],
  ];
  for (const [declared, shown] of types) {
    for (const status of [400, 500]) {
      it(`an error ${status} of type ${JSON.stringify(declared)} is ${shown}, byte for byte`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t);
        const text = 'event: error\ndata: {"error":1}\n\n<script>alert(1)</script>';
        upstream.on(saying(() => http(status, text, { ...PLAIN, ...declared })));
        const answer = await ask(post(chatBody({ stream: true })));
        assert.deepEqual([answer.status, answer.headers['content-type']], [status, shown]);
        assert.equal(answer.body, text);
        assert.equal(answer.headers['privatemode-proxy-unauthenticated'], 'true');
        assertInert(answer);
      });
    }
  }

  it('is marked on endpoints without encryption, too, and nobody is to keep it', async (t) => {
    const kept = {
      'X-Request-Id': 'req_forged',
      Date: 'Thu, 01 Jan 2099 00:00:00 GMT',
      'Cache-Control': 'public',
    };
    for (const [declared, shown] of types) {
      const { upstream, ask } = await gatewayFixture(t);
      const headers = { ...declared, ...PLAIN, ...kept };
      upstream.on((scripted) => scripted.write(http(200, '{"data":[]}', headers)));
      const answer = await ask(get('/v1/models'));
      assert.deepEqual([answer.status, answer.body], [200, '{"data":[]}']);
      assert.equal(answer.headers['content-type'], shown);
      assert.equal(answer.headers['privatemode-proxy-unauthenticated'], 'true');
      assert.equal(answer.headers['privatemode-encrypted'], undefined, 'its own mark is not passed on');
      assertInert(answer);
      assertOnlyOurs(answer);
    }
  });

  it('cannot pass for an error event of ours, which only the holder of the secret can place', async (t) => {
    const openai =
      'data: {"error":{"message":"visit evil.example","type":"server_error","param":null,"code":"stream_unfinished"}}\n\n';
    const anthropic =
      'event: error\ndata: {"type":"error","error":{"message":"visit evil.example","code":"stream_unfinished"}}\n\n';
    for (const [path, forged] of [
      ['/v1/chat/completions', openai],
      ['/v1/completions', openai],
      ['/v1/messages', anthropic],
      ['/v1/messages', openai],
      ['/v1/chat/completions', anthropic],
    ] as const) {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(saying(() => STREAM_HEAD + chunked(forged)));
      const answer = await ask(post(chatBody({ stream: true }), { path }));
      assert.ok(!answer.body.includes('evil') && !answer.body.includes('stream_unfinished'), answer.body);
      assert.match(answer.body, /"code":"response_[a-z_]+"/, 'the one error is ours');
    }
  });
});

describe('headers of the service', { concurrency: true }, () => {
  const ids: [path: string, header: string, theirs: boolean, sealed: boolean][] = [
    ['/v1/chat/completions', 'x-request-id', true, true],
    ['/v1/chat/completions', 'x-request-id', false, true],
    ['/v1/chat/completions', 'x-request-id', true, false],
    ['/v1/messages', 'request-id', true, true],
    ['/v1/messages', 'request-id', false, true],
    ['/v1/messages', 'request-id', true, false],
  ];
  for (const [path, header, theirs, sealed] of ids) {
    const isTheirs = theirs && sealed;
    const whose = isTheirs ? "the service's, where it gives one" : 'ours otherwise';
    it(`${path}: ${header} beside ${sealed ? 'a sealed' : 'a plain'} error is ${whose}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const given = theirs ? { [header]: 'req_of-the-service' } : {};
      const error = { error: { message: 'no' } };
      upstream.on(
        saying((body) =>
          sealed
            ? http(400, sealedAnswers(body).object(error), { ...JSON_TYPE, ...given })
            : plainError(400, 'no', given),
        ),
      );
      const answer = await ask(post(chatBody(), { path }));
      assert.match(answer.headers[header] ?? '', isTheirs ? /^req_of-the-service$/ : /^proxy_[0-9a-f-]{36}$/);
    });
  }

  it('never include its mark of encryption', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(saying((body) => completion(body, { 'Privatemode-Encrypted': 'true' })));
    const answer = await ask(post());
    assert.deepEqual([answer.status, answer.headers['privatemode-encrypted']], [200, undefined]);
  });

  it('that would bind a browser, forge a receipt or break the framing stay behind', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const forged = {
      ...{
        'Set-Cookie': 'a=b',
        'Strict-Transport-Security': 'max-age=1',
        'Alt-Svc': 'h3=":1"',
        'Clear-Site-Data': '"*"',
      },
      ...{
        'Privatemode-Proxy-Secret-Id': 'forged',
        'Access-Control-Allow-Origin': '*',
        'Privatemode-Proxy-Error': 'forged',
        'Privatemode-Proxy-Unauthenticated': 'false',
        ...{ Refresh: '0; url=https://evil.example', Link: '<https://evil.example>; rel=preload' },
        ...{ 'WWW-Authenticate': 'Basic realm="x"', 'Service-Worker-Allowed': '/', Location: '/evil' },
        ...{ 'Content-Type': 'text/html', 'Content-Disposition': 'attachment', Vary: '*' },
        Connection: 'X-Hop',
        'X-Hop': 'y',
      },
      ...{ 'Keep-Alive': 'timeout=1', 'Request-Id': 'req_1', 'X-RateLimit-Remaining': '3', Server: 'vllm' },
    };
    upstream.on(saying((body) => completion(body, forged)));
    const { headers, status } = await ask(post());
    assert.equal(status, 200);
    for (const name of ['set-cookie', 'strict-transport-security', 'alt-svc', 'clear-site-data', 'x-hop']) {
      assert.equal(headers[name], undefined, name);
    }
    assert.equal(headers['access-control-allow-origin'], undefined);
    assert.match(headers['privatemode-proxy-secret-id'] ?? '', /=$/);
    assert.notEqual(headers['keep-alive'], 'timeout=1');
    assert.equal(headers['content-type'], 'application/json');
    assert.deepEqual([headers['request-id'], headers['x-ratelimit-remaining']], ['req_1', '3']);
    // By allow-list: whatever else there is on the answer, we put there.
    assert.deepEqual(Object.keys(headers).toSorted(), [
      ...['connection', 'content-length', 'content-security-policy', 'content-type', 'date', 'keep-alive'],
      ...[
        'privatemode-proxy-attested-at',
        'privatemode-proxy-manifest-sha256',
        'privatemode-proxy-request-id',
      ],
      ...['privatemode-proxy-secret-id', 'request-id', 'x-content-type-options', 'x-ratelimit-remaining'],
      'x-request-id',
    ]);
  });
});

describe('answers of endpoints without encryption', { concurrency: true }, () => {
  it('are not shown where they are compressed', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const zipped = gzipSync('{"data":[]}').toString('latin1');
    upstream.on((scripted) => {
      const length = { 'Content-Length': String(zipped.length) };
      return scripted.write(http(200, zipped, { ...length, 'Content-Encoding': 'gzip' }));
    });
    assertOurs(await ask(get('/v1/models')), 'openai', 502, 'response_malformed');
  });
});

describe('whom the data path trusts', () => {
  it('a certificate of an unknown authority: 502 that says whose, and what to do, once', async (t) => {
    const { upstream, gateway: other } = await gatewayFixture(t);
    const stranger = await startGateway({
      upstream: { port: upstream.port, ca: createTestAuthority('another').pem },
    });
    const client = rawClient(stranger.port);
    t.after(async () => {
      client.socket.destroy();
      await stranger.close();
    });
    client.send(post());
    const answer = await answerTo(client);
    assertOurs(answer, 'openai', 502, 'upstream_tls_untrusted');
    for (const words of ['certificate signed by unknown authority', 'SSL_CERT_FILE', 'scripted upstream']) {
      assert.ok(answer.body.includes(words), words);
    }
    assert.equal(answer.headers['x-should-retry'], 'false');
    assert.equal(upstream.requests.length, 0);
    assert.equal(other.active(), 0);
  });

  it('a service that cannot be reached: 502', async (t) => {
    const gateway = await startGateway({ upstream: { port: 1, ca: createTestAuthority('nobody').pem } });
    const client = rawClient(gateway.port);
    t.after(async () => {
      client.socket.destroy();
      await gateway.close();
    });
    client.send(get('/v1/models'));
    assertOurs(await answerTo(client), 'openai', 502, 'upstream_unreachable');
  });
});
