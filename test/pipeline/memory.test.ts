/**
 * What a stage keeps must not grow with how the bytes come: with what a gateway writes between members, or a
 * byte at a time.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { chatChunk, sealedStream } from '../support/remote/sealed-stream.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const inUse = (): number => {
  collect();
  collect(); // memory outside of the heap goes with the second one
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

const MIB = 1024 * 1024;
const PADDING = 4 * MIB;

/** What pads an event, each time otherwise: blanks between the members, or the name of a harmless member. */
const PADDED: Readonly<Record<string, (event: string, k: number) => string>> = {
  'blanks between members': (event, k) => event.replace('{', `{${' '.repeat(PADDING + k)}`),
  'the name of a member that is null': (event, k) => event.replace('"zz"', `"${'z'.repeat(PADDING + k)}"`),
};

describe('memory that a stream keeps', () => {
  for (const [name, padded] of Object.entries(PADDED)) {
    it(`is less than 16 MiB after eight events that are padded with 4 MiB each: ${name}`, {
      timeout: 600_000,
    }, () => {
      const sealed = sealedStream(['id', 'usage']);
      const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 32 * MIB);
      opener.feed(Buffer.from(sealed.event(chatChunk('one'))));
      const before = inUse();
      for (let k = 0; k < 8; k++) {
        const event = `data: ${padded(sealed.object({ ...chatChunk('one'), zz: null }), k)}\n\n`;
        opener.feed(Buffer.from(event));
      }
      const kept = inUse() - before;
      // The last one may still be in memory here; each that is remembered is three times its size.
      assert.ok(kept < 4 * PADDING, `${(kept / MIB).toFixed(1)} MiB are kept`);
      opener.flush(); // the stream was alive until here
    });
  }
});
