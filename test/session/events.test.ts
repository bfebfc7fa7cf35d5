import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { failureMessage } from '../../lib/session/standing.ts';

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
});
