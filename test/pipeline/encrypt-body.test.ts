import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { sealedSlices } from '../../lib/pipeline/encrypt-body.ts';
import { type EncryptedStream, encryptStream } from '../../lib/pipeline/encrypt-stream.ts';
import { everyChunking } from '../support/remote/chunkings.ts';
import {
  countingIvs,
  EXCHANGE,
  fixedCipher,
  hex,
  inferenceVectors,
} from '../support/remote/exchange-fixture.ts';
import { literalUnsealObject } from '../support/remote/literal-envelope.ts';
import { bytesOf, jsonBody, prepare, rawBodyOf, watched } from '../support/remote/sealing.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const numbered = () => fixedCipher({ ivs: countingIvs() });

const large = (cipher = numbered()): EncryptedStream =>
  encryptStream(
    prepare(jsonBody(), [Buffer.from(`{"model":"m","messages":"${'x'.repeat(1 << 20)}"}`)]),
    cipher,
  );

describe('an encrypted body', () => {
  it('can be opened by the service, and has the announced length', async () => {
    const { stream, contentLength } = large();
    const text = await bytesOf(stream);
    assert.equal(text.length, contentLength);
    const opened = literalUnsealObject(EXCHANGE, text.toString(), ['model']);
    assert.equal(opened.get('messages'), `"${'x'.repeat(1 << 20)}"`);
  });

  for (const [announced, message] of [
    [9, 'a sealed body outgrew its length'],
    [11, 'a sealed body fell short of its length'],
  ] as const) {
    it(`fails if it has 10 bytes instead of the announced ${announced}, before its last byte is sent`, () => {
      const pieces = [{ bytes: Buffer.from('12345') }, { bytes: Buffer.from('67890') }];
      const body = { pieces, contentLength: announced };
      const sent: Uint8Array[] = [];
      const send = (): void => {
        for (const slice of sealedSlices(body)) sent.push(slice);
      };
      assert.throws(send, { code: 'internal', message });
      assert.deepEqual(sent, []);
    });
  }

  it('does not change a slice before it has been sent, though the next one is sealed meanwhile', async () => {
    const { stream } = large();
    const sent: Buffer[] = [];
    stream.on('data', async (slice: Uint8Array) => {
      stream.pause();
      for (let i = 0; i < 5; i++) await turn(); // the connection is slow
      sent.push(Buffer.from(slice));
      stream.resume();
    });
    await once(stream, 'end');
    assert.ok(sent.length >= 4, `${sent.length} slices`);
    assert.ok(Buffer.concat(sent).equals(await bytesOf(large().stream)));
  });

  /** A large body, and how many bytes of it were sealed so far. */
  function counted(): { stream: Readable; sealed: () => number } {
    let count = 0;
    const { stream } = large(
      watched(numbered(), ({ length }) => {
        count += length;
      }),
    );
    return { stream, sealed: () => count };
  }
  /** Plaintext of one slice. */
  const SLICE = 256 * 1024;

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
    assert.ok(stream.destroyed);
    const before = sealed();
    for (let i = 0; i < 5; i++) await turn();
    assert.equal(sealed(), before);
  });

  it('is destroyed with the error that sealing throws', async () => {
    const { stream } = large(
      watched(numbered(), () => {
        throw new Error('seal failed');
      }),
    );
    await assert.rejects(stream.toArray(), /seal failed/);
  });

  for (const [how, end] of [
    ['ended', (stream: Readable) => stream.resume()],
    ['destroyed', (stream: Readable) => stream.destroy()],
  ] as const) {
    it(`is not held in memory by its stream once the stream is ${how}, so that the prompt can be freed`, async () => {
      const { encrypted, prompt } = (() => {
        const body = prepare(jsonBody(), [Buffer.from(`{"model":"m","messages":"${'x'.repeat(1 << 20)}"}`)]);
        assert.ok(body.content.kind === 'json');
        const prompt = new WeakRef(body.content.bytes.buffer);
        return { encrypted: encryptStream(body, fixedCipher()), prompt };
      })();
      encrypted.stream.read(0);
      const closed = once(encrypted.stream, 'close');
      end(encrypted.stream);
      await closed;
      for (let i = 0; i < 20 && prompt.deref() !== undefined; i++) {
        await turn();
        collect();
      }
      assert.equal(prompt.deref(), undefined);
      assert.ok(encrypted.stream.destroyed); // is alive until here
    });
  }
});

const { rawBody } = inferenceVectors<{
  readonly rawBody: readonly {
    readonly name: string;
    readonly inputHex: string;
    readonly ivHex: string;
    readonly expectedBody: string;
  }[];
}>('multipart-and-raw');

describe('a raw body of the vectors', () => {
  for (const { name, inputHex, ivHex, expectedBody } of rawBody) {
    it(`is sealed as expected: ${name}`, async () => {
      for (const chunks of everyChunking(hex(inputHex))) {
        const prepared = prepare(rawBodyOf(), chunks);
        assert.equal(prepared.model, undefined);
        assert.equal(prepared.shardKey, undefined);
        assert.equal(prepared.streaming, false);
        const sealed = encryptStream(prepared, fixedCipher({ ivs: () => hex(ivHex) }));
        assert.equal((await bytesOf(sealed.stream)).toString(), expectedBody);
        assert.equal(sealed.contentLength, expectedBody.length);
        assert.equal(sealed.contentType, undefined);
      }
    });
  }
});
