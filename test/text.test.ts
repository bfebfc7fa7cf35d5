import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkOf, finding } from '../lib/attestation/check.ts';
import { parseManifest } from '../lib/attestation/manifest.ts';
import { hasColours, painter, plural, printable, safeJson } from '../lib/text.ts';

const CONTROLS = /[\p{Cc}\p{Cf}]/u;

describe('text that comes from the remote', () => {
  it('cannot steer a terminal or forge a log line', () => {
    assert.equal(printable('a\u001b[31mb\nc\u202ed'), 'a\\u{1b}[31mb\\u{a}c\\u{202e}d');
    assert.equal(printable('CN=Müller, O=株式会社'), 'CN=Müller, O=株式会社');
    assert.equal(printable('\ud800'), '\\u{d800}');
  });

  it('is cut off after 1,000 characters', () => {
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

describe('text for people', () => {
  it('has colours on a terminal only, and none with NO_COLOR or TERM=dumb', () => {
    const terminal = { isTTY: true };
    for (const [output, env, expected] of [
      [terminal, {}, true],
      [terminal, { NO_COLOR: '' }, true],
      [terminal, { NO_COLOR: '1' }, false],
      [terminal, { TERM: 'xterm' }, true],
      [terminal, { TERM: 'dumb' }, false],
      [{ isTTY: false }, {}, false],
      [{}, {}, false],
    ] as const) {
      assert.equal(hasColours(output, env), expected, JSON.stringify([output, env]));
    }
    assert.equal(painter(true)('good', 'words'), '\u001b[32mwords\u001b[0m');
    assert.equal(painter(false)('good', 'words'), 'words');
  });

  it('says "1 check", but "0 checks" and "2 checks"', () => {
    assert.deepEqual(
      [0, 1, 2].map((count) => plural(count, 'check')),
      ['0 checks', '1 check', '2 checks'],
    );
  });

  it('keeps its value as JSON, in which control characters are escaped', () => {
    const value = { text: 'a\u009b31m\u202eb\n\u{e0001}' };
    assert.equal(safeJson(value), '{"text":"a\\u009b31m\\u202eb\\n\\udb40\\udc01"}');
    assert.deepEqual(JSON.parse(safeJson(value, 2)), value);
    assert.match(safeJson(value, 2), /^\{\n {2}"text": /);
  });
});
