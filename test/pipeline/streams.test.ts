import assert from 'node:assert/strict';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { PLAIN_MEMBERS } from '../../lib/pipeline/member-order.ts';
import { createSseOpener } from '../../lib/pipeline/open-sse.ts';
import type { PreparedBody, SealedBody } from '../../lib/pipeline/request-body.ts';
import { createJsonSealer } from '../../lib/pipeline/seal-json.ts';
import { collectInto, openerTransform, sealedReadable } from '../../lib/pipeline/streams.ts';
import { cutAt } from '../support/chunkings.ts';
import { countingIvs, EXCHANGE, fixedCipher } from '../support/exchange-fixture.ts';
import { literalUnsealObject } from '../support/literal-envelope.ts';
import { chatChunk, DONE, openEvent, sealedStream } from '../support/sealed-stream.ts';
import { sealedBytes } from '../support/sealing.ts';

describe('collecting a request from a stream', () => {
  it('feeds the stage', async () => {
    const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C });
    const body = Buffer.from('{"model":"m","messages":[]}');
    await pipeline(Readable.from(cutAt(body, [5, 9])), collectInto(stage));
    assert.equal((stage.finish() as PreparedBody).model, 'm');
  });

  it('fails with the typed error of the stage', async () => {
    const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C });
    const collected = pipeline(Readable.from([Buffer.from('{"a":1,"a":2}')]), collectInto(stage));
    await assert.rejects(collected, { code: 'duplicate_member' });
  });
});

describe('a sealed body as a stream', () => {
  const large = (): SealedBody => {
    const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C });
    stage.feed(Buffer.from(`{"model":"m","messages":"${'x'.repeat(1 << 20)}"}`));
    return (stage.finish() as PreparedBody).seal(fixedCipher({ ivs: countingIvs() }));
  };

  it('gives the bytes of its slices', async () => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of sealedReadable(large())) chunks.push(chunk as Uint8Array);
    const text = Buffer.concat(chunks);
    assert.deepEqual(text, sealedBytes(large()));
    assert.equal(
      literalUnsealObject(EXCHANGE, text.toString(), ['model']).get('messages')!.length,
      (1 << 20) + 2,
    );
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
    };
    await assert.rejects(sealedReadable(sealed).toArray(), /seal failed/);
  });
});

describe('an opener as a stream', () => {
  const opener = () =>
    createSseOpener({
      cipher: fixedCipher(),
      plain: PLAIN_MEMBERS.R,
      terminal: 'done',
      maxEventBytes: 1 << 20,
    });

  const wire = () => {
    const stream = sealedStream(['id', 'usage']);
    return stream.event(chatChunk('a')) + stream.event(chatChunk('b', 'stop')) + DONE;
  };
  const text = openEvent(chatChunk('a')) + openEvent(chatChunk('b', 'stop')) + DONE;

  it('delivers and ends cleanly', async () => {
    const bytes = Buffer.from(wire());
    const stream = Readable.from(cutAt(bytes, [100, 900])).compose(openerTransform(opener()));
    assert.equal(Buffer.concat(await stream.toArray()).toString(), text);
  });

  for (const [name, tail] of [
    ['tampered in the same chunk', 'data: {"choices":[]}\n\n'],
    ['cut off', ''],
  ] as const) {
    it(`${name}: everything before it can be read, by a slow reader too, then the failure comes`, async () => {
      const good = wire().slice(0, -DONE.length);
      for (const slow of [false, true]) {
        const transform = openerTransform(opener());
        Readable.from([Buffer.from(good), Buffer.from(tail)]).pipe(transform);
        let read = '';
        const reading = (async () => {
          for (let i = 0; slow && i < 20; i++) await turn();
          for await (const chunk of transform) {
            read += String(chunk);
            if (slow) await turn();
          }
        })();
        await assert.rejects(reading, { name: 'PrivatemodeError' });
        assert.equal(read, text.slice(0, -DONE.length));
      }
    });
  }
});
