import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  brokenOff,
  clientTooOld,
  describeRefusal,
  upstreamFailure,
} from '../../lib/network/transport-errors.ts';
import { TIMES } from '../../lib/times.ts';

const failed = (code: string, syscall?: string): Error => Object.assign(new Error(code), { code, syscall });

it('a certificate that is refused is named with the reason, and one outside its validity period says to check the clock', () => {
  for (const [code, reason, clock] of [
    ['CERT_HAS_EXPIRED', 'it has expired', 'late'],
    ['CERT_NOT_YET_VALID', 'it is not valid yet', 'early'],
    ['INVALID_CA', 'INVALID_CA', undefined],
  ] as const) {
    const wrapped = new Error('fetch failed', { cause: failed(code) }); // as undici does
    const error = describeRefusal(wrapped, 'api.example');
    assert.equal(error?.code, 'upstream_tls_untrusted');
    assert.equal(error.message, `api.example presented a certificate that is refused: ${reason}`);
    assert.equal(error.remedy.startsWith('Check the clock of this machine first'), clock !== undefined);
    assert.deepEqual(error.detail, clock && { clock });
  }
});

describe('an attempt that failed before a response', () => {
  const state = { host: 'api.example', heard: false, reused: false, age: 3_000, sent: true, times: TIMES };
  const rows: [code: string, syscall: string, more: object, ours: string, retry: string | undefined][] = [
    ['ECONNRESET', 'read', {}, 'upstream_reset', 'connection_reset'],
    ['ECONNRESET', 'read', { heard: true }, 'upstream_reset', undefined],
    ['ECONNRESET', 'read', { sent: false }, 'upstream_closed_during_upload', undefined],
    ['ECONNRESET', 'write', {}, 'upstream_closed_during_upload', undefined],
    ['ECONNRESET', '', {}, 'upstream_reset', undefined],
    ['EPIPE', 'write', {}, 'upstream_closed_during_upload', undefined],
    ['EPIPE', 'write', { reused: true, age: 1 }, 'upstream_closed_during_upload', 'stale_connection'],
    ['ECONNRESET', '', { reused: true, age: 1 }, 'upstream_reset', 'stale_connection'],
    ['ECONNRESET', '', { reused: true, age: 2_000 }, 'upstream_reset', undefined],
    ['EPERM', 'read', {}, 'upstream_reset', undefined], // the code has no row
    ['EPERM', 'connect', { age: undefined, sent: false }, 'upstream_unreachable', undefined],
    ['EMFILE', 'connect', { age: undefined, sent: false }, 'resources_exhausted', undefined],
    ['HPE_INVALID_CONSTANT', '', {}, 'response_malformed', undefined],
  ];
  it('is retried only if nothing of a response can have been lost', () => {
    for (const [code, syscall, more, ours, retry] of rows) {
      const failure = upstreamFailure(failed(code, syscall), { ...state, ...more });
      assert.deepEqual([failure.code, failure.retry], [ours, retry], JSON.stringify([code, syscall, more]));
    }
  });
});

const told = (text: string) => clientTooOld(Buffer.from(text), 'v1.40.0');
const padded = (bytes: number): string => 'minimum client version v1.46'.padEnd(bytes, ' ');

const ASKS: readonly (readonly [text: string, version: string])[] = [
  ['minimum version v1.2', '1.2'],
  ['minimum client version v1.2.3', '1.2.3'],
  ['{"error":{"message":"Minimum Client Version v1.46.","type":""}}', '1.46'],
  ['client v1.40.0 is below the minimum client version v1.46.0, see the page', '1.46.0'],
  [padded(4096), '1.46'],
];

const ASKS_NOTHING: readonly string[] = [
  '',
  'minimum version 1.2',
  'minimum version v1',
  'minimum version v1.2.3.4',
  'minimum version v1.2evil',
  'minimum version v11111.2',
  'minimum server version v1.2',
  'a minimum client  version v1.2',
  padded(4097),
];

it('an unencrypted error asks for a newer client by a version in a fixed form, of which only the digits are quoted', () => {
  for (const [text, version] of ASKS) {
    const error = told(text);
    assert.equal(error?.code, 'client_too_old', text);
    assert.match(
      error.message,
      new RegExp(`nothing authenticates.* version ${version} or newer.* v1\\.40\\.0$`),
    );
  }
  for (const text of ASKS_NOTHING) assert.equal(told(text), undefined, text);
});

it('a stream that broke off is called a lost connection, after which pi asks again', () =>
  assert.match(brokenOff().message, /connection.?lost/i));
