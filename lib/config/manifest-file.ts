import { createReadStream } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { PrivatemodeError } from '../errors.ts';
import { type ReadFile, readNamedFile } from './files.ts';
import { invalid } from './values.ts';

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

/** --manifest-path: refuses a file that is no manifest at all. The session judges whether it is a good one. Throws config_invalid. */
export function requireManifest(path: string, readFile: ReadFile): void {
  const file = `manifest file ${JSON.stringify(path)}`;
  const reason = whyNoManifest(readNamedFile(file, path, readFile));
  if (reason !== undefined) throw invalid(`the ${file} ${reason}`);
}

/**
 * Why the content of a file is surely no manifest, as the end of a sentence about the file; undefined where it may be one.
 * Without this, an error page that was saved in the place of a manifest would look like a deployment that runs under another.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString('utf8');
  if (text.trim() === '') return 'is empty: not a manifest';
  if (text.startsWith('\ufeff'))
    return 'begins with a byte order mark, which the manifest of the service does not have; save it byte for byte as it was sent';
  if (/^\s*</.test(text))
    return 'is an HTML page, not a manifest; most likely an error page was saved in its place';
  try {
    JSON.parse(text);
    if (/^\s*\{/.test(text)) return undefined;
  } catch {} // what cannot be parsed is no object either
  return 'is not a JSON object: not a manifest';
}
