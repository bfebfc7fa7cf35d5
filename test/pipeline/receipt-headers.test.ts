import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RECEIPT_HEADER_NAMES, receiptHeaders } from '../../lib/pipeline/response-head.ts';

describe('receipt', () => {
  it('names the secret, the manifest, the time of attestation and the request', () => {
    const epoch = { secretId: 'c2VjcmV0', manifestSha256: 'ab'.repeat(32), attestedAt: 1_795_234_567_891 };
    const headers = receiptHeaders(epoch, 'proxy_1_0');
    assert.deepEqual(headers, {
      'Privatemode-Proxy-Secret-Id': 'c2VjcmV0',
      'Privatemode-Proxy-Manifest-Sha256': 'ab'.repeat(32),
      'Privatemode-Proxy-Attested-At': '2026-11-21T04:16:07.891Z',
      'Privatemode-Proxy-Request-Id': 'proxy_1_0',
    });
    assert.deepEqual(Object.keys(headers), RECEIPT_HEADER_NAMES);
  });
});
