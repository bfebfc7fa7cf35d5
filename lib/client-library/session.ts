/**
 * Makes the session of a client, which keeps everything in memory and fetches everything through the given
 * fetch.
 */
import { sha256 } from '#crypto';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { type ManifestSource, managedManifest } from '../session/manifest-source.ts';
import { type AttestedSession, createSession, type Epoch } from '../session/session.ts';
import { createControlCall, isNobody } from './control-call.ts';
import type { ClientConfig, Protection } from './options.ts';
import { verdictOf } from './verification.ts';

type Acquiring = Parameters<AttestedSession['acquire']>[0] & {
  /**
   * Whether a failure ends the wait: of a verdict at once, of silence the third time. Default: if it is about
   * a host that has never responded (isNobody).
   */
  readonly givesUp?: (error: PrivatemodeError) => boolean;
};

export interface ClientSession extends AttestedSession {
  acquire(options: Acquiring): Promise<Epoch>;
  /** The manifest with this SHA-256, if it is in force or was the last to be fetched. */
  manifest(sha256: string | null): Uint8Array | undefined;
}

/** Opens a session with these options. It fetches nothing before a request needs it. */
export function openClientSession(config: ClientConfig): ClientSession {
  const { apiKey, apiEndpoint, collateralUrls, clock } = config;
  /** One listener for each request that waits for an epoch; it gets the error of every failed renewal. */
  const waiting = new Set<(error: PrivatemodeError) => void>();
  const call = createControlCall(config);
  const source = manifestSource(config, call);
  const manifests: Partial<Record<'fetched' | 'enforced', Uint8Array>> = {};
  const session: AttestedSession = createSession({
    host: apiEndpoint.hostname,
    onDemand: true, // an application may drop a client without closing it
    shares: globalThis.navigator?.userAgent !== 'Cloudflare-Workers',
    manifests: {
      kind: source.kind,
      async newest(signal) {
        manifests.fetched = await source.newest(signal);
        return manifests.fetched;
      },
    },
    control: createControlApi({
      call,
      endpoint: { host: apiEndpoint.hostname.replace(/^\[|\]$/g, ''), port: Number(apiEndpoint.port || 443) },
      protocolVersion: PROTOCOL_VERSION,
      clock,
    }),
    collateral: createCollateralCache({
      call,
      store: new Map(),
      amdKdsUrl: collateralUrls.amd,
      intelPcsUrl: collateralUrls.intel,
      clock,
    }),
    roots: config.unsafeTrustRoots ?? PRODUCTION_ROOTS,
    random: Math.random,
    observe(event) {
      // `attested` holds the checks of the evidence alone: the verdict on the secret exchange follows.
      if (event.type === 'judged') {
        tell(config.onVerdict, () => verdictOf(event.verdict, undefined, config));
      }
      if (event.type === 'update-failed') for (const failed of waiting) failed(event.error);
      if (event.type === 'epoch') tell(config.onEpoch, () => protectionOf(session));
    },
    // an application has no manifest log
    manifestLog: {
      async record(manifest) {
        manifests.enforced = manifest;
        return { appended: false, path: '' };
      },
    },
    clock,
  });
  session.updateConfiguredKey(apiKey);

  async function acquire({ givesUp = isNobody, ...options }: Acquiring): Promise<Epoch> {
    if (session.current() !== undefined) return session.acquire(options);
    const { promise: lost, reject } = Promise.withResolvers<never>();
    const done = new AbortController();
    let failures = 0;
    const failed = (error: PrivatemodeError): void => {
      failures++;
      if (givesUp(error) && (failures === PATIENCE || error.status === 400)) reject(error);
    };
    waiting.add(failed);
    try {
      const signal = AbortSignal.any([done.signal, ...(options.waiter ? [options.waiter.signal] : [])]);
      return await Promise.race([session.acquire({ ...options, waiter: { signal } }), lost]);
    } finally {
      waiting.delete(failed);
      done.abort();
    }
  }

  function manifest(wanted: string | null): Uint8Array | undefined {
    const named = (bytes: Uint8Array) => Buffer.from(sha256(bytes)).toString('hex') === wanted;
    return Object.values(manifests).find(named);
  }

  return { ...session, acquire, manifest };
}

/** How often a host is asked before a request gives up. */
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
function tell<News>(listener: ((news: News) => void) | undefined, news: () => News | undefined): void {
  if (listener === undefined) return;
  const current = news();
  if (current === undefined) return;
  try {
    listener(current);
  } catch (thrown) {
    queueMicrotask(() => {
      throw thrown;
    });
  }
}

function manifestSource(
  { manifest, cdnBaseUrl, clock }: ClientConfig,
  call: Parameters<typeof managedManifest>[0]['call'],
): ManifestSource {
  if (manifest === undefined) return managedManifest({ call, cdnBaseUrl, clock });
  return { kind: 'static', newest: async () => manifest };
}
