/** How an error is written in each API style. What clients make of it: test/applications/errors.test.ts. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorFormat, errorEvent, errorResponse, newRequestId } from '../../lib/api/error-response.ts';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';

const ID = 'proxy_0199';
const answerTo = (code: ErrorCode, format: ErrorFormat, accept?: string) =>
  errorResponse(new PrivatemodeError(code, 'what happened'), { format, requestId: ID, accept });
const CODES = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => ERRORS[code].status !== 0);

const SENTENCE = 'what happened. Send one JSON object as the request body. (request id proxy_0199)';
const OPENAI = `{"error":{"message":"${SENTENCE}","type":"invalid_request_error","param":null,"code":"invalid_json"}}`;
const ANTHROPIC = `{"type":"error","error":{"type":"invalid_request_error","message":"${SENTENCE}","code":"invalid_json"},"request_id":"proxy_0199"}`;

describe('an error response', () => {
  const EVENTS = 'text/event-stream';
  const BOTH = 'application/json, text/event-stream';
  const shapes: [format: ErrorFormat, accept: string | undefined, type: string, body: string][] = [
    ['openai', undefined, 'application/json', OPENAI],
    ['openai', BOTH, 'application/json', OPENAI],
    ['openai', EVENTS, EVENTS, `event: error\ndata: ${OPENAI}\n\n`],
    ['responses', EVENTS, 'application/json', OPENAI],
    ['anthropic', undefined, 'application/json', ANTHROPIC],
    ['anthropic', EVENTS, EVENTS, `event: error\ndata: ${ANTHROPIC}\n\n`],
    ['plain', undefined, 'text/plain; charset=utf-8', `${SENTENCE}\n`],
    ['plain', EVENTS, 'text/plain; charset=utf-8', `${SENTENCE}\n`],
  ];
  it('has the form of its API, and is an event for a client that accepts nothing else', () => {
    for (const [format, accept, type, text] of shapes) {
      const { status, headers, body } = answerTo('invalid_json', format, accept);
      assert.deepEqual([status, body.toString()], [400, text]);
      assert.deepEqual(headers, {
        'content-type': type,
        'content-length': String(text.length),
        'cache-control': 'no-store',
        'privatemode-encrypted': 'false',
        'privatemode-proxy-error': 'invalid_json',
        'x-content-type-options': 'nosniff',
        'content-security-policy': 'sandbox',
        [format === 'anthropic' ? 'request-id' : 'x-request-id']: ID,
      });
    }
  });

  it('names its code in privatemode-proxy-error and says what to do, whatever the code', () => {
    for (const code of CODES) {
      const { status, remedies } = ERRORS[code];
      const { body, ...answer } = answerTo(code, 'openai');
      const { error } = JSON.parse(body.toString());
      assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [status, code]);
      const message = `what happened. ${remedies.operator} (request id ${ID})`;
      assert.deepEqual([error.message, error.code], [message, code]);
    }
  });

  const types: [code: ErrorCode, openai: string, anthropic: string][] = [
    ['invalid_json', 'invalid_request_error', 'invalid_request_error'],
    ['attestation_failed', 'invalid_request_error', 'policy_blocked'],
    ['api_key_missing', 'authentication_error', 'authentication_error'],
    ['max_concurrent_reached', 'rate_limit_error', 'rate_limit_error'],
    ['origin_forbidden', 'permission_error', 'permission_error'],
    ['unknown_path', 'invalid_request_error', 'not_found_error'],
    ['method_not_allowed', 'invalid_request_error', 'invalid_request_error'],
    ['upload_too_slow', 'invalid_request_error', 'invalid_request_error'],
    ['websocket_unsupported', 'invalid_request_error', 'invalid_request_error'],
    ['body_too_large', 'invalid_request_error', 'request_too_large'],
    ['unsupported_encoding', 'invalid_request_error', 'invalid_request_error'],
    ['too_many_headers', 'invalid_request_error', 'invalid_request_error'],
    ['internal', 'server_error', 'api_error'],
    ['upstream_reset', 'server_error', 'api_error'],
    ['not_ready', 'server_error', 'overloaded_error'],
    ['first_byte_timeout', 'server_error', 'timeout_error'],
  ];
  it('has the type of its status in each API style, for every status', () => {
    for (const [code, openai, anthropic] of types) {
      assert.equal(JSON.parse(answerTo(code, 'openai').body.toString()).error.type, openai, code);
      assert.equal(JSON.parse(answerTo(code, 'anthropic').body.toString()).error.type, anthropic, code);
    }
    const statuses = new Set(CODES.map((code) => ERRORS[code].status));
    assert.deepEqual(statuses, new Set(types.map(([code]) => ERRORS[code].status)));
  });

  /** The header by code, for all codes whose answers have it. */
  const having = (name: string): Record<string, string> =>
    Object.fromEntries(
      CODES.map((code) => [code, answerTo(code, 'openai').headers[name] ?? '']).filter(([, value]) => value),
    );

  it('has Retry-After for exactly the codes whose cause passes by itself', () => {
    assert.deepEqual(having('retry-after'), {
      ...{ not_ready: '2', shutting_down: '2', manifest_unavailable: '5', collateral_unavailable: '5' },
      ...{ secret_exchange_failed: '5', control_api_failed: '5', secret_denied: '5' },
      ...{ too_many_uploads: '2', too_many_responses: '2', limits_unavailable: '2' },
    });
  });

  it('takes Retry-After from the error, if the error states one, rather than from its code', () => {
    const late = new PrivatemodeError('not_ready', 'so it is', { retryAfter: 17 });
    assert.equal(errorResponse(late, { format: 'openai', requestId: ID }).headers['retry-after'], '17');
  });

  it('has x-should-retry: false for exactly the codes whose cause stays as it is', () => {
    assert.deepEqual(Object.keys(having('x-should-retry')).toSorted(), [
      ...['api_key_missing', 'api_key_rejected', 'attestation_failed', 'client_too_old', 'client_unknown'],
      ...['evidence_malformed', 'manifest_invalid', 'manifest_log_failed', 'manifest_mismatch'],
      ...['manifest_unsupported', 'service_key_rejected', 'tokens_per_day_reached', 'upstream_http2_only'],
      ...['upstream_redirect', 'upstream_tls_untrusted'],
    ]);
  });

  it('has WWW-Authenticate: Bearer with status 401, and the allowed methods in Allow with status 405', () => {
    assert.equal(answerTo('api_key_missing', 'openai').headers['www-authenticate'], 'Bearer');
    const error = new PrivatemodeError('method_not_allowed', 'no');
    const { headers } = errorResponse(error, { format: 'openai', requestId: ID, allow: ['GET', 'HEAD'] });
    assert.equal(headers['allow'], 'GET, HEAD');
  });
});

it('an error event has its data on one line, even if its message has several lines', () => {
  const error = new PrivatemodeError('response_not_authentic', 'a line\nand another');
  const openai = errorEvent(error, { format: 'openai', requestId: ID }).toString();
  const anthropic = errorEvent(error, { format: 'anthropic', requestId: ID }).toString();
  assert.match(openai, /^data: \{"error":\{.*"code":"response_not_authentic"\}\}\n\n$/);
  assert.match(anthropic, /^event: error\ndata: \{"type":"error",.*\}\n\n$/);
});

it('request ids are UUIDs of version 7: they begin with the time, and have 74 random bits, drawn anew for each', () => {
  const now = 0x0123456789ab;
  const uuid = /^proxy_01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  const ids = Array.from({ length: 200 }, () => newRequestId('proxy', now));
  for (const id of ids) assert.match(id, uuid);
  const bits = ids.map((id) => BigInt(`0x${id.slice(6).replaceAll('-', '')}`));
  const seen = (bit: bigint): number => new Set(bits.map((each) => (each >> bit) & 1n)).size;
  const drawn = Array.from({ length: 128 }, (_, bit) => seen(BigInt(bit))).filter((count) => count === 2);
  assert.equal(drawn.length, 74);
});
