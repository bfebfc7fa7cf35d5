import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createByteChain } from '../../lib/pipeline/byte-chain.ts';
import { createJsonIndex } from '../../lib/pipeline/json-index.ts';
import { compareNames, encryptionOrder, PLAIN_MEMBERS } from '../../lib/pipeline/member-order.ts';
import type { PreparedBody } from '../../lib/pipeline/request-body.ts';
import { createJsonSealer, type JsonSealOptions, sealMembers } from '../../lib/pipeline/seal-json.ts';
import { byteByByte, cutAt } from '../support/chunkings.ts';
import {
  countingIvs,
  EXCHANGE,
  fixedCipher,
  inferenceVectors,
  listedIvs,
} from '../support/exchange-fixture.ts';
import {
  type LiteralMember,
  literalOrder,
  literalSealObject,
  literalUnsealObject,
} from '../support/literal-envelope.ts';
import { prepare, sealedBytes, sealText } from '../support/sealing.ts';

interface RequestVectors {
  readonly vectors: readonly {
    readonly name: string;
    readonly endpoint: 'chat' | 'completions' | 'messages' | 'embeddings';
    readonly plainFields: readonly (readonly [string])[];
    readonly input: string;
    readonly ivsHex: readonly string[];
    readonly expected: string;
  }[];
  readonly mustReject: readonly { readonly name: string; readonly input: string }[];
}

const { vectors, mustReject } = inferenceVectors<RequestVectors>('field-encryption-requests');
const LISTS = {
  chat: PLAIN_MEMBERS.C,
  completions: PLAIN_MEMBERS.C,
  messages: PLAIN_MEMBERS.M,
  embeddings: PLAIN_MEMBERS.E,
};

const prepareText = (text: string, options: JsonSealOptions = { plain: PLAIN_MEMBERS.C }): PreparedBody =>
  prepare(createJsonSealer(options), [Buffer.from(text)]) as PreparedBody;

describe('plain lists', () => {
  it('are those of the vectors', () => {
    for (const { endpoint, plainFields } of vectors) {
      assert.deepEqual([...LISTS[endpoint]].sort(), plainFields.map(([name]) => name).sort());
    }
  });
});

describe('member order', () => {
  it('sorts by the bytes of the escaped name', () => {
    const sorted = ['a', 'aZ', 'a*', 'a.b', 'a.b.c', 'a?', 'é', '\uffff', '😀'];
    const items = [...sorted].reverse().map((name) => ({ name }));
    assert.deepEqual(
      encryptionOrder(items, new Set()).map(({ name }) => name),
      sorted,
    );
    assert.ok(compareNames('\uffff', '😀') < 0);
  });

  it('agrees with the literal order', () => {
    const name = fc.string({
      unit: fc.constantFrom('a', 'Z', '.', '?', '*', '\\', '[', '~', 'é', '\uffff', '😀'),
    });
    fc.assert(
      fc.property(fc.uniqueArray(name), (names) => {
        const plain = names.slice(0, 1);
        assert.deepEqual(
          encryptionOrder(
            names.map((each) => ({ name: each })),
            new Set(plain),
          ).map((item) => item.name),
          literalOrder(names, plain),
        );
      }),
      { seed: 20261121 },
    );
  });
});

describe('JSON sealing, golden bodies', () => {
  for (const { name, endpoint, input, ivsHex, expected } of vectors) {
    const plain = LISTS[endpoint];
    if (name === 'chat-duplicate-plain-field') {
      it(`${name}: refused, where the reference forwards both`, () => {
        assert.throws(() => prepareText(input, { plain }), { code: 'duplicate_member' });
      });
    } else if (name === 'chat-empty-object') {
      it(`${name}: needs a model; without that check it seals to itself`, () => {
        assert.throws(() => prepareText(input, { plain }), { code: 'missing_model' });
        const chain = createByteChain();
        const index = createJsonIndex();
        chain.push(Buffer.from(input));
        index.feed(Buffer.from(input));
        const sealed = sealMembers(chain, index.finish(), plain, fixedCipher());
        assert.equal(sealedBytes(sealed).toString(), expected);
      });
    } else {
      it(name, () => {
        const bytes = Buffer.from(input);
        const chunkings = [[bytes], byteByByte(bytes)];
        for (let i = 1; i < bytes.length; i++) chunkings.push(cutAt(bytes, [i]));
        for (const chunks of chunkings) {
          const prepared = prepare(createJsonSealer({ plain }), chunks) as PreparedBody;
          const sealed = prepared.seal(fixedCipher({ ivs: listedIvs(ivsHex) }));
          assert.equal(sealedBytes(sealed).toString(), expected);
          assert.equal(sealed.contentLength, Buffer.byteLength(expected));
        }
      });
    }
  }
});

describe('JSON sealing, what is refused with a 400', () => {
  for (const { name, input } of mustReject) {
    it(name, () => {
      assert.throws(
        () => prepareText(input),
        (error: { status: number }) => error.status === 400,
      );
    });
  }

  const models: Record<string, readonly [string, string][]> = {
    missing_model: [
      ['absent', '{"messages":[]}'],
      ['empty', '{"model":""}'],
      ['in another case', '{"Model":"m"}'],
    ],
    invalid_model: [
      ['a number', '{"model":1}'],
      ['null', '{"model":null}'],
      ['with a line feed', '{"model":"a\\nb"}'],
      ['with NUL', '{"model":"a\\u0000"}'],
      ['with a lone surrogate', '{"model":"\\ud800"}'],
      ['of 257 bytes', `{"model":"${'é'.repeat(128)}x"}`],
    ],
  };
  it('a model far too long is not even decoded; one of 256 escaped bytes is', () => {
    const escaped = (count: number) => `{"model":"${'\\u0041'.repeat(count)}"}`;
    assert.equal(prepareText(escaped(256)).model, 'A'.repeat(256));
    assert.throws(() => prepareText(escaped(350)), { code: 'invalid_model', message: /not a short string/ });
  });

  it('more members than any API has, since each costs a cipher', () => {
    const text = `{"model":"m"${Array.from({ length: 1000 }, (_, i) => `,"k${i}":1`).join('')}}`;
    assert.throws(() => prepareText(text), { code: 'invalid_json', message: /too many members/ });
  });

  for (const [code, rows] of Object.entries(models)) {
    for (const [name, text] of rows) {
      it(`model ${name}: ${code}`, () => assert.throws(() => prepareText(text), { code }));
    }
  }
});

describe('JSON sealing, what is read from the body', () => {
  it('model, decoded', () => {
    assert.equal(prepareText('{"mo\\u0064el":"a\\u00e9\u{1f600}"}').model, 'aé😀');
    assert.equal(prepareText(`{"model":"${'é'.repeat(128)}"}`).model, 'é'.repeat(128));
  });

  it('streaming only where stream is true', () => {
    assert.equal(prepareText('{"model":"m","stream":true}').streaming, true);
    for (const value of ['false', 'null', '1', '"true"', '[true]']) {
      assert.equal(prepareText(`{"model":"m","stream":${value}}`).streaming, false);
    }
    assert.equal(prepareText('{"model":"m","a":{"stream":true}}').streaming, false);
  });

  it('how many choices are asked for; an n of more digits than numbers of choices have is refused undecoded', () => {
    const asked = (n: string) => prepareText(`{"model":"m","n":${n}}`).choices;
    for (const [n, choices] of [
      ['3', 3],
      ['2e1', 20],
      [`2.${'0'.repeat(30)}`, 2],
      ['0', 1],
      ['-1', 1],
      ['1.5', 1],
      ['1e300', 1],
      ['"2"', 1],
      ['null', 1],
    ] as const) {
      assert.equal(asked(n), choices, n);
    }
    assert.equal(prepareText('{"model":"m"}').choices, 1);
    assert.throws(() => asked(`2.${'0'.repeat(31)}`), {
      code: 'invalid_json',
      message: /"n" has more than 32/,
    });
  });

  it('no shard key and no salt where the endpoint has none', () => {
    const prepared = prepareText('{"model":"m"}', { plain: PLAIN_MEMBERS.E });
    assert.equal(prepared.shardKey, undefined);
    assert.equal(sealText(prepared, fixedCipher()), '{"model":"m"}');
  });
});

describe('JSON sealing, retries and sizes', () => {
  it('seals again with another cipher, from the same body', () => {
    const prepared = prepareText('{"model":"m","messages":[1]}');
    for (const nonce of [Buffer.alloc(12, 1), Buffer.alloc(12, 2)]) {
      const exchange = { ...EXCHANGE, nonce };
      const text = sealText(prepared, fixedCipher({ nonce }));
      assert.equal(literalUnsealObject(exchange, text, ['model']).get('messages'), '[1]');
    }
  });

  it('keeps random salt and everything else the same between two attempts', () => {
    const prepared = prepareText('{"model":"m"}', {
      plain: PLAIN_MEMBERS.C,
      salt: { configured: undefined },
    });
    const [first, second] = [0, 1].map(() =>
      literalUnsealObject(EXCHANGE, sealText(prepared, fixedCipher()), ['model']),
    );
    assert.equal(first!.get('cache_salt')!.length, 46);
    assert.deepEqual(first, second);
  });

  it('cuts large bodies into slices of 512 KiB of wire, each sealed when it is pulled', () => {
    const content = 'x'.repeat(1_500_000);
    const prepared = prepareText(`{"model":"m","messages":"${content}","z":1}`);
    let pulled = 0;
    const cipher = fixedCipher();
    const counting = {
      ...cipher,
      seal: () => {
        const sealer = cipher.seal();
        const update: typeof sealer.update = (bytes, target, at) => {
          pulled += bytes.length;
          sealer.update(bytes, target, at);
        };
        return { ...sealer, update };
      },
    };
    const slices = prepared.seal(counting).slices();
    const most = 512 * 1024;
    const isFull = (size: number): boolean => size > most - 64 * 1024 && size <= most;
    const first = slices.next().value!.length;
    assert.ok(isFull(first), String(first));
    assert.ok(pulled <= most / 2, `${pulled} bytes sealed for the first slice`);
    const sizes = [first, ...Array.from(slices, ({ length }) => length)];
    assert.ok(sizes.slice(0, -1).every(isFull), String(sizes));
    assert.equal(
      sizes.reduce((sum, size) => sum + size),
      prepared.seal(fixedCipher()).contentLength,
    );
  });

  it('does not copy the body while it collects it', () => {
    const chunk = Buffer.from(`{"model":"m","messages":"${'x'.repeat(100_000)}"}`);
    const prepared = prepare(createJsonSealer({ plain: PLAIN_MEMBERS.C }), [chunk]) as PreparedBody;
    chunk.fill(0x79, 30, 90_000); // visible through the view, hence no copy was made
    const opened = literalUnsealObject(EXCHANGE, sealText(prepared, fixedCipher()), ['model']);
    assert.ok(opened.get('messages')!.includes('yyyy'));
  });
});

describe('JSON sealing, against the literal envelope', () => {
  const name = fc
    .string({ unit: fc.constantFrom('a', 'Z', '.', '?', '*', '#', ' ', 'é', '\uffff', '😀', '"', '\n') })
    .map((text) => `k${text}`);
  const member = fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' }), fc.boolean());

  it('seals every value in place and under its number, for any members in any chunks', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(member, { selector: ([each]) => each, maxLength: 7 }),
        fc.nat(),
        fc.array(fc.nat(), { maxLength: 5 }),
        (rows, modelAt, cuts) => {
          const members: LiteralMember[] = rows.map(([each, raw, escaped]) => ({
            name: each,
            raw,
            writtenName: escaped
              ? `"${[...each].map((char) => [...Array(char.length)].map((_, i) => `\\u${char.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')).join('')}"`
              : JSON.stringify(each),
          }));
          const model = { name: 'model', raw: '"m"', writtenName: '"model"' };
          members.splice(modelAt % (members.length + 1), 0, model);
          const text = Buffer.from(
            `{${members.map(({ writtenName, raw }) => `${writtenName}: ${raw}`).join(' , ')}}`,
          );
          const chunks = cutAt(
            text,
            cuts.map((cut) => cut % text.length).sort((a, b) => a - b),
          );
          const plain = ['model', rows[0]?.[0] ?? ''];
          const prepared = prepare(createJsonSealer({ plain: new Set(plain) }), chunks) as PreparedBody;
          const sealed = prepared.seal(fixedCipher({ ivs: countingIvs() }));
          const bytes = sealedBytes(sealed);
          assert.equal(bytes.toString(), literalSealObject(EXCHANGE, members, plain, countingIvs()));
          assert.equal(bytes.length, sealed.contentLength);
          const opened = literalUnsealObject(EXCHANGE, bytes.toString(), plain);
          for (const [each, raw] of opened) assert.equal(raw, members.find((m) => m.name === each)!.raw);
        },
      ),
      { seed: 20261121 },
    );
  });
});
