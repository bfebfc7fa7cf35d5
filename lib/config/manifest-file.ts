import { createReadStream } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { PrivatemodeError } from '../errors.ts';

/** A manifest has about 6 KB. */
const MAX_BYTES = 1024 * 1024;

/** Reads a manifest of the user's own, byte for byte. Throws config_invalid. */
export async function readManifestFile(path: string): Promise<Uint8Array> {
  const refuse = (why: string, cause?: unknown): PrivatemodeError =>
    new PrivatemodeError('config_invalid', `failed to read manifest file: ${path} ${why}`, { cause });
  let manifest: Uint8Array;
  try {
    // Up to one byte more than allowed; what follows in an endless file is not read.
    manifest = new Uint8Array(await buffer(createReadStream(path, { end: MAX_BYTES })));
  } catch (cause) {
    throw refuse(`cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown cause'})`, cause);
  }
  if (manifest.length === 0) throw refuse('is empty');
  if (manifest.length > MAX_BYTES) throw refuse(`exceeds ${MAX_BYTES} bytes`);
  return manifest;
}
