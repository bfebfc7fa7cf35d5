/** What a client is told, by cause, in both styles (docs/protocol/inference.md section 11, "a better mapping"). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession, startGateway, type TestGatewayOptions } from '../support/gateway.ts';
import { answerTo, CANARY, chatBody, gatewayFixture, get, post } from '../support/gateway-fixture.ts';
import { type RawAnswer, rawClient } from '../support/raw-client.ts';
import type { Script } from '../support/scripted-upstream.ts';
import { completion, http, plainError, sealedAnswers, tampered } from '../support/sealed-answers.ts';
import { createTestAuthority } from '../support/tls-authority.ts';

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
}

const JSON_TYPE = { 'Content-Type': 'application/json' };

const CAUSES: Readonly<Record<string, Cause>> = {
  'bad JSON': { body: '{', status: 400, code: 'invalid_json' },
  'no model': { body: '{"messages":[]}', status: 400, code: 'missing_model' },
  'a local media URL': {
    body: chatBody({
      messages: [{ role: 'user', content: [{ type: 'video_url', video_url: { url: `https://${CANARY}` } }] }],
    }),
    status: 400,
    code: 'media_url_refused',
  },
  'a compressed body': { headers: ['Content-Encoding: gzip'], status: 415, code: 'unsupported_encoding' },
  'a body over the limit': { options: { limits: { maxBodyBytes: 20 } }, status: 413, code: 'body_too_large' },
  'a redirect': {
    script: saying(() => 'HTTP/1.1 308 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n'),
    status: 502,
    code: 'upstream_redirect',
  },
  'a success that says it is not encrypted': {
    script: saying(() => http(200, '{"choices":[]}', { ...JSON_TYPE, 'Privatemode-Encrypted': 'false' })),
    status: 502,
    code: 'response_not_encrypted',
  },
  'a plain success': {
    script: saying(() => http(200, '{"choices":[]}', JSON_TYPE)),
    status: 502,
    code: 'response_not_authentic',
  },
  'a forged answer': {
    script: saying((body) => tampered(completion(body))),
    status: 502,
    code: 'response_not_authentic',
  },
  'an answer that is no JSON': {
    script: saying(() => http(200, '<html>', JSON_TYPE)),
    status: 502,
    code: 'response_malformed',
  },
  'a compressed answer': {
    script: saying(() =>
      http(200, gzipSync('{}').toString('latin1'), { 'Content-Encoding': 'gzip', 'Content-Length': '22' }),
    ),
    status: 502,
    code: 'response_malformed',
  },
  'a head beyond all measure': {
    script: saying(() => http(200, '{}', { X: 'y'.repeat(100_000) })),
    status: 502,
    code: 'response_malformed',
  },
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
}

for (const style of ['openai', 'anthropic'] as const) {
  describe(`errors in the ${style} style`, { concurrency: true }, () => {
    for (const [name, { script, body, headers, options, status, code }] of Object.entries(CAUSES)) {
      it(`${name}: ${status} ${code}`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t, options);
        if (script !== undefined) upstream.on(script);
        const answer = await ask(
          post(body ?? chatBody(), { path: STYLES[style].path, headers: headers ?? [] }),
        );
        assertOurs(answer, style, status, code);
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

describe('errors of the service', { concurrency: true }, () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504]) {
    it(`a plain ${status} that says so is shown as it is`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(
        saying(() =>
          plainError(status, 'words of the service', { 'Retry-After': '7', 'X-RateLimit-Limit': '9' }),
        ),
      );
      const answer = await ask(post());
      assert.equal(answer.status, status);
      assert.match(answer.body, /words of the service/);
      assert.equal(answer.headers['privatemode-encrypted'], 'false');
      assert.deepEqual([answer.headers['retry-after'], answer.headers['x-ratelimit-limit']], ['7', '9']);
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
    });
  }
});

describe('headers of the service', { concurrency: true }, () => {
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
    assert.deepEqual(
      [headers['request-id'], headers['x-ratelimit-remaining'], headers['server']],
      ['req_1', '3', 'vllm'],
    );
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

  it('keep the Vary headers of both sides, in one list', async (t) => {
    const cors = { allowedOrigins: ['https://chat.example'], ownNames: [] };
    const { upstream, ask } = await gatewayFixture(t, { cors });
    upstream.on((scripted) => scripted.write(http(200, '{}', { Vary: 'Accept\r\nVary: Cookie, accept' })));
    const answer = await ask(get('/v1/models'));
    assert.deepEqual([answer.status, answer.headers['vary']], [200, 'accept, Cookie, Origin']);
  });
});

describe('trap 18: whom the data path trusts', () => {
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
