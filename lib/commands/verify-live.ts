/**
 * Verifies the live service, with the same steps that the proxy's session takes before anything is encrypted.
 */
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { TrustRoots } from '../attestation/verify-evidence.ts';
import type { Clock } from '../clock.ts';
import { readApiKey } from '../config/api-key.ts';
import { type Config, configOf } from '../config/config.ts';
import { orRefuse } from '../config/files.ts';
import { PROTOCOL_EXPERIMENT } from '../config/rules.ts';
import { simulatorHint, trustRoots } from '../config/trust-roots.ts';
import { invalid } from '../config/values.ts';
import { PrivatemodeError } from '../errors.ts';
import { publish } from '../files/durable-file.ts';
import { pathRefusal } from '../files/path-refusal.ts';
import { serviceUrl } from '../network/addresses.ts';
import type { ControlCall } from '../network/control-call.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/outbound-proxy.ts';
import { attest, type Step } from '../session/attest.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi } from '../session/control-api.ts';
import { managedManifest } from '../session/manifest-source.ts';
import { shellWord } from '../text.ts';
import { completed, notJudged, rootsKind, type SecretMessages } from '../verdict/judge.ts';
import { type Exchange, type ExchangeRecord, recordExchange } from '../verdict/record.ts';
import { foreignRoots, type Verified } from '../verdict/text.ts';
import { errorOf, type Verdict } from '../verdict/verdict.ts';
import type { LiveRequest } from './verify-flags.ts';
import { readManifest } from './verify-saved.ts';

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
  const { save, manifestPath, nonce } = request;
  if (save !== undefined) requireUnused(save);
  const config = { ...configOf(request.given, env).config, manifestPath };
  const { apiEndpoint, cdnBaseUrl, unsafeTrustRoots } = config;
  const apiKey = config.apiKey && readApiKey(config.apiKey);
  if (apiKey === undefined) throw invalid('--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, { connectTimeout: config.connectTimeout, clock });
  const asking = askService(config, apiKey, { roots, call: outbound.call, clock, onStep, nonce });
  const { verdict, record } = await asking.finally(() => outbound.close());
  const report = {
    mode: manifestPath === undefined ? 'managed' : 'static',
    saved: save !== undefined && record !== undefined,
    atGiven: false,
    rows: {
      Subject: serviceUrl(apiEndpoint),
      Manifest: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
      Roots: `${unsafeTrustRoots === undefined ? 'AMD and Intel, built in' : `${unsafeTrustRoots}, NOT those of AMD and Intel`}`,
    },
  } as const;
  const error = errorOf(verdict);
  const hint = error && simulatorHint(error, config, env);
  const warning = [
    request.given.values.has('protocol-version') && `Warning: ${PROTOCOL_EXPERIMENT}.\n`,
    unsafeTrustRoots !== undefined && foreignRoots(`--unsafe-trust-roots ${unsafeTrustRoots}`),
    hint !== undefined && `${hint}\n`,
  ];
  const told = { verdict, report, warning: warning.filter(Boolean).join('') };
  return save === undefined ? told : { ...told, keep: () => keepRecord(save, record) };
}

/** Refuses a file that is there, before the first request. Throws config_invalid. */
function requireUnused(path: string): void {
  if (existsSync(path))
    throw invalid(
      `--save: ${path} is there already; name a new file, or verify that record: verify --saved ${path}`,
    );
  orRefuse(() => accessSync(`${dirname(resolve(path))}/.`, constants.W_OK), unwritable(path));
}

/** Stores the record whole or not at all, readable by its owner only. Throws config_invalid. */
async function keepRecord(path: string, record: ExchangeRecord | undefined): Promise<string> {
  if (record === undefined) return `Nothing was saved in ${path}: there is no evidence to save.\n`;
  await publish(path, record.text, 0o600).catch((cause: unknown) => {
    throw unwritable(path)(cause);
  });
  return `The exchange was saved: verify --saved ${shellWord(path)}. Its SHA-256 is ${record.sha256}.\n`;
}

const unwritable = (path: string) => (cause: unknown) =>
  invalid(`--save: ${path} cannot be written: ${pathRefusal(path, cause, 'write to')}`, cause);

/** The record is undefined if there is no evidence to judge. */
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
): Promise<{ readonly verdict: Verdict; readonly record?: ExchangeRecord }> {
  const vendors = { call, store: new Map(), amdKdsUrl, intelPcsUrl, clock };
  const recording = recordExchange(createCollateralCache(vendors), serviceUrl(apiEndpoint));
  const { step, end } = stepwise(onStep);
  let manifest: Uint8Array | undefined;
  const found: {
    verdict?: Verdict;
    asked?: Pick<Exchange, 'nonce' | 'document'>;
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
      { control, roots, collateral: recording.source, clock },
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
    const manifestSha256 =
      manifest === undefined ? null : createHash('sha256').update(manifest).digest('hex');
    const known = { at: new Date(clock.now()).toISOString(), roots: rootsKind(roots), manifestSha256 };
    return { verdict: notJudged(cause, known) };
  }
  const judged = completed(error, verdict);
  return { verdict: judged, record: recording.record({ ...asked, manifest, roots, secret }, judged) };
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
