/** Runs a request codec from end to end in a test. */
import type { RequestCipher } from '../../lib/envelope/request-cipher.ts';
import type { PreparedBody, RequestBodyStage, SealedBody } from '../../lib/pipeline/request-body.ts';

export function prepare(
  stage: RequestBodyStage,
  chunks: Iterable<Uint8Array>,
): PreparedBody | Promise<PreparedBody> {
  for (const chunk of chunks) stage.feed(chunk);
  return stage.finish();
}

/** All slices of a sealed body as one Buffer; asserts nothing but reads everything. */
export const sealedBytes = (sealed: SealedBody): Buffer => Buffer.concat([...sealed.slices()]);

export const sealText = (prepared: PreparedBody, cipher: RequestCipher): string =>
  sealedBytes(prepared.seal(cipher)).toString('utf8');
