import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { failureMessage } from '../../lib/session/events.ts';

describe('the message of a failed renewal', () => {
  const rows: [code: ErrorCode, retryIn: number | undefined, words: string][] = [
    ['upstream_unreachable', 900, 'The service cannot be reached; trying again in 1 second at the latest'],
    [
      'upstream_tls_untrusted',
      45_200,
      'A TLS certificate is not trusted; trying again in 45 seconds at the latest',
    ],
    [
      'manifest_log_failed',
      2_000,
      'The workspace cannot be written; trying again in 2 seconds at the latest',
    ],
    ['attestation_failed', 1_000, 'Attestation of the remote failed; trying again in 1 second at the latest'],
    [
      'api_key_rejected',
      undefined,
      'The service does not accept the API key; the next request with an API key tries again',
    ],
    ['internal', 100, 'The remote could not be verified; trying again in 1 second at the latest'],
  ];
  for (const [code, retryIn, words] of rows) {
    it(words, () => assert.equal(failureMessage(new PrivatemodeError(code, 'x'), retryIn), words));
  }

  it('speaks of a failed attestation for no other cause', () => {
    const others = [
      'upstream_unreachable',
      'upstream_tls_untrusted',
      'manifest_log_failed',
      'control_api_failed',
    ] as const;
    for (const code of others)
      assert.doesNotMatch(failureMessage(new PrivatemodeError(code, 'x'), 1), /ttestation/);
  });
});
