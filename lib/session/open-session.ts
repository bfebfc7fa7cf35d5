import { join } from 'node:path';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import type { TrustRoots } from '../attestation/verify.ts';
import type { PrivatemodeError } from '../errors.ts';
import { createHttpCall, type HttpCall } from '../network/http-call.ts';
import type { Outbound } from '../network/outbound.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import { createManifestLog } from '../transparency/manifest-log.ts';
import { type ManifestSource, managedManifest, staticManifest } from '../transparency/manifest-source.ts';
import { systemClock } from './clock.ts';
import { createCollateralCache } from './collateral-cache.ts';
import { createCollateralStore } from './collateral-store.ts';
import { createControlApi } from './control-api.ts';
import { eventLog } from './event-log.ts';
import type { Observer } from './events.ts';
import type { Lifetimes } from './lifetimes.ts';
import { type AttestedSession, createSession } from './session.ts';
import { loadUnsafeTrustRoots } from './trust-roots.ts';

/** What of the configuration decides whom the session trusts and talks to. */
export interface SessionSettings {
  readonly apiEndpoint: { readonly host: string; readonly port: number };
  /** Undefined: the manifest comes from the CDN. */
  readonly manifestPath: string | undefined;
  readonly cdnBaseUrl: string;
  readonly amdKdsUrl: string;
  readonly intelPcsUrl: string;
  readonly workspace: string;
  readonly unsafeTrustRoots: string | undefined;
}

export interface SessionSurroundings {
  readonly outbound: Outbound;
  /** Value of Privatemode-Version. */
  readonly protocolVersion: string;
  readonly apiKey: string | undefined;
  readonly log: Logger;
  readonly counters: Counters;
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
  /** Besides the log. */
  readonly onEvent?: Observer;
  /** Default: what the service keeps secrets for. */
  readonly lifetimes?: Lifetimes | undefined;
}

/** A session with everything it needs. Throws config_invalid and unsafe_roots_refused. */
export async function openSession(
  settings: SessionSettings,
  around: SessionSurroundings,
): Promise<AttestedSession> {
  const { outbound, protocolVersion, apiKey, log, counters, onPermanent, onEvent, lifetimes } = around;
  const logged = eventLog(log, counters);
  const { apiEndpoint, amdKdsUrl, intelPcsUrl, workspace } = settings;
  const call = createHttpCall(outbound.dispatcher);
  const store = createCollateralStore(join(workspace, 'collateral'));
  return createSession({
    apiKey,
    control: createControlApi({ call, endpoint: apiEndpoint, protocolVersion }),
    roots: trustRoots(settings),
    collateral: createCollateralCache({ call, store, amdKdsUrl, intelPcsUrl, clock: systemClock }),
    manifests: await manifestSource(settings, call),
    manifestLog: createManifestLog(workspace),
    observe(event) {
      logged(event);
      onEvent?.(event);
    },
    ...(onPermanent === undefined ? {} : { onPermanent }),
    ...(lifetimes === undefined ? {} : { lifetimes }),
  });
}

async function manifestSource(
  { manifestPath, cdnBaseUrl }: SessionSettings,
  get: HttpCall,
): Promise<ManifestSource> {
  return manifestPath === undefined ? managedManifest({ cdnBaseUrl, get }) : staticManifest(manifestPath);
}

/** The vendors' roots, or those of a simulator; the configuration has warned of these. Throws as loadUnsafeTrustRoots. */
export function trustRoots(
  settings: Pick<SessionSettings, 'unsafeTrustRoots' | 'apiEndpoint' | 'cdnBaseUrl' | 'manifestPath'>,
): TrustRoots {
  const { unsafeTrustRoots: directory, apiEndpoint, cdnBaseUrl, manifestPath } = settings;
  if (directory === undefined) return PRODUCTION_ROOTS;
  const hosts = [apiEndpoint.host, ...(manifestPath === undefined ? [new URL(cdnBaseUrl).host] : [])];
  return loadUnsafeTrustRoots(directory, hosts);
}
