/** Stages that are fed a byte at a time: each chunk comes in memory of its own, and must not stay there. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { RequestBody } from '../../lib/pipeline/request-body.ts';
import { formBodyOf, jsonBody, rawBodyOf } from '../support/sealing.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function held(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

const BYTES = 100_000;
const filler = 'x'.repeat(BYTES);
const json = (): RequestBody => jsonBody({ plain: new Set(), salted: true }, 's'.repeat(32));
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

describe('a body that comes a byte at a time', () => {
  for (const [name, create, body] of STAGES) {
    it(`takes at most three times its size: ${name}`, async () => {
      const stage = create();
      const before = held();
      for (let i = 0; i < body.length; i++) {
        stage.feed(Buffer.from(new ArrayBuffer(1)).fill(body[i] as string));
        if (i % 1_000 === 0) await new Promise((turn) => setImmediate(turn)); // the parts of a form are streams
      }
      const taken = held() - before;
      assert.ok(taken < 3 * BYTES + 1_000_000, `${taken} bytes for ${BYTES}`);
      assert.ok(stage.finish !== undefined); // is alive until here
    });
  }
});
