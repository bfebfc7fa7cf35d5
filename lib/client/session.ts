/** The session of a client: everything in memory, everything fetched through the given network. */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import type { Clock } from '../session/clock.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { type ManifestSource, managedManifest, staticManifest } from '../session/manifest-source.ts';
import { type AttestedSession, createSession } from '../session/session.ts';
import { createFetchCall } from './fetch-call.ts';
import type { ClientConfig } from './options.ts';
import { verdictOf } from './verdict.ts';

/**
 * Opens the session of these options; nothing is fetched before a request needs it. `onFailure` is told of every renewal that
 * failed. Throws api_key_missing.
 */
export function openClientSession(
  config: ClientConfig,
  onFailure: (error: PrivatemodeError) => void,
): AttestedSession {
  const { apiKey, apiEndpoint, signal } = config;
  if (apiKey === undefined) {
    throw new PrivatemodeError('api_key_missing', 'no apiKey was given, and PRIVATEMODE_API_KEY is not set');
  }
  const call = createFetchCall(config.fetch);
  const { amd = 'https://kdsintf.amd.com', intel = 'https://api.trustedservices.intel.com' } =
    config.collateralUrls ?? {};
  const session = createSession({
    apiKey,
    manifests: manifestSource(config, call),
    control: createControlApi({
      call,
      endpoint: { host: apiEndpoint.hostname.replace(/^\[|\]$/g, ''), port: Number(apiEndpoint.port || 443) },
      protocolVersion: PROTOCOL_VERSION,
    }),
    collateral: createCollateralCache({
      call,
      store: memoryStore(),
      amdKdsUrl: amd,
      intelPcsUrl: intel,
      clock,
    }),
    roots: config.unsafeTrustRoots ?? PRODUCTION_ROOTS,
    random: Math.random,
    observe(event) {
      if ('verdict' in event) config.onVerdict?.(verdictOf(event.verdict, undefined, config));
      if (event.type === 'update-failed') onFailure(event.error);
      if (event.type === 'epoch') {
        const { secretId, manifestSha256 } = event;
        config.onEpoch?.({ secretId, manifestSha256, attestedAt: new Date() });
      }
    },
    manifestLog: { record: async () => ({ appended: false, path: '' }) }, // an application has no log of its own
    clock,
  });
  signal?.addEventListener('abort', session.close);
  if (signal?.aborted) session.close();
  return session;
}

function manifestSource(
  { manifest, cdnBaseUrl }: ClientConfig,
  call: Parameters<typeof managedManifest>[0]['call'],
): ManifestSource {
  if (manifest === undefined) return managedManifest({ call, cdnBaseUrl });
  const bytes = typeof manifest === 'string' ? new TextEncoder().encode(manifest) : manifest;
  return staticManifest(bytes);
}

/** Timers keep a Node process alive only where somebody waits for them; other runtimes have no such thing. */
const clock: Clock = {
  now: Date.now,
  monotonic: () => performance.timeOrigin + performance.now(),
  after(ms, then, waiting) {
    const timer: unknown = setTimeout(then, ms);
    if (waiting === undefined) (timer as { unref?: () => void }).unref?.();
    return () => clearTimeout(timer as NodeJS.Timeout);
  },
};

/** Keeps collateral for as long as the client lives. */
function memoryStore(): CollateralStore {
  const stored = new Map<string, Collateral>();
  return {
    read: async (url) => stored.get(url),
    write: async (url, collateral) => void stored.set(url, collateral),
    remove: async (url) => void stored.delete(url),
  };
}
