/** What a stage keeps must not grow with how the bytes come. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { RequestBody } from '../../lib/pipeline/request-body.ts';
import { formBodyOf, jsonBody, rawBodyOf } from '../support/remote/sealing.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const inUse = (): number => {
  collect();
  collect(); // memory outside of the heap goes with the second one
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

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
