/**
 * Forms against the parser of Node's fetch: what is well-formed both accept, and nothing is read that is not
 * there.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PrivatemodeError } from '../../lib/errors.ts';
import { readForm } from '../../lib/pipeline/form.ts';
import { type FormPart, formBody } from '../support/remote/forms.ts';

const BOUNDARY = 'a-boundary';
const TYPE = `multipart/form-data; boundary=${BOUNDARY}`;

/** Parts by kind and name, as bytes. */
type Read = Readonly<Record<string, string>>;

const listed = (parts: Iterable<readonly [kind: string, name: string, bytes: Uint8Array]>): Read =>
  Object.fromEntries(
    [...parts].map(([kind, name, bytes]) => [`${kind} ${name}`, Buffer.from(bytes).toString('hex')]),
  );

/** Without its kind: the damage may have taken the file name away. */
const nameIn = (key: string): string => key.slice(key.indexOf(' ') + 1);

/** As our reader sees it; undefined where it refuses, with a typed error of status 400. */
function ours(form: Buffer): Read | undefined {
  try {
    const parts = readForm(form, BOUNDARY);
    return listed(parts.map(({ name, isFile, bytes }) => [isFile ? 'file' : 'value', name, bytes]));
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, String(thrown));
    assert.equal(thrown.status, 400);
    return undefined;
  }
}

/** As fetch sees it; undefined where it refuses, or a field is repeated. */
async function reference(bytes: Uint8Array): Promise<Read | undefined> {
  try {
    const form = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': TYPE } }).formData();
    const parts: (readonly [string, string, Uint8Array])[] = [];
    for (const [name, value] of form.entries()) {
      const isFile = typeof value !== 'string';
      parts.push([
        isFile ? 'file' : 'value',
        name,
        isFile ? new Uint8Array(await value.arrayBuffer()) : Buffer.from(value),
      ]);
    }
    const names = new Set(parts.map(([kind, name]) => `${kind} ${name}`));
    return names.size === parts.length ? listed(parts) : undefined;
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
describe('forms, against the parser of fetch', () => {
  it('are read as fetch reads them if they are well-formed', async () => {
    await fc.assert(
      fc.asyncProperty(parts, async (form) => {
        const whole = formBody(BOUNDARY, form as FormPart[]);
        const expected = listed(
          form.map((each) => ['filename' in each ? 'file' : 'value', each.name, each.body] as const),
        );
        assert.deepEqual(ours(whole), expected);
        if (form.length > 0) assert.deepEqual(await reference(whole), expected);
      }),
      { seed: 20261121, numRuns: 200 },
    );
  });

  it('are refused with a typed error if they are damaged, or give exactly the parts that fetch reads', async () => {
    let refused = 0;
    const harm = fc.record({
      at: fc.nat(),
      remove: fc.nat({ max: 3 }),
      insert: fc.constantFrom('', ' ', '\t', '\r', '\n', '-', '"', ';', ':', '\0', '\r\n'),
    });
    await fc.assert(
      fc.asyncProperty(parts, fc.array(harm, { minLength: 1, maxLength: 2 }), async (form, harms) => {
        let whole = formBody(BOUNDARY, form as FormPart[]);
        for (const { at: where, remove, insert } of harms) {
          const i = where % (whole.length + 1);
          whole = Buffer.concat([whole.subarray(0, i), Buffer.from(insert), whole.subarray(i + remove)]);
        }
        const mine = ours(whole);
        if (mine === undefined) {
          refused += 1;
          return;
        }
        // Before the first boundary at the beginning of a line all is preamble, which fetch does not know.
        const theirs = await reference(whole);
        if (theirs === undefined) return;
        // as fetch reads values
        const text = (bytes: string): string => Buffer.from(bytes, 'hex').toString('utf8');
        const read = new Set(Object.entries(theirs).map(([key, value]) => `${nameIn(key)} ${text(value)}`));
        for (const [key, value] of Object.entries(mine)) {
          assert.ok(read.has(`${nameIn(key)} ${text(value)}`), key);
        }
        assert.equal(Object.keys(mine).length, Object.keys(theirs).length, 'a part was lost');
      }),
      { seed: 20261121, numRuns: 400 },
    );
    assert.ok(refused > 50, `only ${refused} were refused`);
  });
});
