import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { type ErrorFormat, errorEvent, errorResponse } from '../../lib/api/error-format.ts';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';

const ID = 'proxy_0199';
const answerTo = (code: ErrorCode, format: ErrorFormat, accept?: string) =>
  errorResponse(new PrivatemodeError(code, 'what happened'), { format, requestId: ID, accept });
const CODES = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => ERRORS[code].status !== 0);

describe('error answers', () => {
  for (const code of CODES) {
    const { status, remedy } = ERRORS[code];
    const sentence = `what happened. ${remedy} (request id ${ID})`;

    it(`${code} in the OpenAI form`, () => {
      const { body, ...answer } = answerTo(code, 'openai');
      const { error } = JSON.parse(body.toString());
      assert.equal(answer.status, status);
      assert.equal(answer.headers['content-type'], 'application/json');
      assert.equal(answer.headers['content-length'], String(body.length));
      assert.deepEqual([error.message, error.param, error.code], [sentence, null, code]);
    });
    it(`${code} in the Anthropic form`, () => {
      const { body, ...answer } = answerTo(code, 'anthropic');
      const { type, error, request_id } = JSON.parse(body.toString());
      assert.equal(answer.status, status);
      assert.deepEqual([type, error.message, request_id], ['error', sentence, ID]);
    });
  }

  const types: [code: ErrorCode, openai: string, anthropic: string][] = [
    ['invalid_json', 'invalid_request_error', 'invalid_request_error'],
    ['attestation_failed', 'invalid_request_error', 'policy_blocked'],
    ['manifest_mismatch', 'invalid_request_error', 'policy_blocked'],
    ['api_key_missing', 'authentication_error', 'authentication_error'],
    ['origin_forbidden', 'permission_error', 'permission_error'],
    ['unknown_path', 'invalid_request_error', 'not_found_error'],
    ['method_not_allowed', 'invalid_request_error', 'invalid_request_error'],
    ['upload_too_slow', 'invalid_request_error', 'invalid_request_error'],
    ['websocket_unsupported', 'invalid_request_error', 'invalid_request_error'],
    ['body_too_large', 'invalid_request_error', 'request_too_large'],
    ['unsupported_encoding', 'invalid_request_error', 'invalid_request_error'],
    ['too_many_headers', 'invalid_request_error', 'invalid_request_error'],
    ['invalid_host', 'invalid_request_error', 'invalid_request_error'],
    ['malformed_request', 'invalid_request_error', 'invalid_request_error'],
    ['internal', 'server_error', 'api_error'],
    ['not_supported', 'invalid_request_error', 'invalid_request_error'],
    ['upstream_reset', 'server_error', 'api_error'],
    ['client_throttled', 'rate_limit_error', 'rate_limit_error'],
    ['not_ready', 'server_error', 'overloaded_error'],
    ['first_byte_timeout', 'server_error', 'timeout_error'],
  ];
  for (const [code, openai, anthropic] of types) {
    it(`${code} has its type`, () => {
      assert.equal(JSON.parse(answerTo(code, 'openai').body.toString()).error.type, openai);
      assert.equal(JSON.parse(answerTo(code, 'anthropic').body.toString()).error.type, anthropic);
    });
  }

  it('every status of the error table has a type of its own choosing', () => {
    const statuses = new Set(CODES.map((code) => ERRORS[code].status));
    const chosen = new Set([...types.map(([code]) => ERRORS[code].status)]);
    assert.deepEqual(
      [...statuses].filter((status) => !chosen.has(status)),
      [],
    );
  });

  it('a path that nobody knows is answered in plain text', () => {
    const { headers, body } = answerTo('unknown_path', 'plain');
    assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
    assert.equal(body.toString(), `what happened. ${ERRORS.unknown_path.remedy} (request id ${ID})\n`);
  });

  it('says itself that it is not encrypted, and that it is what it says', () => {
    const { headers } = answerTo('invalid_json', 'openai');
    assert.equal(headers['privatemode-encrypted'], 'false');
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['content-security-policy'], 'sandbox');
    assert.equal(headers['cache-control'], 'no-store');
  });

  for (const format of ['openai', 'anthropic', 'plain'] as const) {
    it(`names its code in a header that only we set, in the ${format} form`, () => {
      for (const code of CODES) assert.equal(answerTo(code, format).headers['privatemode-proxy-error'], code);
    });
  }

  /** The header by code, for all codes whose answers have it. */
  const having = (name: string): Record<string, string> =>
    Object.fromEntries(
      CODES.map((code) => [code, answerTo(code, 'openai').headers[name] ?? '']).filter(([, value]) => value),
    );

  it('tells when to try again what passes by itself, and only that', () => {
    assert.deepEqual(having('retry-after'), {
      not_ready: '2',
      shutting_down: '2',
      manifest_unavailable: '5',
      collateral_unavailable: '5',
      secret_exchange_failed: '5',
      control_api_failed: '5',
      too_many_uploads: '2',
      too_many_responses: '2',
      client_throttled: '60',
      limits_unavailable: '2',
    });
  });

  it('tells how long this error lasts, where that is known better', () => {
    const late = new PrivatemodeError('requests_per_minute_reached', 'so it is', { retryAfter: 17 });
    const { headers } = errorResponse(late, { format: 'openai', requestId: 'proxy-1' });
    assert.equal(headers['retry-after'], '17');
  });

  it('asks clients not to repeat what stays as it is, and only that', () => {
    assert.deepEqual(having('x-should-retry'), {
      api_key_missing: 'false',
      api_key_rejected: 'false',
      client_unknown: 'false',
      tokens_per_day_reached: 'false',
      upstream_tls_untrusted: 'false',
      upstream_http2_only: 'false',
      upstream_redirect: 'false',
      attestation_failed: 'false',
      evidence_malformed: 'false',
      manifest_mismatch: 'false',
      manifest_unsupported: 'false',
      manifest_invalid: 'false',
      manifest_log_failed: 'false',
    });
  });

  it('401 asks for a bearer, 405 names the methods', () => {
    assert.equal(answerTo('api_key_missing', 'openai').headers['www-authenticate'], 'Bearer');
    const error = new PrivatemodeError('method_not_allowed', 'no');
    const { headers } = errorResponse(error, { format: 'openai', requestId: ID, allow: ['GET', 'HEAD'] });
    assert.equal(headers['allow'], 'GET, HEAD');
  });

  it('is an event where the client accepts nothing else, name and data together', () => {
    const { status, headers, body } = answerTo('invalid_json', 'anthropic', 'text/event-stream');
    assert.deepEqual([status, headers['content-type']], [400, 'text/event-stream']);
    assert.match(body.toString(), /^event: error\ndata: \{.*\}\n\n$/);
    assert.equal(
      answerTo('invalid_json', 'openai', 'application/json, text/event-stream').headers['content-type'],
      'application/json',
    );
    assert.match(
      answerTo('unknown_path', 'plain', 'text/event-stream').headers['content-type'] ?? '',
      /^text\/plain/,
    );
  });
});

describe('error events', () => {
  const error = new PrivatemodeError('response_not_authentic', 'a line\nand another');

  it('are one event each, on one line', () => {
    const openai = errorEvent(error, { format: 'openai', requestId: ID }).toString();
    const anthropic = errorEvent(error, { format: 'anthropic', requestId: ID }).toString();
    assert.match(openai, /^data: \{"error":\{.*"code":"response_not_authentic"\}\}\n\n$/);
    assert.match(anthropic, /^event: error\ndata: \{"type":"error",.*\}\n\n$/);
  });
});

describe('the official SDKs understand', () => {
  async function serving<T>(answer: RequestListener, use: (origin: string) => Promise<T>): Promise<T> {
    const server = createServer(answer);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    } finally {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  const unary =
    (code: ErrorCode, format: ErrorFormat, asked: string[] = []): RequestListener =>
    (req, res) => {
      asked.push(req.url ?? '');
      const { status, headers, body } = answerTo(code, format);
      res.writeHead(status, headers).end(body);
    };
  const streamed =
    (before: string, format: ErrorFormat): RequestListener =>
    (_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      const error = new PrivatemodeError('stream_unfinished', 'the stream broke');
      res.end(before + errorEvent(error, { format, requestId: ID }));
    };
  const chat = (baseURL: string, stream: boolean) =>
    new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: 'k', maxRetries: 2 }).chat.completions.create({
      model: 'm',
      messages: [],
      stream,
    });
  const message = (baseURL: string, stream: boolean) =>
    new Anthropic({ baseURL, apiKey: 'k', maxRetries: 2 }).messages.create({
      model: 'm',
      max_tokens: 1,
      messages: [],
      stream,
    });

  it('OpenAI: a refused request is its BadRequestError, with our code', async () => {
    const thrown = await serving(unary('invalid_json', 'openai'), (origin) =>
      chat(origin, false).catch((error) => error),
    );
    assert.ok(thrown instanceof OpenAI.BadRequestError);
    assert.deepEqual([thrown.code, thrown.type], ['invalid_json', 'invalid_request_error']);
  });

  it('Anthropic: a refused request is its AuthenticationError', async () => {
    const thrown = await serving(unary('api_key_rejected', 'anthropic'), (origin) =>
      message(origin, false).catch((error) => error),
    );
    assert.ok(thrown instanceof Anthropic.AuthenticationError);
    assert.match(thrown.message, /request id proxy_0199/);
  });

  it('neither repeats what stays as it is', async () => {
    const asked: string[] = [];
    await serving(unary('not_supported', 'openai', asked), (origin) =>
      chat(origin, false).catch(() => undefined),
    );
    await serving(unary('attestation_failed', 'anthropic', asked), (origin) =>
      message(origin, false).catch(() => undefined),
    );
    assert.equal(asked.length, 2);
  });

  it('OpenAI: an error event ends the stream with an error', async () => {
    const token = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n';
    const seen: unknown[] = [];
    const thrown = await serving(streamed(token, 'openai'), async (origin) => {
      try {
        for await (const chunk of (await chat(origin, true)) as AsyncIterable<unknown>) seen.push(chunk);
      } catch (error) {
        return error;
      }
    });
    assert.equal(seen.length, 1);
    assert.ok(thrown instanceof OpenAI.APIError, String(thrown));
    assert.equal(thrown.code, 'stream_unfinished');
  });

  it('Anthropic: an error event ends the stream with an error', async () => {
    const start = 'event: ping\ndata: {"type":"ping"}\n\n';
    const thrown = await serving(streamed(start, 'anthropic'), async (origin) => {
      try {
        for await (const _ of (await message(origin, true)) as AsyncIterable<unknown>);
      } catch (error) {
        return error;
      }
    });
    assert.ok(thrown instanceof Anthropic.APIError, String(thrown));
    assert.match(thrown.message, /the stream broke/);
  });
});
