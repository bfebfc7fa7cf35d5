/** The unstructured endpoint: the whole body is one message, also an empty one (inference.md 6.4). */

import { sealedBody } from './encrypt-body.ts';
import { createByteChain } from './json/byte-chain.ts';
import type { RequestBodyStage } from './request-body.ts';

/** Collects a body of any kind. Names no model, has no shard key, and its content type stays. Throws nothing. */
export function createRawSealer(): RequestBodyStage {
  const chain = createByteChain();
  return {
    feed: (chunk) => chain.push(chunk),
    finish: () => ({
      model: undefined,
      shardKey: undefined,
      streaming: false,
      choices: 1,
      format: undefined,
      usage: 'every',
      seal: (cipher) => sealedBody(cipher, [{ bytes: chain.slices(0, chain.length), sealer: cipher.seal() }]),
    }),
  };
}
