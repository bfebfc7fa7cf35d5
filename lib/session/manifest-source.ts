/**
 * Where the manifest comes from that the service has to match: from the user's file, or from the CDN of the
 * service.
 */
import { whyNoManifest } from '../attestation/manifest.ts';
import type { Clock } from '../clock.ts';
import { type FailureDetail, PrivatemodeError } from '../errors.ts';
import type { ControlCall } from '../network/control-call.ts';

/** A source of the manifest that the remote has to match. */
export interface ManifestSource {
  /**
   * `static`: the user gives it, and may give another one later. `managed`: the service publishes the newest
   * one.
   */
  readonly kind: 'static' | 'managed';
  /**
   * The newest manifest, byte for byte. Throws manifest_unavailable, upstream_tls_untrusted or the signal's
   * reason.
   */
  newest(signal?: AbortSignal): Promise<Uint8Array>;
}

/** A manifest that the user gave. */
export const staticManifest = (manifest: Uint8Array): ManifestSource => ({
  kind: 'static',
  newest: async () => manifest,
});

/** A manifest has about 6 KB. */
const MAX_BYTES = 1024 * 1024;

interface ManagedManifestDeps {
  readonly call: ControlCall;
  /** E.g. `https://cdn.confidential.cloud`, with or without a slash or `/privatemode/v2` at its end. */
  readonly cdnBaseUrl: string;
  readonly clock: Clock;
}

/**
 * Fetches the manifest from the service's CDN. The query holds the time, so that no cache on the way responds
 * (docs/protocol/inference.md 1).
 */
export function managedManifest({ call, cdnBaseUrl, clock }: ManagedManifestDeps): ManifestSource {
  const base = `${cdnBaseUrl.replace(/(?:\/privatemode\/v2)?\/*$/, '')}/privatemode/v2/manifest.json`;
  const { host } = new URL(base);
  const unavailable = (
    why: string,
    options?: { cause?: unknown; detail?: FailureDetail | undefined },
  ): PrivatemodeError =>
    new PrivatemodeError('manifest_unavailable', `the manifest cannot be fetched: ${why}`, options);
  return {
    kind: 'managed',
    async newest(signal) {
      const url = `${base}?t=${clock.now()}`;
      const asked = call({
        method: 'GET',
        url,
        maxBytes: MAX_BYTES,
        timeout: clock.times.manifestTimeout,
        signal,
      });
      const { status, body, pause } = await asked.catch((thrown: unknown) => {
        signal?.throwIfAborted();
        if (!(thrown instanceof PrivatemodeError) || thrown.code === 'upstream_tls_untrusted') throw thrown;
        throw unavailable(thrown.message, { cause: thrown });
      });
      if (status !== 200) throw unavailable(`${base} answered with status ${status}`, { detail: { pause } });
      const reason = whyNoManifest(body);
      if (reason !== undefined) throw unavailable(`what ${host} sent ${reason}`);
      return body;
    },
  };
}
