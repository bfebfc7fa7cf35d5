/**
 * Verifies the live service, with the same steps that the proxy's session takes before anything is encrypted.
 */
import { createHash } from 'node:crypto';
import type { TrustRoots } from '../attestation/verify-evidence.ts';
import type { Clock } from '../clock.ts';
import { readApiKey } from '../config/api-key.ts';
import { type Config, configOf } from '../config/config.ts';
import { PROTOCOL_EXPERIMENT } from '../config/rules.ts';
import { simulatorHint, trustRoots } from '../config/trust-roots.ts';
import { invalid } from '../config/values.ts';
import { PrivatemodeError } from '../errors.ts';
import { serviceUrl } from '../network/addresses.ts';
import type { ControlCall } from '../network/control-call.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/outbound-proxy.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { attest, type Step } from '../session/epoch.ts';
import { managedManifest } from '../session/manifest-source.ts';
import { canBeOpened } from '../session/secret-exchange.ts';
import { recordCollateral } from '../verdict/collateral-file.ts';
import { completed, notJudged, rootsKind, type SecretMessages } from '../verdict/judge.ts';
import type { SavedExchange } from '../verdict/saved-exchange.ts';
import { foreignRoots, rootsFrom, type Verified } from '../verdict/text.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { prepareSave, saveExchange } from './save-exchange.ts';
import { readManifest, readNonce } from './verify-files.ts';
import type { LiveRequest } from './verify-flags.ts';

/**
 * Called when a step has ended: how many ms it took, and whether it succeeded, so that the next one may
 * follow.
 */
export type OnStep = (step: string, ms: number, holds: boolean) => void;

/**
 * Verifies the live service. Failures of the network give a verdict too. `onStep` is called as each step
 * ends. Throws config_invalid and unsafe_roots_refused before any request.
 */
export async function verifyLive(
  request: LiveRequest,
  env: Environment,
  { clock, onStep = () => {} }: { readonly clock: Clock; readonly onStep?: OnStep },
): Promise<Verified> {
  const { save, manifestPath } = request;
  if (save !== undefined) prepareSave(save);
  const config = { ...configOf(request.given, env).config, manifestPath };
  const { apiEndpoint, cdnBaseUrl, unsafeTrustRoots } = config;
  const apiKey = config.apiKey && readApiKey(config.apiKey);
  if (apiKey === undefined) throw invalid('--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, { connectTimeout: config.connectTimeout, clock });
  const nonce = request.nonce === undefined ? undefined : readNonce(request.nonce);
  const asking = askService(config, apiKey, { roots, call: outbound.call, clock, onStep, nonce });
  const { verdict, exchange } = await asking.finally(() => outbound.close());
  const subject = serviceUrl(apiEndpoint);
  const report = {
    mode: 'live',
    subject,
    rootsFrom: rootsFrom(unsafeTrustRoots),
    manifestFrom: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
    manifest: manifestPath === undefined ? 'managed' : 'static',
    saved: save !== undefined && exchange !== undefined,
  } as const;
  const hint = verdict.failure && simulatorHint(verdict.failure.error, config, env);
  const hinted = hint === undefined ? '' : `${hint}\n`;
  const experiment = request.given.values.has('protocol-version') ? `Warning: ${PROTOCOL_EXPERIMENT}.\n` : '';
  const warning = experiment + foreignRoots('--unsafe-trust-roots', unsafeTrustRoots) + hinted;
  if (save === undefined) return { verdict, report, warning };
  const keep = async (): Promise<string> => {
    if (exchange === undefined) return `Nothing was saved in ${save}: there is no evidence to save.\n`;
    await saveExchange(save, exchange, verdict, subject);
    return `The exchange was saved in ${save}; README.txt there says how to verify it again.\n`;
  };
  return { verdict, report, warning, keep };
}

/** The exchange is undefined if there is no evidence to judge. */
async function askService(
  { protocolVersion, cdnBaseUrl, manifestPath, apiEndpoint, amdKdsUrl, intelPcsUrl }: Config,
  apiKey: string,
  {
    roots,
    call,
    clock,
    onStep,
    nonce,
  }: {
    readonly roots: TrustRoots;
    readonly call: ControlCall;
    readonly clock: Clock;
    readonly onStep: OnStep;
    readonly nonce: Uint8Array | undefined;
  },
): Promise<{ readonly verdict: Verdict; readonly exchange: SavedExchange | undefined }> {
  const vendors = { call, store: new Map(), amdKdsUrl, intelPcsUrl, clock };
  const collateral = recordCollateral(createCollateralCache(vendors));
  const { step, end } = stepwise(onStep);
  let manifest: Uint8Array | undefined;
  const found: {
    verdict?: Verdict;
    asked?: Pick<SavedExchange, 'nonce' | 'document'>;
    secret?: SecretMessages;
  } = {};
  let error: PrivatemodeError | undefined;
  try {
    step('manifest');
    const published = managedManifest({ call, cdnBaseUrl, clock });
    manifest = manifestPath === undefined ? await published.newest() : readManifest(manifestPath);
    const control = createControlApi({
      call,
      endpoint: apiEndpoint,
      protocolVersion,
      clock,
    });
    await attest(
      { control, roots, collateral: collateral.source, clock, canBeOpened },
      {
        onStep: (name) => step(STEPS[name]),
        onEvidence: ({ verdict, nonce, document }) =>
          Object.assign(found, { verdict, asked: { nonce, document } }),
        onSecret: ({ verdict, messages }) => Object.assign(found, { verdict, secret: messages }),
      },
      { apiKey, manifest, nonce },
    );
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    error = thrown;
  }
  const { verdict, asked, secret } = found;
  end(error === undefined);
  if (verdict === undefined || asked === undefined || manifest === undefined) {
    const cause = error ?? new PrivatemodeError('attestation_failed', 'the service was not judged');
    const manifestSha256 = manifest && createHash('sha256').update(manifest).digest('hex');
    const known = { at: new Date(clock.now()), roots: rootsKind(roots), manifestSha256 };
    return { verdict: notJudged(cause, known), exchange: undefined };
  }
  const exchange = { ...asked, manifest, roots, secret, collateral: collateral.recorded() };
  return { verdict: completed(error, verdict), exchange };
}

const STEPS: Readonly<Record<Step, string>> = {
  evidence: 'evidence',
  collateral: 'checks of the evidence',
  secret: 'secret exchange',
};

/** Reports steps one after the other: a step begins when the one before it has succeeded. */
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
