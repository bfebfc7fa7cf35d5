import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createJsonSealer } from '../../lib/pipeline/json/encrypt-members.ts';
import type { PreparedBody, SealedBody } from '../../lib/pipeline/request-body.ts';
import { sealedReadable } from '../../lib/pipeline/streams.ts';
import { countingIvs, EXCHANGE, fixedCipher } from '../support/exchange-fixture.ts';
import { literalUnsealObject } from '../support/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../support/plain-members.ts';
import { sealedBytes } from '../support/sealing.ts';

describe('a sealed body as a stream', () => {
  const large = (): SealedBody => {
    const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C });
    stage.feed(Buffer.from(`{"model":"m","messages":"${'x'.repeat(1 << 20)}"}`));
    return (stage.finish() as PreparedBody).seal(fixedCipher({ ivs: countingIvs() }));
  };

  it('gives the bytes of its slices', async () => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of sealedReadable(large())) chunks.push(Buffer.from(chunk as Uint8Array)); // its memory is used again
    const text = Buffer.concat(chunks);
    assert.deepEqual(text, sealedBytes(large()));
    assert.equal(
      literalUnsealObject(EXCHANGE, text.toString(), ['model']).get('messages')!.length,
      (1 << 20) + 2,
    );
  });

  it('leaves a slice as it is until it has left, though the next one is sealed meanwhile', async () => {
    const stream = sealedReadable(large());
    const sent: Buffer[] = [];
    stream.on('data', async (slice: Uint8Array) => {
      stream.pause();
      for (let i = 0; i < 5; i++) await turn(); // the connection is slow
      sent.push(Buffer.from(slice));
      stream.resume();
    });
    await once(stream, 'end');
    assert.ok(sent.length >= 4, `${sent.length} slices`);
    assert.ok(Buffer.concat(sent).equals(sealedBytes(large())));
  });

  it('gives its memory to the next body when all of it has left, and not before', async () => {
    const bodies = [large(), large(), large()];
    const [first, second, third] = bodies.map(sealedReadable) as [Readable, Readable, Readable];
    const memoryOf = async (stream: Readable): Promise<ArrayBufferLike> =>
      ((await once(stream, 'data')) as [Uint8Array])[0].buffer;
    const used = new Set<ArrayBufferLike>();
    let last: { readonly slice: Uint8Array; readonly bytes: Buffer } | undefined;
    let left = bodies[0]!.contentLength;
    first.on('data', (slice: Uint8Array) => {
      used.add(slice.buffer);
      last = { slice, bytes: Buffer.from(slice) };
      left -= slice.length;
      if (left === 0) first.pause(); // the last one is on its way
    });
    while (!first.isPaused()) await turn();
    for (let i = 0; i < 5; i++) await turn();
    assert.ok(!used.has(await memoryOf(second)));
    assert.ok(last!.bytes.equals(last!.slice));
    first.resume();
    await once(first, 'close');
    assert.ok(used.has(await memoryOf(third)));
    for (const stream of [second, third]) stream.destroy();
  });

  it('keeps its memory from others where it is cut off', async () => {
    const [first, second] = [large(), large()].map(sealedReadable) as [Readable, Readable];
    const [slice] = (await once(first, 'data')) as [Uint8Array];
    first.destroy();
    await once(first, 'close');
    const [other] = (await once(second, 'data')) as [Uint8Array];
    assert.notEqual(other.buffer, slice.buffer);
    second.destroy();
  });

  /** How many slices were pulled from it so far. */
  function counted(): { sealed: SealedBody; pulled: () => number; released: () => boolean } {
    const body = large();
    let count = 0;
    let done = false;
    return {
      pulled: () => count,
      released: () => done,
      sealed: {
        ...body,
        *slices() {
          try {
            for (const slice of body.slices()) {
              count += 1;
              yield slice;
            }
          } finally {
            done = true;
          }
        },
      },
    };
  }

  it('seals one slice ahead of a reader that does not read, not all', async () => {
    const { sealed, pulled } = counted();
    const stream = sealedReadable(sealed);
    stream.read(0);
    for (let i = 0; i < 20; i++) await turn();
    assert.equal(pulled(), 1);
    stream.destroy();
  });

  it('lets the event loop turn between two slices', async () => {
    const { sealed, pulled } = counted();
    const atTurns: number[] = [];
    const finished = pipeline(
      sealedReadable(sealed),
      new Writable({ write: (_chunk, _encoding, callback) => callback() }),
    );
    for (let i = 0; i < 4; i++) {
      atTurns.push(pulled());
      await turn();
    }
    await finished;
    assert.ok(pulled() >= 4, `${pulled()} slices`);
    for (let i = 1; i < atTurns.length; i++) assert.ok(atTurns[i]! - atTurns[i - 1]! <= 1, String(atTurns));
  });

  it('releases the source when it is destroyed halfway', async () => {
    const { sealed, released } = counted();
    const stream = sealedReadable(sealed);
    for await (const _ of stream) break;
    assert.equal(released(), true);
  });

  it('is destroyed with what sealing throws', async () => {
    const sealed: SealedBody = {
      contentLength: 1,
      *slices() {
        yield Buffer.from('x');
        throw new Error('seal failed');
      },
      release() {},
    };
    await assert.rejects(sealedReadable(sealed).toArray(), /seal failed/);
  });
});
