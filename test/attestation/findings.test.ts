/** What several tables of checks find. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { oneOf } from '../../lib/attestation/findings.ts';

describe('one of several byte strings', () => {
  const [a, b] = [Uint8Array.of(1, 2), Uint8Array.of(3)];

  it('is found among those that are allowed, and nowhere else', () => {
    const allowed = [a, b];
    for (const found of allowed) assert.equal(oneOf(Uint8Array.from(found), allowed).outcome, 'pass');
    for (const found of [Uint8Array.of(1), Uint8Array.of(1, 2, 3), new Uint8Array(), undefined]) {
      assert.equal(oneOf(found, allowed).outcome, 'fail');
      assert.equal(oneOf(found, []).outcome, 'fail');
    }
  });

  it('is shown in hex, with what it should be', () => {
    assert.deepEqual(oneOf(a, [a, b]), { outcome: 'pass', found: '0102', expected: '0102 or 03' });
    assert.deepEqual(oneOf(undefined, [b]), { outcome: 'fail', found: '', expected: '03' });
  });
});
