import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createJsonOpener } from '../../lib/pipeline/open-json.ts';
import { cutAt, everyChunking } from '../support/chunkings.ts';
import { countingIvs, EXCHANGE, fixedCipher, inferenceVectors } from '../support/exchange-fixture.ts';
import { literalSeal, literalSealObject } from '../support/literal-envelope.ts';

interface UnaryVector {
  readonly name: string;
  readonly plainFields: readonly (readonly [string])[];
  readonly wire: string;
  readonly expected?: string;
  readonly expect?: string;
}

const { vectors, special } = inferenceVectors<{
  readonly vectors: readonly UnaryVector[];
  readonly special: readonly UnaryVector[];
}>('unary-responses');

function open(chunks: Iterable<Uint8Array>, plain: Iterable<string>, maxBytes = 1 << 20) {
  const opener = createJsonOpener({ cipher: fixedCipher(), plain: new Set(plain), maxBytes });
  const delivered = [...chunks].map((chunk) => opener.feed(chunk));
  delivered.push(opener.flush());
  return { text: Buffer.concat(delivered).toString(), failure: opener.failure?.code };
}

const openText = (text: string, plain: Iterable<string> = ['id', 'usage']) =>
  open([Buffer.from(text)], plain);

describe('unary responses, golden', () => {
  for (const { name, plainFields, wire, expected } of vectors) {
    it(name, () => {
      const plain = plainFields.map(([member]) => member);
      for (const chunks of everyChunking(Buffer.from(wire))) {
        assert.deepEqual(open(chunks, plain), { text: expected, failure: undefined });
      }
    });
  }

  for (const { name, plainFields, wire, expect } of special) {
    if (expect !== 'error') continue; // the header decides before any opener is made
    it(`error: ${name}`, () => {
      const { text, failure } = openText(
        wire,
        plainFields.map(([member]) => member),
      );
      assert.match(String(failure), /^response_(malformed|not_authentic)$/);
      assert.equal(text, '');
    });
  }
});

describe('unary responses, what is refused', () => {
  const message = literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('[]'));
  const rows: readonly [string, string, string][] = [
    ['a plain string', '{"choices":"x"}', 'response_malformed'],
    ['a plain object', '{"choices":{}}', 'response_not_authentic'],
    ['null', '{"choices":null}', 'response_not_authentic'],
    ['a plain element', '[1]', 'response_not_authentic'],
    ['a repeated member', `{"choices":${message},"choices":[1]}`, 'response_malformed'],
    ['a repeated plain member', `{"id":1,"id":2,"choices":${message}}`, 'response_malformed'],
    ['text after it', `{"choices":${message}} x`, 'response_malformed'],
    ['a scalar', message, 'response_malformed'],
    ['half of it', `{"choices":${message}`, 'response_malformed'],
    ['no JSON', '<html>', 'response_malformed'],
  ];
  for (const [name, wire, code] of rows) {
    it(name, () => assert.deepEqual(openText(wire), { text: '', failure: code }));
  }

  it('a body beyond the limit, as soon as it is beyond', () => {
    const opener = createJsonOpener({ cipher: fixedCipher(), plain: new Set(), maxBytes: 10 });
    const codes = ['{"a":"bcd', 'ef"}'].map((text) => {
      opener.feed(Buffer.from(text));
      return opener.failure?.code;
    });
    assert.deepEqual(codes, [undefined, 'response_too_large']);
    assert.equal(opener.flush().length, 0);
  });

  it('a tampered value, and then delivers nothing of the others', () => {
    const wire = literalSealObject(
      EXCHANGE,
      ['a', 'b'].map((name) => ({ name, writtenName: `"${name}"`, raw: '1' })),
      [],
      countingIvs(),
    );
    const at = wire.lastIndexOf('"') - 1;
    const changed = wire.slice(0, at) + (wire[at] === '0' ? '1' : '0') + wire.slice(at + 1);
    assert.deepEqual(openText(wire), { text: '{"a": 1 , "b": 1}', failure: undefined });
    assert.deepEqual(openText(changed), { text: '', failure: 'response_not_authentic' });
  });
});

describe('unary responses, the content that is required', () => {
  const sealed = (object: Readonly<Record<string, unknown>>) =>
    literalSealObject(
      EXCHANGE,
      Object.entries(object).map(([name, value]) => ({
        name,
        writtenName: JSON.stringify(name),
        raw: JSON.stringify(value),
      })),
      ['id', 'usage'],
      countingIvs(),
    );
  const code = (wire: string, member: string | undefined, first: string) => {
    const opener = createJsonOpener({
      cipher: fixedCipher(),
      plain: new Set(['id', 'usage']),
      maxBytes: 1 << 20,
      required: { member, first },
    });
    const fed = opener.feed(Buffer.from(wire)).length;
    const { length } = opener.flush();
    assert.equal(fed + length > 0, opener.failure === undefined);
    return opener.failure?.code;
  };

  it('is there', () => {
    assert.equal(code(sealed({ id: 'x', choices: [1] }), 'choices', '['), undefined);
    assert.equal(code(sealed({ text: '', usage: {} }), 'text', '"'), undefined);
    assert.equal(code(sealed({ anything: 1 }), undefined, ''), undefined);
  });

  for (const wire of ['', '{}', '[]', '{"id":"x","usage":{}}', sealed({ choicez: [] })]) {
    it(`is missing: ${wire.slice(0, 30)}`, () => {
      assert.equal(code(wire, 'choices', '['), 'response_not_authentic');
    });
  }

  it('is of another kind, plain, or nothing at all', () => {
    assert.equal(code(sealed({ choices: {} }), 'choices', '['), 'response_not_authentic');
    assert.equal(code(sealed({ choices: null }), 'choices', '['), 'response_not_authentic');
    assert.equal(code(sealed({ id: [] }), 'id', '['), 'response_not_authentic');
    for (const wire of ['', '{}', '[]', '{"id":1}']) {
      assert.equal(code(wire, undefined, ''), 'response_not_authentic');
    }
  });
});

describe('unary responses, against the literal envelope', () => {
  it('opens arrays in the order of their indices as text: 0, 1, 10, 11, 2', () => {
    const count = 12;
    const order = Array.from({ length: count }, (_, i) => String(i)).sort();
    const elements = Array.from({ length: count }, (_, i) =>
      literalSeal(EXCHANGE, order.indexOf(String(i)), Buffer.alloc(12, i), Buffer.from(`{"e":${i}}`)),
    );
    const { text } = openText(`[${elements.join(', ')}]`, []);
    assert.equal(text, `[${elements.map((_, i) => `{"e":${i}}`).join(', ')}]`);
  });

  it('opens an array of thousands in turns, a thousand at a time', () => {
    const count = 3000;
    const order = Array.from({ length: count }, (_, i) => String(i)).sort();
    const rank = new Map(order.map((name, i) => [name, i]));
    const elements = Array.from({ length: count }, (_, i) =>
      literalSeal(EXCHANGE, rank.get(String(i))!, Buffer.alloc(12, i), Buffer.from(String(i))),
    );
    const opener = createJsonOpener({ cipher: fixedCipher(), plain: new Set(), maxBytes: 1 << 20 });
    opener.feed(Buffer.from(`[${elements.join()}]`));
    const turns = [opener.flush()];
    while (opener.pending) turns.push(opener.flush());
    assert.equal(opener.failure, undefined);
    assert.deepEqual(
      turns.map(({ length }) => length > 0),
      [false, false, true],
    );
    assert.equal(turns.at(-1)!.toString(), `[${elements.map((_, i) => i).join()}]`);
  });

  it('shows nothing where the last of thousands is not authentic', () => {
    const count = 2000;
    const order = Array.from({ length: count }, (_, i) => String(i)).sort();
    const elements = order.map((_, i) =>
      literalSeal(EXCHANGE, i === count - 1 ? i + 1 : i, Buffer.alloc(12, i), Buffer.from('1')),
    );
    const byIndex = order.map((_, i) => elements[order.indexOf(String(i))]!);
    const opener = createJsonOpener({ cipher: fixedCipher(), plain: new Set(), maxBytes: 1 << 20 });
    opener.feed(Buffer.from(`[${byIndex.join()}]`));
    let shown = 0;
    do shown += opener.flush().length;
    while (opener.pending);
    assert.deepEqual([opener.failure?.code, shown], ['response_not_authentic', 0]);
  });

  it('opens any object, in any chunks', () => {
    const name = fc.stringMatching(/^[a-zA-Z.?*#]{1,5}$/);
    const rows = fc.uniqueArray(fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' })), {
      selector: ([each]) => each,
    });
    fc.assert(
      fc.property(rows, fc.array(fc.nat(), { maxLength: 4 }), (pairs, cuts) => {
        const members = pairs.map(([each, raw]) => ({ name: each, raw, writtenName: JSON.stringify(each) }));
        const plain = pairs.slice(0, 1).map(([each]) => each);
        const wire = Buffer.from(literalSealObject(EXCHANGE, members, plain, countingIvs()));
        const positions = cuts.map((cut) => cut % wire.length).sort((a, b) => a - b);
        const expected = `{${members.map(({ writtenName, raw }) => `${writtenName}: ${raw}`).join(' , ')}}`;
        assert.deepEqual(open(cutAt(wire, positions), plain), { text: expected, failure: undefined });
      }),
      { seed: 20261121 },
    );
  });
});
