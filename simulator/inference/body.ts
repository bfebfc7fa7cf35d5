/** Reads request bodies. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { pause } from './pacing.ts';
import { Rejection } from './rejection.ts';

/** The server's limit (docs/protocol/inference.md 11). */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

/**
 * The whole body, read at no more than `bytesPerSecond`. Throws Rejection (413) beyond the limit; the rest is
 * then left to the caller to drain.
 */
export async function readBody(
  request: IncomingMessage,
  bytesPerSecond: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let total = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    total += (chunk as Buffer).length;
    if (total > MAX_BODY_BYTES) throw new Rejection(413, 'maximum request size exceeded');
    chunks.push(chunk as Buffer);
    if (bytesPerSecond !== Number.POSITIVE_INFINITY) {
      await pause(((chunk as Buffer).length / bytesPerSecond) * 1000, signal);
    }
  }
  return Buffer.concat(chunks, total);
}

/**
 * Discards what was not read of a body: an answer sent into a running upload can be lost when the connection
 * closes behind it.
 */
export async function drain(request: IncomingMessage, signal: AbortSignal): Promise<void> {
  if (request.readableEnded) return;
  request.resume();
  await once(request, 'end', { signal });
}
