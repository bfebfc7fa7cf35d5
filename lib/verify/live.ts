/** Verifies the service itself, as the session of the proxy does before anything is encrypted for it. */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TrustRoots } from '../attestation/verify.ts';
import { readApiKey } from '../config/api-key.ts';
import { type Config, parseConfig } from '../config/config.ts';
import { trustRoots } from '../config/trust-roots.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import { createHttpCall } from '../network/http-call.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/trust-store.ts';
import { systemClock } from '../session/clock.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { type ControlApi, createControlApi } from '../session/control-api.ts';
import { startSecretExchange } from '../session/secret-exchange.ts';
import { managedManifest } from '../transparency/manifest-source.ts';
import { recordCollateral, type StoredCollateral } from './collateral-file.ts';
import { readManifest } from './exchange-files.ts';
import type { LiveRequest } from './flags.ts';
import { type Judgement, judge, notJudged } from './judge.ts';
import type { SecretMessages } from './secret-checks.ts';

/** What went over the wire, and what it was judged by; the secret's private key is not part of it, and gone. */
export interface LiveExchange {
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly manifest: Uint8Array;
  readonly collateral: StoredCollateral;
  /** Undefined where it did not come to the secret exchange. */
  readonly secret: SecretMessages | undefined;
  readonly roots: TrustRoots;
}

export interface LiveVerification {
  readonly judgement: Judgement;
  readonly config: Config;
  /** Undefined where the service did not answer. */
  readonly exchange: LiveExchange | undefined;
}

/** Failures of the network are a judgement as well. Throws config_invalid and unsafe_roots_refused before any call. */
export async function verifyLive(request: LiveRequest, env: Environment): Promise<LiveVerification> {
  const { manifestPath } = request;
  const { config: proxyConfig } = parseConfig(request.proxyArgv, env);
  const config = { ...proxyConfig, manifestPath };
  const apiKey = config.apiKey && readApiKey(config.apiKey, (path) => readFileSync(path));
  if (apiKey === undefined) throw new PrivatemodeError('config_invalid', '--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, config.connectTimeout);
  try {
    return await ask({ config, apiKey, roots, call: createHttpCall(outbound.dispatcher) });
  } finally {
    await outbound.close();
  }
}

async function ask(means: {
  readonly config: Config;
  readonly apiKey: string;
  readonly roots: TrustRoots;
  readonly call: ReturnType<typeof createHttpCall>;
}): Promise<LiveVerification> {
  const { config, apiKey, roots, call } = means;
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
  let secret: SecretMessages | undefined;
  const judgement = await judge({
    document,
    nonce,
    manifest,
    roots,
    rootsKind,
    collateral: collateral.source,
    at: new Date(),
    live: true,
    async secret() {
      secret = await exchangeSecret(control, apiKey);
      return secret;
    },
  });
  const exchange = { nonce, document, manifest, roots, secret, collateral: collateral.recorded() };
  return { judgement, config, exchange };
}

/** The secret itself is not wanted: its private key is dropped with the exchange object. */
async function exchangeSecret(control: ControlApi, apiKey: string): Promise<SecretMessages> {
  const { publicKey } = await startSecretExchange();
  return { publicKey, ...(await control.secret(apiKey, publicKey)) };
}

/** A verification asks for everything anew, and leaves nothing behind. */
function memoryStore(): CollateralStore {
  const stored = new Map<string, Collateral>();
  return {
    read: async (url) => stored.get(url),
    async write(url, collateral) {
      stored.set(url, collateral);
    },
    async remove(url) {
      stored.delete(url);
    },
  };
}
