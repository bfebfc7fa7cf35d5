import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { failureMessage } from '../../lib/session/events.ts';

describe('the message of a failed renewal', () => {
  const rows: [code: ErrorCode, retryIn: number | undefined, words: string][] = [
    ['upstream_unreachable', 900, 'The service cannot be reached; trying again within 1 second'],
    ['upstream_tls_untrusted', 45_200, 'A TLS certificate is not trusted; trying again within 45 seconds'],
    ['manifest_log_failed', 2_000, 'The workspace cannot be written; trying again within 2 seconds'],
    ['attestation_failed', 1_000, 'Attestation of the remote failed; trying again within 1 second'],
    ['api_key_rejected', undefined, 'The service does not accept the API key; the next request tries again'],
    ['internal', 100, 'The remote could not be verified; trying again within 1 second'],
  ];
  for (const [code, retryIn, words] of rows) {
    it(`says: ${words}`, () => assert.equal(failureMessage(new PrivatemodeError(code, 'x'), retryIn), words));
  }

  it('says that the next renewal can confirm a rejection', () => {
    const error = new PrivatemodeError('attestation_failed', 'x');
    const words = 'Attestation of the remote failed; trying again within 2 seconds, to confirm it';
    assert.equal(failureMessage(error, 1_500, true), words);
  });

  const causes: [code: ErrorCode, what: string][] = [
    ['upstream_unreachable', 'The service cannot be reached'],
    ['upstream_connect_timeout', 'The service does not answer in time'],
    ['upstream_reset', 'The service closed the connection'],
    ['upstream_http2_only', 'The service offers HTTP/2 only'],
    ['upstream_redirect', 'The service answered with a redirect'],
    ['upstream_tls_untrusted', 'A TLS certificate is not trusted'],
    ['control_api_failed', 'The service answered with an error'],
    ['api_key_rejected', 'The service does not accept the API key'],
    ['manifest_unavailable', 'The manifest cannot be fetched'],
    ['manifest_mismatch', 'The service does not run under the expected manifest'],
    ['manifest_unsupported', 'The manifest needs a newer version of this program'],
    ['manifest_invalid', 'The manifest cannot be used'],
    ['manifest_log_failed', 'The workspace cannot be written'],
    ['collateral_unavailable', 'The certificates or revocation lists of AMD or Intel cannot be fetched'],
    ['secret_exchange_failed', 'The secret exchange failed'],
    ['attestation_failed', 'Attestation of the remote failed'],
    ['evidence_malformed', 'The evidence of the remote cannot be read'],
    ['resources_exhausted', 'This machine has no resources left for a connection'],
    ['internal', 'The remote could not be verified'],
  ];
  for (const [code, what] of causes) {
    it(`says for ${code}: ${what}`, () => {
      const error = new PrivatemodeError(code, 'x');
      assert.equal(failureMessage(error, 1_500), `${what}; trying again within 2 seconds`);
    });
  }

  it('does not mention attestation for other causes, such as upstream_unreachable', () => {
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
