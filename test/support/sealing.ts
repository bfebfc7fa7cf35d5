/** Runs a request codec from end to end in a test. */
import type { MessageSealer, RequestCipher } from '../../lib/envelope/request-cipher.ts';
import type { PreparedBody, RequestBodyStage, SealedBody } from '../../lib/pipeline/request-body.ts';

export function prepare(
  stage: RequestBodyStage,
  chunks: Iterable<Uint8Array>,
): PreparedBody | Promise<PreparedBody> {
  for (const chunk of chunks) stage.feed(chunk);
  return stage.finish();
}

/** All slices of a sealed body as one Buffer; asserts nothing but reads everything. */
export const sealedBytes = (sealed: SealedBody): Buffer =>
  Buffer.concat(Array.from(sealed.slices(), (slice) => Buffer.from(slice)));

/** What a sealer makes of a plaintext, given in pieces: the whole message. */
export function sealedMessage(sealer: MessageSealer, ...pieces: readonly Uint8Array[]): string {
  const hex = pieces.map((piece) => {
    const target = Buffer.alloc(2 * piece.length);
    sealer.update(piece, target, 0);
    return target;
  });
  return Buffer.concat([sealer.head(), ...hex, sealer.final()]).toString('latin1');
}

export const sealText = (prepared: PreparedBody, cipher: RequestCipher): string =>
  sealedBytes(prepared.seal(cipher)).toString('utf8');
