/** The session of a client, which keeps everything in memory, and sends its requests by the given fetch. */

import { sha256Hex } from '../attestation/check.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi, type ManifestSource, managedManifest } from '../session/control-api.ts';
import { type AcquireOptions, type AttestedSession, createSession, type Epoch } from '../session/session.ts';
import { createControlCall, isUnheard } from './control-call.ts';
import type { Protection } from './options.ts';
import type { ClientConfig } from './read-options.ts';

export type ClientSession = ReturnType<typeof openClientSession>;

/** Opens a session with these options. The session fetches nothing before it is first used. */
export function openClientSession(config: ClientConfig) {
  const { apiKey, apiEndpoint, cdnBaseUrl, amdKdsUrl, intelPcsUrl, clock } = config;
  /** The listeners of requests that wait for an epoch. Every failed renewal calls them with its error. */
  const waiting = new Set<(error: PrivatemodeError) => void>();
  const call = createControlCall(config);
  const { manifest: pin } = config;
  const manifests: ManifestSource =
    pin === undefined
      ? managedManifest({ call, cdnBaseUrl, clock })
      : { kind: 'static', newest: async () => pin };
  let enforced: Uint8Array | undefined;
  const session: AttestedSession = createSession({
    host: apiEndpoint.hostname,
    onDemand: true, // renewed only on demand: an application may drop a client without closing it
    shares: globalThis.navigator?.userAgent !== 'Cloudflare-Workers',
    manifests,
    control: createControlApi({
      call,
      endpoint: { host: apiEndpoint.hostname.replace(/^\[|\]$/g, ''), port: Number(apiEndpoint.port || 443) },
      protocolVersion: PROTOCOL_VERSION,
      clock,
    }),
    collateral: createCollateralCache({ call, store: new Map(), amdKdsUrl, intelPcsUrl, clock }),
    roots: config.unsafeTrustRoots ?? PRODUCTION_ROOTS,
    random: Math.random,
    observe(event) {
      // `attested` is left out: only the verdict after the secret exchange accepts the service.
      if (event.type === 'judged') tell(config.onVerdict, event.verdict);
      if (event.type === 'update-failed') for (const failed of waiting) failed(event.error);
      if (event.type === 'epoch') tell(config.onEpoch, protectionOf(session));
    },
    // An application has no manifest log.
    manifestLog: {
      async record(manifest) {
        enforced = manifest;
        return { appended: false, path: '' };
      },
    },
    clock,
  });
  session.updateConfiguredKey(apiKey);

  /**
   * Like `acquire` of the session, but gives up earlier after errors for which `givesUp` is true. By default
   * these are errors about a host that has never responded. The wait then ends at the third failure, or at
   * once if the error is a verdict on the service (status 400).
   */
  async function acquire(options: AcquireOptions, givesUp = isUnheard): Promise<Epoch> {
    if (session.current() !== undefined) return session.acquire(options);
    const given = new AbortController();
    const { waiter } = options;
    const signal = waiter ? AbortSignal.any([given.signal, waiter.signal]) : given.signal;
    let failures = 0;
    const failed = (error: PrivatemodeError): void => {
      failures++;
      if (givesUp(error) && (failures === PATIENCE || error.status === 400)) given.abort(error);
    };
    waiting.add(failed);
    try {
      return await session.acquire({ ...options, waiter: { signal } });
    } finally {
      waiting.delete(failed);
    }
  }

  /** The manifest in force, if its SHA-256 is `wanted`. */
  const manifest = (wanted: string | null): Uint8Array | undefined =>
    enforced && sha256Hex(enforced) === wanted ? enforced : undefined;

  return { ...session, acquire, manifest };
}

/** After so many failed renewals, a request gives up waiting. */
const PATIENCE = 3;

/** What protects requests of this session now. */
export function protectionOf(session: AttestedSession | undefined): Protection | undefined {
  const epoch = session?.current();
  if (epoch === undefined) return undefined;
  const { secretId, manifestSha256, attestedAt } = epoch;
  return { secretId, manifestSha256, attestedAt: new Date(attestedAt) };
}

/**
 * Calls a listener of the application. An error that the listener throws must not stop a renewal, and must
 * not be lost either.
 */
function tell<News>(listener: ((news: News) => void) | undefined, news: News | undefined): void {
  if (news === undefined) return;
  try {
    listener?.(news);
  } catch (thrown) {
    queueMicrotask(() => {
      throw thrown;
    });
  }
}
