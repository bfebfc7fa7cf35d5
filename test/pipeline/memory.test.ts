/**
 * What a stage keeps must not grow with how the bytes come: with what a gateway writes between members, or a
 * byte at a time.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import type { RequestBody } from '../../lib/pipeline/request-body.ts';
import { ASKED, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { chatChunk, sealedStream } from '../support/remote/sealed-stream.ts';
import { formBodyOf, jsonBody, rawBodyOf } from '../support/remote/sealing.ts';

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

const BYTES = 100_000;
const filler = 'x'.repeat(BYTES);
const json = (): RequestBody => jsonBody({ plain: new Set(), salted: true });
const form = (): RequestBody => formBodyOf('multipart/form-data; boundary=b', new Set());
const disposition = 'Content-Disposition: form-data; name';

const STAGES: readonly (readonly [name: string, stage: () => RequestBody, body: string])[] = [
  ['the value of a JSON member', json, `{"model":"m","user":"${filler}`],
  ['the name of a JSON member', json, `{"model":"m","${filler}`],
  ['a list of messages', json, `{"model":"m","messages":[{"role":"user","content":"${filler}`],
  ['a file of a form', form, `--b\r\n${disposition}="file"; filename="f"\r\n\r\n${filler}`],
  ['a field of a form', form, `--b\r\n${disposition}="prompt"\r\n\r\n${filler}`],
  ['a body of any kind', rawBodyOf, filler],
];

/** Each chunk comes in memory of its own, and must not stay there. */
describe('a body that comes a byte at a time', () => {
  for (const [name, create, body] of STAGES) {
    it(`takes less memory than three times its size plus 1 MB: ${name}`, async () => {
      const stage = create();
      const before = inUse();
      for (let i = 0; i < body.length; i++) {
        stage.feed(Buffer.from(new ArrayBuffer(1)).fill(body[i] as string));
        // the parts of a form are streams
        if (i % 1_000 === 0) await new Promise((turn) => setImmediate(turn));
      }
      const taken = inUse() - before;
      assert.ok(taken < 3 * BYTES + 1_000_000, `${taken} bytes for ${BYTES}`);
      assert.ok(stage.finish !== undefined); // is alive until here
    });
  }
});
