import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { PreparedBody } from '../../lib/pipeline/request-body.ts';
import { createRawSealer } from '../../lib/pipeline/seal-raw.ts';
import { everyChunking } from '../support/chunkings.ts';
import { fixedCipher, hex, inferenceVectors } from '../support/exchange-fixture.ts';
import { prepare, sealedBytes } from '../support/sealing.ts';

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
    it(name, () => {
      for (const chunks of everyChunking(hex(inputHex))) {
        const prepared = prepare(createRawSealer(), chunks) as PreparedBody;
        assert.equal(prepared.model, undefined);
        assert.equal(prepared.shardKey, undefined);
        assert.equal(prepared.streaming, false);
        const sealed = prepared.seal(fixedCipher({ ivs: () => hex(ivHex) }));
        assert.equal(sealedBytes(sealed).toString(), expectedBody);
        assert.equal(sealed.contentLength, expectedBody.length);
        assert.equal(sealed.contentType, undefined);
      }
    });
  }
});
