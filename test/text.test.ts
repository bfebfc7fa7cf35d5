import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkOf, finding } from '../lib/attestation/check.ts';
import { parseManifest } from '../lib/attestation/manifest.ts';
import { printable } from '../lib/text.ts';

const CONTROLS = /[\p{Cc}\p{Cf}]/u;

describe('text of the remote', () => {
  it('cannot steer a terminal or forge a log line', () => {
    assert.equal(printable('a\u001b[31mb\nc\u202ed'), 'a\\u{1b}[31mb\\u{a}c\\u{202e}d');
    assert.equal(printable('CN=Müller, O=株式会社'), 'CN=Müller, O=株式会社');
    assert.equal(printable('\ud800'), '\\u{d800}');
  });

  it('does not fill the screen', () => {
    assert.equal(printable('x'.repeat(5000)).length, 1001);
    assert.equal(printable('x'.repeat(1000)), 'x'.repeat(1000));
    assert.equal(printable('x'.repeat(1001)), `${'x'.repeat(1000)}…`);
    assert.equal(printable('abc', 3), 'abc');
    assert.equal(printable('abcd', 3), 'abc…');
  });

  it('is made printable in every check', () => {
    const row = { id: 'a.b', title: 'a', source: 'attestation.md 1', expected: 'b' };
    assert.doesNotMatch(checkOf(row, finding(false, 'CN=\u001b]0;x\u0007')).found, CONTROLS);
  });

  it('is made printable in the errors about a manifest', () => {
    for (const json of [
      '{"Policies\\u001b[2J":1}',
      '{"a\\u0007":1,"a\\u0007":1}',
      '{"MinimumAPIVersion":"\\u001b"}',
    ]) {
      assert.throws(
        () => parseManifest(Buffer.from(json)),
        (error) => error instanceof Error && !CONTROLS.test(error.message),
      );
    }
  });
});
