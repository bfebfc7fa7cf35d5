/** What leaves of a body: its values sealed as they came, in their order, with the announced length. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { encryptBody } from '../../lib/pipeline/encrypt-body.ts';
import { encryptStream } from '../../lib/pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../../lib/pipeline/inject-salt.ts';
import { ENDPOINTS } from '../support/remote/endpoints.ts';
import { countingIvs, EXCHANGE, fixedCipher, hex, listedIvs } from '../support/remote/exchange-fixture.ts';
import {
  type LiteralMember,
  literalSealObject,
  literalText,
  literalUnsealObject,
} from '../support/remote/literal-envelope.ts';
import {
  bytesOf,
  jsonBody,
  prepare,
  rawBodyOf,
  type Sealing,
  sealText,
  watched,
} from '../support/remote/sealing.ts';
import requests from '../vectors/inference/field-encryption-requests.json' with { type: 'json' };
import forms from '../vectors/inference/multipart-and-raw.json' with { type: 'json' };

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const { vectors } = requests;
const numbered = () => fixedCipher({ ivs: countingIvs() });
/** A body with a value of a MiB. */
const largeBody = (): SaltedBody => prepare(jsonBody(), `{"model":"m","messages":"${'x'.repeat(1 << 20)}"}`);

describe('a JSON body of the vectors', () => {
  const refused: Readonly<Record<string, string>> = {
    'chat-duplicate-plain-field': 'duplicate_member',
    'chat-empty-object': 'missing_model',
    'chat-punctuation-keys': 'unsupported_member_name',
  };
  for (const { name, endpoint, plainFields, input, ivsHex, expected } of vectors) {
    const plain = new Set<string>(ENDPOINTS[endpoint as keyof typeof ENDPOINTS].plain.request);
    const code = refused[name];
    if (code !== undefined) {
      it(`is refused, although the reference forwards it: ${name}`, () => {
        assert.throws(() => prepare(jsonBody({ plain }), input), { code });
      });
      continue;
    }
    it(`is sealed as expected: ${name}`, async () => {
      assert.deepEqual([...plain].sort(), plainFields.map(([each]) => each).sort());
      const cipher = fixedCipher({ ivs: listedIvs(ivsHex) });
      const { body, contentLength } = encryptStream(prepare(jsonBody({ plain }), input), cipher);
      assert.equal((await bytesOf(body)).toString(), expected);
      assert.equal(contentLength, Buffer.byteLength(expected));
    });
  }
});

const { rawBody } = forms;

describe('a raw body of the vectors', () => {
  for (const { name, inputHex, ivHex, expectedBody } of rawBody) {
    it(`is sealed as expected: ${name}`, async () => {
      const prepared = prepare(rawBodyOf(), hex(inputHex));
      assert.deepEqual(
        [prepared.model, prepared.shardKey, prepared.streaming],
        [undefined, undefined, false],
      );
      assert.equal(await sealText(prepared, fixedCipher({ ivs: () => hex(ivHex) })), expectedBody);
    });
  }
});

describe('an encrypted JSON body', () => {
  const name = fc
    .string({ unit: fc.constantFrom('a', 'Z', '.', '?', '*', '#', ' ', 'é', '\uffff', '😀', '"', '\n') })
    .map((text) => `k${text}`);
  const member = fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' }), fc.boolean());
  const escaped = (text: string): string =>
    `"${text.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)}"`;

  it('has every value sealed in its place and under its number, as the literal envelope does it', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(member, { selector: ([each]) => each, maxLength: 7 }),
        fc.nat(),
        (rows, modelAt) => {
          const members: LiteralMember[] = rows.map(([each, raw, isEscaped]) => ({
            name: each,
            raw,
            writtenName: isEscaped ? escaped(each) : JSON.stringify(each),
          }));
          const inClear = [
            { name: 'model', raw: '"m"', writtenName: '"model"' },
            { name: 'stream', raw: 'true', writtenName: '"stream"' },
          ];
          for (const each of inClear) members.splice(modelAt % (members.length + 1), 0, each);
          const plain = ['model', 'stream'];
          const prepared = prepare(jsonBody({ plain: new Set(plain) }), literalText(members));
          const { slices, contentLength } = encryptBody(prepared, numbered());
          const bytes = Buffer.concat([...slices]);
          assert.equal(bytes.toString(), literalSealObject(EXCHANGE, members, plain, countingIvs()));
          assert.equal(bytes.length, contentLength);
        },
      ),
      { seed: 20261121 },
    );
  });

  it('is sealed again for a retry: with its random salt, under another nonce', async () => {
    const prepared = prepare(jsonBody({ salted: true }), '{"model":"m","messages":[1]}');
    const [first, second] = await Promise.all(
      [1, 2].map(async (byte) => {
        const nonce = Buffer.alloc(12, byte);
        const text = await sealText(prepared, fixedCipher({ nonce }));
        return literalUnsealObject({ ...EXCHANGE, nonce }, text, ['model']);
      }),
    );
    assert.equal(first!.get('messages'), '[1]');
    assert.equal(first!.get('cache_salt')!.length, 46);
    assert.deepEqual(first, second);
  });

  for (const size of [10, 1 << 20]) {
    it(`fails unless it has the announced length, with a value of ${size} bytes`, async () => {
      for (const wrong of [-1, 1]) {
        const cipher = numbered();
        const lying: Sealing = {
          seal: (plaintexts) => cipher.seal(plaintexts),
          sealedLength: (bytes) => cipher.sealedLength(bytes) + wrong,
        };
        const body = prepare(jsonBody(), `{"model":"m","messages":"${'x'.repeat(size)}"}`);
        const sealing = async () => bytesOf(encryptStream(body, lying).body);
        await assert.rejects(sealing, { code: 'internal', message: /^a sealed body (outgrew|fell short)/ });
      }
    });
  }
});

describe('the upload of an encrypted body', () => {
  it('ends only after its last write has, if it is a stream', async () => {
    const { body, contentLength } = encryptStream(largeBody(), numbered());
    let written = 0;
    const { promise, resolve } = Promise.withResolvers<number>();
    const destination = {
      async write({ length }: Uint8Array, done: () => void) {
        for (let i = 0; i < 5; i++) await turn(); // the connection is slow
        written += length;
        done();
      },
      end: () => resolve(written),
    };
    (body as Readable).pipe(destination as unknown as Writable);
    assert.equal(await promise, contentLength);
  });
});

describe('an encrypted body of a MiB', () => {
  /** The body, and how many bytes of it were sealed so far. */
  function counted(): { stream: Readable; sealed: () => number } {
    let count = 0;
    const cipher = watched(numbered(), ({ length }) => {
      count += length;
    });
    return { stream: encryptStream(largeBody(), cipher).body as Readable, sealed: () => count };
  }
  /** Plaintext of one slice. */
  const SLICE = 256 * 1024;

  it('can be opened by the service, and does not change a slice before it was sent', async () => {
    const { body, contentLength } = encryptStream(largeBody(), numbered());
    const stream = body as Readable;
    const sent: Buffer[] = [];
    stream.on('data', async (slice: Uint8Array) => {
      stream.pause();
      for (let i = 0; i < 5; i++) await turn(); // the connection is slow, and the next slice is sealed
      sent.push(Buffer.from(slice));
      stream.resume();
    });
    await once(stream, 'end');
    assert.ok(sent.length >= 4, `${sent.length} slices`);
    const text = Buffer.concat(sent);
    assert.equal(text.length, contentLength);
    const opened = literalUnsealObject(EXCHANGE, text.toString(), ['model']);
    assert.equal(opened.get('messages'), `"${'x'.repeat(1 << 20)}"`);
  });

  it('is sealed one slice ahead of a reader that does not read, and no further', async () => {
    const { stream, sealed } = counted();
    stream.read(0);
    for (let i = 0; i < 20; i++) await turn();
    assert.ok(sealed() > 0 && sealed() <= SLICE, `${sealed()} bytes`);
    stream.destroy();
  });

  it('lets the event loop turn between two slices', async () => {
    const { stream, sealed } = counted();
    const atTurns: number[] = [];
    const finished = pipeline(stream, new Writable({ write: (_chunk, _encoding, callback) => callback() }));
    for (let i = 0; i < 4; i++) {
      atTurns.push(sealed());
      await turn();
    }
    await finished;
    assert.ok(sealed() > 1 << 20, `${sealed()} bytes`);
    for (let i = 1; i < atTurns.length; i++) {
      assert.ok(atTurns[i]! - atTurns[i - 1]! <= SLICE, String(atTurns));
    }
  });

  it('is sealed no further once it is destroyed', async () => {
    const { stream, sealed } = counted();
    for await (const _ of stream) break;
    const before = sealed();
    for (let i = 0; i < 5; i++) await turn();
    assert.equal(sealed(), before);
  });

  it('is destroyed with the error that sealing throws', async () => {
    const failing = watched(numbered(), () => {
      throw new Error('seal failed');
    });
    await assert.rejects((encryptStream(largeBody(), failing).body as Readable).toArray(), /seal failed/);
  });

  for (const [how, end] of [
    ['ended', (stream: Readable) => stream.resume()],
    ['destroyed', (stream: Readable) => stream.destroy()],
  ] as const) {
    it(`is not held in memory by its stream once the stream is ${how}, so that the prompt can be freed`, async () => {
      const { stream, prompt } = (() => {
        const body = largeBody();
        const prompt = new WeakRef(body.values[1]!.bytes.buffer);
        return { stream: encryptStream(body, fixedCipher()).body as Readable, prompt };
      })();
      stream.read(0);
      const closed = once(stream, 'close');
      end(stream);
      await closed;
      for (let i = 0; i < 20 && prompt.deref() !== undefined; i++) {
        await turn();
        collect();
      }
      assert.equal(prompt.deref(), undefined);
      assert.ok(stream.destroyed); // is alive until here
    });
  }
});
