/** Wires the session together: its roots of trust, its connections, its files and its log. */
import { join } from 'node:path';
import type { Config } from './config/config.ts';
import { trustRoots } from './config/trust-roots.ts';
import { PROTOCOL_VERSION } from './envelope/protection.ts';
import type { PrivatemodeError } from './errors.ts';
import { createCollateralStore } from './network/collateral-store.ts';
import { createHttpCall } from './network/http-call.ts';
import type { Outbound } from './network/outbound.ts';
import type { Counters } from './observe/counters.ts';
import type { Logger } from './observe/log.ts';
import { sessionLog } from './observe/session-log.ts';
import { systemClock } from './session/clock.ts';
import { createCollateralCache } from './session/collateral-cache.ts';
import { createControlApi } from './session/control-api.ts';
import type { Lifetimes } from './session/epoch.ts';
import type { Observer } from './session/events.ts';
import { type AttestedSession, createSession } from './session/session.ts';
import { createManifestLog } from './transparency/manifest-log.ts';
import { managedManifest, staticManifest } from './transparency/manifest-source.ts';

export interface OpenSessionDeps {
  readonly outbound: Outbound;
  readonly apiKey: string | undefined;
  readonly log: Logger;
  readonly counters: Counters;
  readonly onPermanent: ((error: PrivatemodeError) => void) | undefined;
  /** Besides the log. */
  readonly onEvent: Observer;
  /** Undefined: those that fit the real service. */
  readonly lifetimes: Lifetimes | undefined;
}

/** A session with everything it needs. Throws config_invalid and unsafe_roots_refused. */
export async function openSession(config: Config, deps: OpenSessionDeps): Promise<AttestedSession> {
  const { outbound, apiKey, log, counters, onPermanent, onEvent, lifetimes } = deps;
  const { apiEndpoint: endpoint, manifestPath, cdnBaseUrl, amdKdsUrl, intelPcsUrl, workspace } = config;
  const call = createHttpCall(outbound.dispatcher);
  const store = createCollateralStore(join(workspace, 'collateral'));
  const writeLog = sessionLog(log, counters);
  return createSession({
    apiKey,
    clock: systemClock,
    control: createControlApi({ call, endpoint, protocolVersion: PROTOCOL_VERSION }),
    roots: trustRoots(config),
    collateral: createCollateralCache({ call, store, amdKdsUrl, intelPcsUrl, clock: systemClock }),
    manifests:
      manifestPath === undefined ? managedManifest({ call, cdnBaseUrl }) : await staticManifest(manifestPath),
    manifestLog: createManifestLog(workspace),
    observe(event) {
      writeLog(event);
      onEvent(event);
    },
    onPermanent,
    lifetimes,
  });
}
