import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  AUDIT_HEADERS,
  announced,
  attemptHeaders,
  type ReceivedHeaders,
  remoteHeaders,
  responseHeaders,
} from '../../lib/http-rules/headers.ts';

const HEAD = { host: 'api.example', authorization: undefined, requestId: 'proxy_1_0', protocolVersion: 'v1' };
const toRemote = (headers: ReceivedHeaders): Record<string, string> =>
  attemptHeaders({ ...HEAD, headers }, undefined, {});
const ADDED = Object.keys(toRemote({}));

/** What of these headers got through, apart from what we add. */
const passed = (headers: ReceivedHeaders): Record<string, string> =>
  Object.fromEntries(Object.entries(toRemote(headers)).filter(([name]) => !ADDED.includes(name)));

describe('request headers towards the remote', () => {
  it('have the five of the application that decide what the response is', () => {
    const five = {
      accept: 'text/event-stream',
      'content-type': 'application/json',
      'anthropic-version': '2023-06-01',
      'anthropic-beta': 'a,b',
      'openai-beta': 'assistants=v2',
    };
    assert.deepEqual(passed(five), five);
  });

  it('have nothing else of the application', () => {
    const kept = [
      ...['cookie', 'user-agent', 'referer', 'origin', 'via', 'forwarded', 'x-real-ip', 'accept-language'],
      ...['x-forwarded-for', 'sec-fetch-site', 'sec-ch-ua', 'traceparent', 'x-session-id', 'x-request-id'],
      ...['x-api-key', 'authorization', 'proxy-authorization', 'privatemode-secret-id', 'x-stainless-os'],
      ...['privatemode-shard-key', 'privatemode-target-model', 'privatemode-encrypted', 'te', 'expect'],
      ...['connection', 'transfer-encoding', 'content-length', 'content-encoding', 'range', '__proto__'],
      // Of the vendors' names, only the documented ones that decide over a response go out.
      ...['openai-organization', 'openai-project', 'openai-beta-2', 'openai-', 'anthropic-user-id'],
      ...['x-anthropic-version', 'anthropic-beta-x', 'anthropic-dangerous-direct-browser-access'],
    ];
    assert.deepEqual(passed(Object.fromEntries(kept.map((name) => [name, 'CANARY']))), {});
  });

  it('are ours where the gateway decides, whatever the client says', () => {
    const { platform, arch } = process;
    const ours = {
      host: 'api.example',
      'accept-encoding': 'identity',
      'Privatemode-Version': 'v1',
      ...announced({ platform, arch }),
      'privatemode-user-request-id': 'proxy_1_0',
    };
    const sent = Object.fromEntries(Object.keys(ours).map((name) => [name.toLowerCase(), 'CANARY']));
    assert.deepEqual(toRemote(sent), ours);
  });

  it('have the authorization and the content type that the gateway decided on, if any', () => {
    const headers = { authorization: 'Bearer mine', 'content-type': 'multipart/form-data; boundary=mine' };
    const contentType = 'multipart/form-data; boundary=ours';
    const decided = { ...HEAD, headers, authorization: 'Bearer ours' };
    const sent = attemptHeaders(decided, undefined, { contentType });
    assert.deepEqual([sent['authorization'], sent['content-type']], ['Bearer ours', contentType]);
    const none = attemptHeaders({ ...HEAD, headers }, undefined, undefined);
    assert.ok(!('authorization' in none || 'content-type' in none));
  });

  it('lack what Connection names', () => {
    const headers = { connection: 'close, Anthropic-Beta,accept', 'anthropic-beta': 'x', accept: 'y' };
    assert.deepEqual(passed(headers), {});
  });

  it('lack a value that Node would refuse to send, instead of throwing mid-request', () => {
    const headers = { 'anthropic-beta': 'a\x01b', 'openai-beta': '\u0416', accept: 'caf\xe9' };
    assert.deepEqual(passed(headers), { accept: 'caf\xe9' });
  });

  it('announce the machine by the names of Go', () => {
    const names = ({ platform = '', arch = '' }): string[] => Object.values(announced({ platform, arch }));
    assert.deepEqual(names({ platform: 'linux', arch: 'x64' }), ['linux', 'amd64', 'Proxy']);
    assert.deepEqual(names({ platform: 'win32', arch: 'arm64' }), ['windows', 'arm64', 'Proxy']);
    assert.deepEqual(names({ platform: 'darwin', arch: 'ppc64' }), ['darwin', 'ppc64le', 'Proxy']);
  });
});

describe('response headers towards the application', () => {
  it('are hints of when to try again; ids, date and cache rules also pass beside an authentic body', () => {
    const hints = ['retry-after', 'x-ratelimit-limit-tokens', 'anthropic-ratelimit-tokens-limit'];
    const ofTheAnswer = ['request-id', 'x-request-id', 'cache-control', 'date'];
    const others = [
      ...['connection', 'transfer-encoding', 'content-length', 'content-encoding', 'content-type', 'upgrade'],
      ...['set-cookie', 'www-authenticate', 'location', 'refresh', 'link', 'alt-svc', 'clear-site-data'],
      ...['content-security-policy', 'access-control-allow-origin', 'strict-transport-security', 'server'],
      ...['privatemode-encrypted', 'privatemode-proxy-secret-id', 'privatemode-proxy-unauthenticated'],
      ...[
        'via',
        'ratelimit-x',
        'x-ratelimit',
        'x-should-retry',
        'etag',
        'age',
        'expires',
        'date-',
        '__proto__',
      ],
    ];
    const headers = Object.fromEntries([...hints, ...ofTheAnswer, ...others].map((name) => [name, 'v']));
    assert.deepEqual(Object.keys(remoteHeaders(headers, false)).sort(), [...hints].sort());
    assert.deepEqual(Object.keys(remoteHeaders(headers, true)).sort(), [...hints, ...ofTheAnswer].sort());
  });

  it('lack what Connection names, and values that Node would refuse to send', () => {
    const lost = { 'retry-after': '1', 'request-id': '\u0416' };
    const headers = { connection: 'Retry-After, close', date: '2', ...lost };
    assert.deepEqual(remoteHeaders(headers, true), { date: '2' });
  });

  it('name the secret, the manifest, the time of attestation and the request that an authentic body belongs to', () => {
    const epoch = { secretId: 'c2VjcmV0', manifestSha256: 'ab'.repeat(32), attestedAt: 1_795_234_567_891 };
    const headers = responseHeaders({
      ...{ format: 'openai', requestId: 'proxy_1', headers: {}, contentType: 'application/json' },
      ...{ own: { 'x-request-id': 'of-the-client' }, encrypted: true, epoch },
    });
    assert.deepEqual(headers, {
      'x-request-id': 'of-the-client',
      'x-content-type-options': 'nosniff',
      'content-security-policy': 'sandbox',
      'content-type': 'application/json',
      'Privatemode-Proxy-Secret-Id': 'c2VjcmV0',
      'Privatemode-Proxy-Manifest-Sha256': 'ab'.repeat(32),
      'Privatemode-Proxy-Attested-At': '2026-11-21T04:16:07.891Z',
      'Privatemode-Proxy-Request-Id': 'proxy_1',
    });
    assert.equal(AUDIT_HEADERS.receipt, 'Privatemode-Proxy-Receipt');
  });
});
