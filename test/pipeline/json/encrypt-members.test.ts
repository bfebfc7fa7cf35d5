import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { encryptionOrder } from '../../../lib/json/names.ts';
import { encryptStream } from '../../../lib/pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../../../lib/pipeline/inject-salt.ts';
import { createByteChain } from '../../../lib/pipeline/json/byte-chain.ts';
import { createJsonIndex, type JsonMember } from '../../../lib/pipeline/json/json-index.ts';
import { byteByByte, cutAnywhere, cutAt } from '../../support/remote/chunkings.ts';
import {
  countingIvs,
  EXCHANGE,
  fixedCipher,
  inferenceVectors,
  listedIvs,
} from '../../support/remote/exchange-fixture.ts';
import {
  type LiteralMember,
  literalOrder,
  literalSealObject,
  literalText,
  literalUnsealObject,
} from '../../support/remote/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../../support/remote/plain-members.ts';
import {
  bytesOf,
  type JsonEndpoint,
  jsonBody,
  prepare,
  sealText,
  watched,
} from '../../support/remote/sealing.ts';

interface RequestVectors {
  readonly vectors: readonly {
    readonly name: string;
    readonly endpoint: 'chat' | 'completions' | 'messages' | 'embeddings';
    readonly plainFields: readonly (readonly [string])[];
    readonly input: string;
    readonly ivsHex: readonly string[];
    readonly expected: string;
  }[];
}

const { vectors } = inferenceVectors<RequestVectors>('field-encryption-requests');
const LISTS = {
  chat: PLAIN_MEMBERS.C,
  completions: PLAIN_MEMBERS.C,
  messages: PLAIN_MEMBERS.M,
  embeddings: PLAIN_MEMBERS.E,
};

const prepareText = (text: string, endpoint: JsonEndpoint = {}): SaltedBody =>
  prepare(jsonBody(endpoint), [Buffer.from(text)]);

/** A body of these members, of which nothing was checked. */
const unchecked = (input: string, members: readonly JsonMember[], plain: ReadonlySet<string>): SaltedBody => {
  const chain = createByteChain();
  chain.push(Buffer.from(input));
  return { content: { kind: 'json', chain, members, bodyStart: 1, plain } } as unknown as SaltedBody;
};

describe('the lists of plain members', () => {
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
  });

  it('agrees with a literal implementation, for any names', () => {
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

describe('a JSON body of the vectors', () => {
  for (const { name, endpoint, input, ivsHex, expected } of vectors) {
    const plain = LISTS[endpoint];
    if (name === 'chat-duplicate-plain-field') {
      it(`is refused, although the reference forwards both members: ${name}`, () => {
        assert.throws(() => prepareText(input, { plain }), { code: 'duplicate_member' });
      });
    } else if (name === 'chat-empty-object') {
      it(`is refused without a model; without that check it is sealed unchanged: ${name}`, async () => {
        assert.throws(() => prepareText(input, { plain }), { code: 'missing_model' });
        const index = createJsonIndex();
        index.feed(Buffer.from(input));
        assert.equal(await sealText(unchecked(input, index.finish(), plain), fixedCipher()), expected);
      });
    } else if (name === 'chat-punctuation-keys') {
      it(`is refused for its member "!x"; without that check it is sealed as by the reference: ${name}`, async () => {
        assert.throws(() => prepareText(input, { plain }), { code: 'unsupported_member_name' });
        const members = [...input.matchAll(/"([^"]*)":("m"|\d+)/g)].map(
          ({ 1: name, 2: raw, index, 0: all }) => {
            const end = index + all.length;
            return { name: name!, kind: 'number' as const, start: end - raw!.length, end };
          },
        );
        const cipher = fixedCipher({ ivs: listedIvs(ivsHex) });
        assert.equal(await sealText(unchecked(input, members, plain), cipher), expected);
      });
    } else {
      it(`is sealed as expected: ${name}`, async () => {
        const bytes = Buffer.from(input);
        const chunkings = [[bytes], byteByByte(bytes)];
        for (let i = 1; i < bytes.length; i++) chunkings.push(cutAt(bytes, [i]));
        for (const chunks of chunkings) {
          const cipher = fixedCipher({ ivs: listedIvs(ivsHex) });
          const { stream, contentLength } = encryptStream(prepare(jsonBody({ plain }), chunks), cipher);
          assert.equal((await bytesOf(stream)).toString(), expected);
          assert.equal(contentLength, Buffer.byteLength(expected));
        }
      });
    }
  }
});

describe('JSON sealing, retries and sizes', () => {
  it('seals again with another cipher, from the same body', async () => {
    const prepared = prepareText('{"model":"m","messages":[1]}');
    for (const nonce of [Buffer.alloc(12, 1), Buffer.alloc(12, 2)]) {
      const exchange = { ...EXCHANGE, nonce };
      const text = await sealText(prepared, fixedCipher({ nonce }));
      assert.equal(literalUnsealObject(exchange, text, ['model']).get('messages'), '[1]');
    }
  });

  it('keeps random salt and everything else the same between two attempts', async () => {
    const prepared = prepareText('{"model":"m"}', { salted: true });
    const opened = async () =>
      literalUnsealObject(EXCHANGE, await sealText(prepared, fixedCipher()), ['model']);
    const [first, second] = [await opened(), await opened()];
    assert.equal(first.get('cache_salt')!.length, 46);
    assert.deepEqual(first, second);
  });

  it('cuts large bodies into slices of 512 KiB of wire, each sealed when it is pulled', async () => {
    const content = 'x'.repeat(1_500_000);
    const prepared = prepareText(`{"model":"m","messages":"${content}","z":1}`);
    let pulled = 0;
    const counting = watched(fixedCipher(), ({ length }) => {
      pulled += length;
    });
    const { stream, contentLength } = encryptStream(prepared, counting);
    const slices = stream.iterator() as AsyncIterator<Uint8Array>;
    const most = 512 * 1024;
    const isFull = (size: number): boolean => size > most - 64 * 1024 && size <= most;
    const first = (await slices.next()).value!.length;
    assert.ok(isFull(first), String(first));
    assert.ok(pulled <= most / 2, `${pulled} bytes sealed for the first slice`);
    const sizes = [first];
    for (let next = await slices.next(); !next.done; next = await slices.next())
      sizes.push(next.value.length);
    assert.ok(sizes.slice(0, -1).every(isFull), String(sizes));
    assert.equal(
      sizes.reduce((sum, size) => sum + size),
      contentLength,
    );
  });

  it('does not copy the body while it collects it', async () => {
    const chunk = Buffer.from(`{"model":"m","messages":"${'x'.repeat(100_000)}"}`);
    const prepared = prepare(jsonBody(), [chunk]);
    chunk.fill(0x79, 30, 90_000); // visible through the view, hence no copy was made
    const opened = literalUnsealObject(EXCHANGE, await sealText(prepared, fixedCipher()), ['model']);
    assert.ok(opened.get('messages')!.includes('yyyy'));
  });
});

describe('JSON sealing, compared with the literal envelope', () => {
  const name = fc
    .string({ unit: fc.constantFrom('a', 'Z', '.', '?', '*', '#', ' ', 'é', '\uffff', '😀', '"', '\n') })
    .map((text) => `k${text}`);
  const member = fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' }), fc.boolean());

  it('seals every value in place and under its sequence number, for any members in any chunks', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(member, { selector: ([each]) => each, maxLength: 7 }),
        fc.nat(),
        fc.array(fc.nat(), { maxLength: 5 }),
        async (rows, modelAt, cuts) => {
          const members: LiteralMember[] = rows.map(([each, raw, escaped]) => ({
            name: each,
            raw,
            writtenName: escaped
              ? `"${[...each].map((char) => [...Array(char.length)].map((_, i) => `\\u${char.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')).join('')}"`
              : JSON.stringify(each),
          }));
          const inClear = [
            { name: 'model', raw: '"m"', writtenName: '"model"' },
            { name: 'stream', raw: 'true', writtenName: '"stream"' },
          ];
          for (const each of inClear) members.splice(modelAt % (members.length + 1), 0, each);
          const text = Buffer.from(literalText(members));
          const chunks = cutAnywhere(text, cuts);
          const plain = ['model', 'stream'];
          const prepared = prepare(jsonBody({ plain: new Set(plain) }), chunks);
          const sealed = encryptStream(prepared, fixedCipher({ ivs: countingIvs() }));
          const bytes = await bytesOf(sealed.stream);
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
