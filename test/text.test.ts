import assert from 'node:assert/strict';
import { it } from 'node:test';
import { checkOf, finding } from '../lib/attestation/check.ts';
import { parseManifest } from '../lib/attestation/manifest.ts';
import { hasColours, printable, safeJson } from '../lib/text.ts';

const CONTROLS = /[\p{Cc}\p{Cf}]/u;

it('text of the remote cannot steer a terminal or forge a log line, and is cut after 1,000 characters', () => {
  assert.equal(printable('a\u001b[31mb\nc\u202ed'), 'a\\u{1b}[31mb\\u{a}c\\u{202e}d');
  assert.equal(printable('CN=Müller, O=株式会社'), 'CN=Müller, O=株式会社');
  assert.equal(printable('\ud800'), '\\u{d800}');
  assert.equal(printable('x'.repeat(1000)), 'x'.repeat(1000));
  assert.equal(printable('x'.repeat(1001)), `${'x'.repeat(1000)}…`);
});

it('text of the remote is made printable in every check', () => {
  const row = { id: 'a.b', title: 'a', source: 'attestation.md 1', expected: 'b' };
  assert.doesNotMatch(checkOf(row, finding(false, 'CN=\u001b]0;x\u0007')).found, CONTROLS);
});

for (const json of [
  '{"Policies\\u001b[2J":1}',
  '{"a\\u0007":1,"a\\u0007":1}',
  '{"MinimumAPIVersion":"\\u001b"}',
]) {
  it(`text of the remote is made printable in the error about the manifest ${json}`, () => {
    const parse = (): unknown => parseManifest(Buffer.from(json));
    assert.throws(parse, (error) => error instanceof Error && !CONTROLS.test(error.message));
  });
}

it('JSON keeps its value, but has no character that a terminal obeys', () => {
  const value = { text: 'a\u009b31m\u202eb\n\u{e0001}' };
  assert.equal(safeJson(value), '{"text":"a\\u009b31m\\u202eb\\n\\udb40\\udc01"}');
  assert.deepEqual(JSON.parse(safeJson(value, 2)), value);
  assert.match(safeJson(value, 2), /^\{\n {2}"text": /);
});

it('text has colours on a terminal only, and none with NO_COLOR or TERM=dumb', () => {
  const environments = [{}, { NO_COLOR: '' }, { NO_COLOR: '1' }, { TERM: 'dumb' }];
  const colours = environments.map((env) => hasColours({ isTTY: true }, env)).concat(hasColours({}, {}));
  assert.deepEqual(colours, [true, true, false, false, false]);
});
