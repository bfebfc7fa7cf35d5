/** Verifies the live service by the same steps as the proxy's session before anything is encrypted. */
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { sha256Hex } from '../attestation/check.ts';
import type { Clock } from '../clock.ts';
import { configOf } from '../config/config.ts';
import { simulatorHint, trustRoots } from '../config/hardware-roots.ts';
import { orRefuse } from '../config/input-files.ts';
import { PROTOCOL_EXPERIMENT } from '../config/rules.ts';
import { invalid } from '../config/values.ts';
import { PrivatemodeError } from '../errors.ts';
import { publish } from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { serviceUrl } from '../network/addresses.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/outbound-proxy.ts';
import { createCollateralCache } from '../session/collateral-cache.ts';
import { createControlApi, managedManifest } from '../session/control-api.ts';
import { type AttestDeps, attest, type Judged } from '../session/epoch.ts';
import { shellWord } from '../text.ts';
import { completed, notJudged, rootsKind } from '../verdict/judge.ts';
import { type ExchangeRecord, type JudgedExchange, recordExchange } from '../verdict/record.ts';
import { errorOf, type Verdict } from '../verdict/verdict.ts';
import type { LiveRequest } from './verify-flags.ts';
import { readManifest, type Verified } from './verify-saved.ts';

/**
 * Verifies the live service. A failure of the network also leads to a verdict. `onStep` is called when a step
 * begins. Throws config_invalid and unsafe_roots_refused before any request.
 */
export async function verifyLive(
  request: LiveRequest,
  env: Environment,
  clock: Clock,
  onStep: (step: string) => unknown,
): Promise<Verified> {
  const { save, manifestPath, nonce } = request;
  if (save !== undefined) requireUnused(save);
  const config = { ...configOf(request.given, env).config, manifestPath };
  const { apiEndpoint: endpoint, cdnBaseUrl, amdKdsUrl, intelPcsUrl, unsafeTrustRoots } = config;
  const apiKey = config.apiKey?.key;
  if (apiKey === undefined) throw invalid('--api-key is missing');
  const roots = trustRoots(config);
  const outbound = createOutbound(env, { connectTimeout: clock.times.connectTimeout, clock });
  const subject = serviceUrl(endpoint);
  const control = { ...config, endpoint, clock, call: outbound.call };
  const vendors = createCollateralCache({ ...control, amdKdsUrl, intelPcsUrl, store: new Map() });
  const recording = recordExchange(vendors, subject);
  const deps = { control: createControlApi(control), roots, collateral: recording.source, clock };
  const expected = async () =>
    manifestPath === undefined ? managedManifest(control).newest() : readManifest(manifestPath);
  const asking = attestOnce(deps, expected, { apiKey, nonce }, onStep);
  const { verdict, exchange } = await asking.finally(() => outbound.close());
  const record = exchange && recording.record(exchange, verdict);
  const report = {
    mode: manifestPath === undefined ? 'managed' : 'static',
    subject,
    manifest: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
    roots: unsafeTrustRoots && `--unsafe-trust-roots ${unsafeTrustRoots}`,
  } as const;
  const error = errorOf(verdict);
  const warnings = [
    request.given.values.has('protocol-version') ? `Warning: ${PROTOCOL_EXPERIMENT}.` : undefined,
    error && simulatorHint(error, config),
  ];
  return { verdict, report, warnings, keep: save === undefined ? save : () => keepRecord(save, record) };
}

/** Returns the verdict. If there was evidence to judge, also returns the exchange that led to the verdict. */
async function attestOnce(
  deps: AttestDeps,
  expected: () => Promise<Uint8Array>,
  asked: { readonly apiKey: string; readonly nonce: Uint8Array | undefined },
  onStep: (step: string) => unknown,
): Promise<{ readonly verdict: Verdict; readonly exchange?: JudgedExchange }> {
  let manifest: Uint8Array | undefined;
  let judged: Judged | undefined;
  let error: PrivatemodeError | undefined;
  try {
    onStep('manifest');
    manifest = await expected();
    const onVerdict = (newest: Judged): void => {
      judged = newest;
    };
    await attest(deps, { onStep, onVerdict }, { ...asked, manifest });
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    error = thrown;
  }
  if (judged !== undefined) return { ...judged, verdict: completed(error, judged.verdict) };
  const cause = error ?? new PrivatemodeError('attestation_failed', 'the service was not judged');
  const at = new Date(deps.clock.now()).toISOString();
  const manifestSha256 = manifest === undefined ? null : sha256Hex(manifest);
  return { verdict: notJudged(cause, { at, roots: rootsKind(deps.roots), manifestSha256 }) };
}

/** Before anything is sent, refuses a file that exists already. Throws config_invalid. */
function requireUnused(path: string): void {
  if (existsSync(path)) throw taken(path);
  orRefuse(() => accessSync(`${dirname(resolve(path))}/.`, constants.W_OK), unwritable(path));
}

/** Stores the record whole or not at all. Only the file's owner can read the file. Throws config_invalid. */
async function keepRecord(path: string, record: ExchangeRecord | undefined): Promise<string> {
  if (record === undefined) return `Nothing was saved in ${path}: there is no evidence to save.\n`;
  const isNew = await publish(path, record.text, 0o600).catch((cause: unknown) => {
    throw unwritable(path)(cause);
  });
  if (!isNew) throw taken(path);
  return `The exchange was saved: verify --saved ${shellWord(path)}. Its SHA-256 is ${record.sha256}.\n`;
}

const taken = (path: string): PrivatemodeError =>
  invalid(`--save: ${path} is there already; name a new file`);

const unwritable = (path: string) => (cause: unknown) =>
  invalid(`--save: ${path} cannot be written: ${reasonOf(cause)}`, cause);
