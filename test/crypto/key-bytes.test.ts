/**
 * Key material as bytes lives no longer than it takes to make a KeyObject of it. The exchange is in
 * test/faults/hygiene.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canBeOpened, SUITE } from '../../lib/session/secret-exchange.ts';
import { judge } from '../../lib/verdict/judge.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';

const SECRET = Buffer.alloc(32, 0x5a);
const wiped = (bytes: Uint8Array): boolean => bytes.length === 32 && bytes.every((byte) => byte === 0);

describe('key bytes', () => {
  it('are zeroed after verify has judged a secret exchange', async (t) => {
    let handedOut: Uint8Array | undefined;
    t.mock.method(SUITE, 'ReceiveExport', async () => {
      handedOut = Uint8Array.from(SECRET);
      return handedOut;
    });
    const empty = new Uint8Array();
    const messages = { publicKey: empty, encapsulatedKey: empty, signature: empty, meshCert: empty };
    const { now: at, ...evidence } = syntheticInput('synthetic_v158');
    await judge({ ...evidence, at, secret: messages, canBeOpened });
    assert.ok(handedOut !== undefined && wiped(handedOut));
  });
});
