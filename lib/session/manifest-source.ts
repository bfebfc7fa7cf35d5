/** Where the manifest comes from that the service has to match: the user, or the CDN of the service. */
import { whyNoManifest } from '../attestation/manifest.ts';
import type { Clock } from '../clock.ts';
import { type FailureDetail, PrivatemodeError } from '../errors.ts';
import type { ControlCall } from '../network/control-call.ts';

export interface ManifestSource {
  /** `static`: the user gives it, and may give another later. `managed`: the service publishes the newest. */
  readonly kind: 'static' | 'managed';
  /** Byte for byte. Throws manifest_unavailable, upstream_tls_untrusted or the signal's reason. */
  newest(signal?: AbortSignal): Promise<Uint8Array>;
}

const MAX_BYTES = 1024 * 1024; // a manifest has about 6 KB

/**
 * Fetches the manifest from `cdnBaseUrl`, such as `https://cdn.confidential.cloud`, with or without
 * `/privatemode/v2`. The query holds the time, so that no cache responds (docs/protocol/inference.md 1).
 */
export function managedManifest(deps: {
  readonly call: ControlCall;
  readonly cdnBaseUrl: string;
  readonly clock: Clock;
}): ManifestSource {
  const { call, cdnBaseUrl, clock } = deps;
  const base = `${cdnBaseUrl.replace(/(?:\/privatemode\/v2)?\/*$/, '')}/privatemode/v2/manifest.json`;
  const unavailable = (why: string, cause?: unknown, detail?: FailureDetail): PrivatemodeError =>
    new PrivatemodeError('manifest_unavailable', `the manifest cannot be fetched: ${why}`, { cause, detail });
  return {
    kind: 'managed',
    async newest(signal) {
      const url = `${base}?t=${clock.now()}`;
      const limits = { maxBytes: MAX_BYTES, timeout: clock.times.manifestTimeout, signal };
      const asked = call({ method: 'GET', url, ...limits });
      const { status, body, pause } = await asked.catch((thrown: unknown) => {
        signal?.throwIfAborted();
        if (!(thrown instanceof PrivatemodeError) || thrown.code === 'upstream_tls_untrusted') throw thrown;
        throw unavailable(thrown.message, thrown);
      });
      if (status !== 200) throw unavailable(`${base} answered with status ${status}`, undefined, { pause });
      const reason = whyNoManifest(body);
      if (reason !== undefined) throw unavailable(`what ${new URL(base).host} sent ${reason}`);
      return body;
    },
  };
}
