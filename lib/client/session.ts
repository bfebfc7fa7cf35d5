/** The session of a client: everything in memory, everything fetched through the given network. */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { verify } from '../attestation/verify.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Clock } from '../session/clock.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { type ManifestSource, managedManifest, staticManifest } from '../session/manifest-source.ts';
import { type AttestedSession, createSession, type Epoch } from '../session/session.ts';
import { createFetchCall, isNobody } from './fetch-call.ts';
import type { ClientConfig, Protection } from './options.ts';
import { type Judged, verdictOf } from './verdict.ts';

type Acquiring = Parameters<AttestedSession['acquire']>[0] & {
  /** Which failure of a renewal is waited for no longer. Default: that of a host that has never answered. */
  readonly givesUp?: (error: PrivatemodeError) => boolean;
};

/** A session that knows its newest judgement. */
export interface ClientSession extends AttestedSession {
  judged(): Judged | undefined;
  acquire(options: Acquiring): Promise<Epoch>;
}

/** Opens the session of these options; nothing is fetched before a request needs it. */
export function openClientSession(config: ClientConfig): ClientSession {
  const { apiKey, apiEndpoint, collateralUrls } = config;
  let manifest: Uint8Array = new Uint8Array();
  let judged: Judged | undefined;
  /** Of those that wait for an epoch: told of each renewal that failed. */
  const waiting = new Set<(error: PrivatemodeError) => void>();
  const call = createFetchCall(config.fetch);
  const session: AttestedSession = createSession({
    apiKey,
    host: apiEndpoint.hostname,
    manifests: manifestSource(config, call),
    control: createControlApi({
      call,
      endpoint: { host: apiEndpoint.hostname.replace(/^\[|\]$/g, ''), port: Number(apiEndpoint.port || 443) },
      protocolVersion: PROTOCOL_VERSION,
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
    async verify(input) {
      const verdict = await verify(input);
      manifest = input.manifest;
      return verdict;
    },
    observe(event) {
      if ('verdict' in event) judged = { verdict: event.verdict, manifest };
      if (event.type === 'attested' || event.type === 'rejected') {
        tell(config.onVerdict, () => verdictOf(event.verdict, undefined, config));
      }
      if (event.type === 'update-failed') for (const failed of waiting) failed(event.error);
      if (event.type === 'epoch') tell(config.onEpoch, () => protectionOf(session));
    },
    manifestLog: { record: async () => ({ appended: false, path: '' }) }, // an application has no log of its own
    clock,
  });
  session.start();

  async function acquire({ givesUp = isNobody, ...options }: Acquiring): Promise<Epoch> {
    if (session.current() !== undefined) return session.acquire(options);
    const { promise: lost, reject } = Promise.withResolvers<never>();
    const done = new AbortController();
    const failed = (error: PrivatemodeError): void => {
      if (givesUp(error)) reject(error);
    };
    waiting.add(failed);
    try {
      const signal = AbortSignal.any([done.signal, ...(options.signal ? [options.signal] : [])]);
      return await Promise.race([session.acquire({ ...options, signal }), lost]);
    } finally {
      waiting.delete(failed);
      done.abort();
    }
  }

  return { ...session, acquire, judged: () => judged };
}

/** What protects requests of this session now. */
export function protectionOf(session: AttestedSession | undefined): Protection | undefined {
  const epoch = session?.current();
  if (epoch === undefined) return undefined;
  const { secretId, manifestSha256, attestedAt } = epoch;
  return { secretId, manifestSha256, attestedAt: new Date(attestedAt) };
}

/** Calls a listener of the application. What it throws must not stop a renewal, and must not be lost either. */
function tell<News>(listener: ((news: News) => void) | undefined, news: () => News | undefined): void {
  if (listener === undefined) return;
  const told = news();
  if (told === undefined) return;
  try {
    listener(told);
  } catch (thrown) {
    queueMicrotask(() => {
      throw thrown;
    });
  }
}

function manifestSource(
  { manifest, cdnBaseUrl }: ClientConfig,
  call: Parameters<typeof managedManifest>[0]['call'],
): ManifestSource {
  return manifest === undefined ? managedManifest({ call, cdnBaseUrl }) : staticManifest(manifest);
}

/** Timers keep a process of Node, Bun or Deno alive only where somebody waits for them. Browsers have no such thing. */
const clock: Clock = {
  now: Date.now,
  monotonic: () => performance.timeOrigin + performance.now(),
  after(ms, then, waiting) {
    const timer: unknown = setTimeout(then, ms);
    if (waiting === undefined) unref(timer);
    return () => clearTimeout(timer as NodeJS.Timeout);
  },
};

/** Lets the process end although the timer still waits. */
export function unref(timer: unknown): void {
  const { Deno } = globalThis as { Deno?: { unrefTimer(id: unknown): void } };
  if (typeof timer === 'number') Deno?.unrefTimer(timer);
  else (timer as { unref(): void }).unref();
}
