import { open } from 'node:fs/promises';
import { PrivatemodeError } from '../errors.ts';

/** Where the manifest that the remote has to match comes from. */
export interface ManifestSource {
  /** `static`: the user's file, which never changes while we run. `managed`: the service publishes the newest one. */
  readonly kind: 'static' | 'managed';
  /** The newest manifest, byte for byte. Throws manifest_unavailable, upstream_tls_untrusted or the signal's reason. */
  newest(signal?: AbortSignal): Promise<Uint8Array>;
}

/** The manifest of today has 6 KB. */
const MAX_BYTES = 1024 * 1024;

/** Reads the file once, now. Throws config_invalid. */
export async function staticManifest(path: string): Promise<ManifestSource> {
  const manifest = await readBounded(path);
  return { kind: 'static', newest: async () => manifest };
}

async function readBounded(path: string): Promise<Uint8Array> {
  const refuse = (why: string, cause?: unknown): PrivatemodeError =>
    new PrivatemodeError('config_invalid', `failed to read manifest file: ${path} ${why}`, { cause });
  const buffer = Buffer.alloc(MAX_BYTES + 1);
  let size = 0;
  try {
    const file = await open(path, 'r');
    try {
      for (let read = 1; read > 0 && size < buffer.length; size += read) {
        read = (await file.read(buffer, size)).bytesRead;
      }
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw refuse(`cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown cause'})`, cause);
  }
  if (size === 0) throw refuse('is empty');
  if (size > MAX_BYTES) throw refuse(`exceeds ${MAX_BYTES} bytes`);
  return new Uint8Array(buffer.subarray(0, size));
}

/** One bounded GET; any status but a redirect is an answer. */
export type Get = (call: {
  readonly method: 'GET';
  readonly url: string;
  readonly maxBytes: number;
  readonly timeout: number;
  readonly signal?: AbortSignal | undefined;
}) => Promise<{ readonly status: number; readonly body: Uint8Array }>;

export interface ManagedManifestOptions {
  /** E.g. `https://cdn.confidential.cloud`, with or without a slash at its end. */
  readonly cdnBaseUrl: string;
  readonly get: Get;
  /** ms. */
  readonly timeout?: number;
  /** Wall clock, ms since 1970. */
  readonly now?: () => number;
}

/** The manifest at the service's CDN; the time in the query defeats caches on the way (inference.md 1). */
export function managedManifest(options: ManagedManifestOptions): ManifestSource {
  const { cdnBaseUrl, get, timeout = 30_000, now = Date.now } = options;
  const base = `${cdnBaseUrl.replace(/\/+$/, '')}/privatemode/v2/manifest.json`;
  const unavailable = (why: string, cause?: unknown): PrivatemodeError =>
    new PrivatemodeError('manifest_unavailable', `the manifest cannot be fetched: ${why}`, { cause });
  return {
    kind: 'managed',
    async newest(signal) {
      let answer: Awaited<ReturnType<Get>>;
      try {
        answer = await get({
          method: 'GET',
          url: `${base}?t=${now()}`,
          maxBytes: MAX_BYTES,
          timeout,
          signal,
        });
      } catch (thrown) {
        signal?.throwIfAborted();
        if (!(thrown instanceof PrivatemodeError) || thrown.code === 'upstream_tls_untrusted') throw thrown;
        throw unavailable(thrown.message, thrown);
      }
      if (answer.status !== 200)
        throw unavailable(`${new URL(base).host} answered with status ${answer.status}`);
      if (answer.body.length === 0) throw unavailable(`${new URL(base).host} sent an empty one`);
      return answer.body;
    },
  };
}
