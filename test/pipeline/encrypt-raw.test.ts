import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encryptStream } from '../../lib/pipeline/encrypt-stream.ts';
import { everyChunking } from '../support/chunkings.ts';
import { fixedCipher, hex, inferenceVectors } from '../support/exchange-fixture.ts';
import { bytesOf, prepare, rawBodyOf } from '../support/sealing.ts';

const { rawBody } = inferenceVectors<{
  readonly rawBody: readonly {
    readonly name: string;
    readonly inputHex: string;
    readonly ivHex: string;
    readonly expectedBody: string;
  }[];
}>('multipart-and-raw');

describe('raw sealing', () => {
  for (const { name, inputHex, ivHex, expectedBody } of rawBody) {
    it(name, async () => {
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
