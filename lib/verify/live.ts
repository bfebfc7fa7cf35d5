/** Verifies the live service, as the proxy's session does before anything is encrypted for it. */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TrustRoots } from '../attestation/verify.ts';
import { readApiKey } from '../config/api-key.ts';
import { type Config, parseConfig } from '../config/config.ts';
import { trustRoots } from '../config/trust-roots.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import { createHttpCall, type HttpCall } from '../network/http-call.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/trust-store.ts';
import { systemClock } from '../session/clock.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { startSecretExchange } from '../session/secret-exchange.ts';
import { managedManifest } from '../transparency/manifest-source.ts';
import { recordCollateral, type StoredCollateral } from './collateral-file.ts';
import type { LiveRequest } from './flags.ts';
import { type Judgement, judge, notJudged, type SecretMessages } from './judge.ts';
import { readManifest } from './offline.ts';

/** What crossed the wire, and what it was judged by; without the private key of the secret exchange. */
export interface LiveExchange {
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly manifest: Uint8Array;
  readonly collateral: StoredCollateral;
  /** Undefined where no secret exchange was completed. */
  readonly secret: SecretMessages | undefined;
  readonly roots: TrustRoots;
}

interface LiveVerification {
  readonly judgement: Judgement;
  readonly config: Config;
  /** Undefined where the service did not answer. */
  readonly exchange: LiveExchange | undefined;
}

/** Failures of the network are a judgement as well. Throws config_invalid and unsafe_roots_refused before any request. */
export async function verifyLive(request: LiveRequest, env: Environment): Promise<LiveVerification> {
  const parsed = parseConfig(request.proxyArgv, env);
  const config = { ...parsed.config, manifestPath: request.manifestPath };
  const apiKey = config.apiKey && readApiKey(config.apiKey, (path) => readFileSync(path));
  if (apiKey === undefined) throw new PrivatemodeError('config_invalid', '--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, config.connectTimeout);
  try {
    return await verifyService({ config, apiKey, roots, call: createHttpCall(outbound.dispatcher) });
  } finally {
    await outbound.close();
  }
}

async function verifyService(deps: {
  readonly config: Config;
  readonly apiKey: string;
  readonly roots: TrustRoots;
  readonly call: HttpCall;
}): Promise<LiveVerification> {
  const { config, apiKey, roots, call } = deps;
  const { cdnBaseUrl, manifestPath, apiEndpoint, amdKdsUrl, intelPcsUrl } = config;
  const rootsKind = config.unsafeTrustRoots === undefined ? 'vendor' : 'custom';
  const control = createControlApi({ call, endpoint: apiEndpoint, protocolVersion: PROTOCOL_VERSION });
  const nonce = new Uint8Array(randomBytes(32));
  let manifest: Uint8Array | undefined;
  let document: Uint8Array;
  try {
    manifest =
      manifestPath === undefined
        ? await managedManifest({ call, cdnBaseUrl }).newest()
        : readManifest(manifestPath);
    document = await control.attest(apiKey, nonce);
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    const manifestSha256 = manifest && createHash('sha256').update(manifest).digest('hex');
    const judgement = notJudged(error, { at: new Date(), roots: rootsKind, manifestSha256 });
    return { judgement, config, exchange: undefined };
  }

  const collateral = recordCollateral(
    createCollateralCache({ call, store: memoryStore(), amdKdsUrl, intelPcsUrl, clock: systemClock }),
  );
  const sent = { nonce, document, manifest, roots };
  let secret: SecretMessages | undefined;
  const judgement = await judge({
    ...sent,
    rootsKind,
    collateral: collateral.source,
    at: new Date(),
    live: true,
    async secret() {
      // The secret itself is not wanted: its private key is dropped with the exchange object.
      const { publicKey } = await startSecretExchange();
      secret = { publicKey, ...(await control.secret(apiKey, publicKey)) };
      return secret;
    },
  });
  return { judgement, config, exchange: { ...sent, secret, collateral: collateral.recorded() } };
}

/** Keeps collateral for this verification only: each asks for everything anew and leaves nothing behind. */
function memoryStore(): CollateralStore {
  const stored = new Map<string, Collateral>();
  return {
    read: async (url) => stored.get(url),
    write: async (url, collateral) => void stored.set(url, collateral),
    remove: async (url) => void stored.delete(url),
  };
}
