/** Verifies the live service, as the proxy's session does before anything is encrypted for it. */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TrustRoots } from '../attestation/verify.ts';
import { readApiKey } from '../config/api-key.ts';
import { type Config, configOf } from '../config/config.ts';
import { PROTOCOL_EXPERIMENT } from '../config/rules.ts';
import { simulatorHint, trustRoots } from '../config/trust-roots.ts';
import { invalid } from '../config/values.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from '../network/addresses.ts';
import { createHttpCall, type HttpCall } from '../network/http-call.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/trust-store.ts';
import { systemClock } from '../session/clock.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { managedManifest } from '../session/manifest-source.ts';
import { canBeOpened, startSecretExchange } from '../session/secret-exchange.ts';
import { judge, notJudged, type SecretMessages } from '../verdict/judge.ts';
import { foreignRoots, rootsFrom, type Verified } from '../verdict/text.ts';
import type { Judgement } from '../verdict/verdict.ts';
import { recordCollateral } from './collateral-file.ts';
import { type LiveExchange, prepareSave, saveExchange } from './save-exchange.ts';
import { readManifest } from './verify-files.ts';
import type { LiveRequest } from './verify-flags.ts';

/** Called when a step has ended, with the ms it took, and whether the next one may follow. */
export type OnStep = (step: string, ms: number, holds: boolean) => void;

/**
 * Failures of the network are a judgement as well. `onStep` hears of each step as it ends. Throws config_invalid and
 * unsafe_roots_refused before any request.
 */
export async function verifyLive(
  request: LiveRequest,
  env: Environment,
  onStep: OnStep = () => {},
): Promise<Verified> {
  const { save, manifestPath } = request;
  if (save !== undefined) prepareSave(save);
  const config = { ...configOf(request.given, env).config, manifestPath };
  const { apiEndpoint, cdnBaseUrl, unsafeTrustRoots } = config;
  const apiKey = config.apiKey && readApiKey(config.apiKey, (path) => readFileSync(path));
  if (apiKey === undefined) throw invalid('--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, config.connectTimeout);
  const call = createHttpCall(outbound.dispatcher);
  const asking = askService(config, apiKey, { roots, call, onStep });
  const { judgement, exchange } = await asking.finally(() => outbound.close());
  const subject = `https://${urlHost(apiEndpoint.host)}:${apiEndpoint.port}`;
  const report = {
    mode: 'live',
    ...{ subject, rootsFrom: rootsFrom(unsafeTrustRoots) },
    manifestFrom: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
    manifest: manifestPath === undefined ? 'managed' : 'static',
    saved: save !== undefined && exchange !== undefined,
  } as const;
  const hint = judgement.failure && simulatorHint(judgement.failure.error.code, config, env);
  const hinted = hint === undefined ? '' : `${hint}\n`;
  const experiment = request.given.values.has('protocol-version') ? `Warning: ${PROTOCOL_EXPERIMENT}.\n` : '';
  const warning = experiment + foreignRoots('--unsafe-trust-roots', unsafeTrustRoots) + hinted;
  if (save === undefined) return { judgement, report, warning };
  const keep = async (): Promise<string> => {
    if (exchange === undefined) return `Nothing was saved in ${save}: the service did not answer.\n`;
    await saveExchange(save, exchange, judgement, subject);
    return `The exchange was saved in ${save}; README.txt there says how to verify it again.\n`;
  };
  return { judgement, report, warning, keep };
}

/** The exchange is undefined where the service did not answer. */
async function askService(
  {
    protocolVersion,
    cdnBaseUrl,
    manifestPath,
    apiEndpoint,
    amdKdsUrl,
    intelPcsUrl,
    unsafeTrustRoots,
  }: Config,
  apiKey: string,
  { roots, call, onStep }: { readonly roots: TrustRoots; readonly call: HttpCall; readonly onStep: OnStep },
): Promise<{ readonly judgement: Judgement; readonly exchange: LiveExchange | undefined }> {
  const rootsKind = unsafeTrustRoots === undefined ? 'vendor' : 'custom';
  const control = createControlApi({ call, endpoint: apiEndpoint, protocolVersion });
  const nonce = new Uint8Array(randomBytes(32));
  let manifest: Uint8Array | undefined;
  let document: Uint8Array;
  const { step, end } = stepwise(onStep);
  try {
    const published = managedManifest({ call, cdnBaseUrl });
    step('manifest');
    manifest = manifestPath === undefined ? await published.newest() : readManifest(manifestPath);
    step('evidence');
    document = await control.attest(apiKey, nonce);
  } catch (error) {
    end(false);
    if (!(error instanceof PrivatemodeError)) throw error;
    const manifestSha256 = manifest && createHash('sha256').update(manifest).digest('hex');
    const judgement = notJudged(error, { at: new Date(), roots: rootsKind, manifestSha256 });
    return { judgement, exchange: undefined };
  }

  const vendors = { call, store: new Map(), amdKdsUrl, intelPcsUrl, clock: systemClock };
  const collateral = recordCollateral(createCollateralCache(vendors));
  const sent = { nonce, document, manifest, roots };
  let messages: SecretMessages | undefined;
  async function secret(): Promise<SecretMessages> {
    step('secret exchange');
    // The secret itself is not wanted: its private key is dropped with the exchange object.
    const { publicKey } = await startSecretExchange();
    messages = { publicKey, ...(await control.secret(apiKey, publicKey)) };
    return messages;
  }
  const asked = { collateral: collateral.source, secret, canBeOpened, at: new Date(), live: true };
  step('checks of the evidence');
  const judgement = await judge({ ...sent, ...asked });
  end(judgement.outcome === 'accepted');
  return { judgement, exchange: { ...sent, secret: messages, collateral: collateral.recorded() } };
}

/** Steps one after the other: each begins where the one before it has ended well. */
function stepwise(onStep: OnStep) {
  let running: { readonly name: string; readonly since: number } | undefined;
  function end(holds: boolean): void {
    if (running !== undefined) onStep(running.name, performance.now() - running.since, holds);
    running = undefined;
  }
  return {
    end,
    step(name: string): void {
      end(true);
      running = { name, since: performance.now() };
    },
  };
}
