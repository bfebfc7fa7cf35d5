import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { PrivatemodeError } from '../../lib/errors.ts';
import { readForm } from '../../lib/pipeline/form.ts';
import { type FormPart, formBody } from '../support/remote/forms.ts';

const BOUNDARY = 'a-boundary';
const TYPE = `multipart/form-data; boundary=${BOUNDARY}`;

/** Parts as texts of kind, name and bytes, sorted. */
const listed = (parts: Iterable<readonly [isFile: boolean, name: string, bytes: Uint8Array]>): string[] =>
  [...parts].map(([isFile, name, bytes]) => `${isFile} ${name} ${Buffer.from(bytes).toString('hex')}`).sort();

/** As our reader sees it; undefined where it refuses, with a typed error of status 400. */
function ours(form: Buffer) {
  try {
    return readForm(form, BOUNDARY);
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, String(thrown));
    assert.equal(thrown.status, 400);
    return undefined;
  }
}

/** As fetch sees it; undefined where it refuses, or a field is repeated. */
async function reference(bytes: Uint8Array) {
  try {
    const form = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': TYPE } }).formData();
    const parts = await Promise.all(
      [...form.entries()].map(async ([name, value]) => {
        const isFile = typeof value !== 'string';
        return { name, isFile, bytes: isFile ? await value.bytes() : Buffer.from(value) };
      }),
    );
    const names = new Set(parts.map(({ isFile, name }) => `${isFile} ${name}`));
    return names.size === parts.length ? parts : undefined;
  } catch {
    return undefined;
  }
}

const name = fc.stringMatching(/^[a-zA-Z_[\].-]{1,8}$/);
/** Texts are UTF-8, which fetch decodes; files may be anything, beginnings of boundaries among it. */
const text = fc.string({ unit: 'grapheme', maxLength: 30 }).map((value) => Buffer.from(value));
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 60 }).map((value) => Buffer.from(value)),
  fc
    .array(fc.constantFrom('\r\n', '--', BOUNDARY.slice(0, 5), 'x', '\n', '\r'), { maxLength: 8 })
    .map((pieces) => Buffer.from(pieces.join(''))),
);
const part = fc.oneof(
  fc.record({ name, body: text }),
  fc.record({
    name,
    body: bytes,
    filename: fc.constantFrom('a.wav', 'b'),
    contentType: fc.constant('audio/wav'),
  }),
);
const parts = fc.uniqueArray(part, { selector: (each) => each.name, maxLength: 6 });
const harm = fc.record({
  at: fc.nat(),
  remove: fc.nat({ max: 3 }),
  insert: fc.constantFrom('', ' ', '\t', '\r', '\n', '-', '"', ';', ':', '\0', '\r\n'),
});

it('forms are read as fetch reads them; damaged ones alike, or they are refused with a typed error', async () => {
  const counts = { whole: 0, refused: 0 };
  const property = fc.asyncProperty(parts, fc.array(harm, { maxLength: 2 }), async (form, harms) => {
    let bytes = formBody(BOUNDARY, form as FormPart[]);
    for (const { at, remove, insert } of harms) {
      const i = at % (bytes.length + 1);
      bytes = Buffer.concat([bytes.subarray(0, i), Buffer.from(insert), bytes.subarray(i + remove)]);
    }
    const [mine, theirs] = [ours(bytes), await reference(bytes)];
    if (harms.length === 0) {
      counts.whole += 1;
      const expected = listed(form.map((each) => ['filename' in each, each.name, each.body]));
      for (const read of [mine, form.length === 0 ? [] : theirs])
        assert.deepEqual(listed(read!.map(({ isFile, name, bytes }) => [isFile, name, bytes])), expected);
    }
    if (mine === undefined) counts.refused += 1;
    // Before the first boundary at the beginning of a line all is preamble, which fetch does not know.
    if (mine === undefined || theirs === undefined) return;
    // As fetch reads values, and whether or not the damage took the name of a file away.
    const texts = (read: readonly { readonly name: string; readonly bytes: Uint8Array }[]) =>
      read.map(({ name, bytes }) => `${name} ${Buffer.from(bytes).toString('utf8')}`).sort();
    assert.deepEqual(texts(mine), texts(theirs));
  });
  await fc.assert(property, { seed: 20261121, numRuns: 600 });
  assert.ok(Math.min(counts.whole, counts.refused) > 50, JSON.stringify(counts));
});
