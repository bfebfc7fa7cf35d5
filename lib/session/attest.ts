import { randomBytes } from 'node:crypto';
import { concernsClock } from '../attestation/findings.ts';
import { verifySecretResponse } from '../attestation/mesh.ts';
import {
  type Check,
  type CollateralSource,
  type TrustRoots,
  type Verdict,
  verify,
} from '../attestation/verify.ts';
import { CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';
import type { ManifestLog } from '../transparency/manifest-log.ts';
import type { Clock } from './clock.ts';
import type { ControlApi } from './control-api.ts';
import type { Epoch, Lifetimes } from './epoch.ts';
import type { Observer } from './events.ts';
import { startSecretExchange } from './secret-exchange.ts';

export interface AttestDeps {
  readonly control: ControlApi;
  readonly roots: TrustRoots;
  /** `distrust` is called after each rejected verdict. */
  readonly collateral: CollateralSource & { distrust?(): Promise<void> };
  readonly manifestLog: ManifestLog;
  readonly lifetimes: Lifetimes;
  readonly clock: Clock;
  /** 0 ≤ x < 1. */
  readonly random: () => number;
  readonly observe: Observer;
  /** Tests replace the verifier of evidence, and that of the signature on a secret. */
  readonly verify?: typeof verify;
  readonly judgeSecret?: (
    ...input: Parameters<typeof verifySecretResponse>
  ) => readonly Check[] | Promise<readonly Check[]>;
}

export interface AttestInput {
  readonly apiKey: string;
  /** The expected manifest, byte for byte. */
  readonly manifest: Uint8Array;
  readonly signal: AbortSignal;
}

/**
 * Makes one epoch (docs/protocol/attestation.md 1.3, 12): attests the service against `manifest`, exchanges a secret under
 * the attested mesh CA, and records the manifest before anybody may use the secret, so that what is enforced is always in
 * the log. Throws api_key_rejected, the code of the failed check, secret_exchange_failed, manifest_log_failed and what the
 * control API throws.
 */
export async function attestAndExchange(deps: AttestDeps, input: AttestInput): Promise<Epoch> {
  const { control, clock, lifetimes, observe, judgeSecret = verifySecretResponse } = deps;
  const { apiKey, manifest, signal } = input;
  const { meshCaPem, manifestSha256 } = await attest(deps, input);
  const attestedAt = clock.now();

  observe({ type: 'step', message: 'Waiting for the secret of the service' });
  const exchange = await startSecretExchange();
  // The service keeps the secret from some moment after this one, so counting from here errs on the safe side.
  const began = clock.now();
  const beganMonotonic = clock.monotonic();
  const response = await control.secret(apiKey, exchange.publicKey, signal);
  const { secretId, key } = await exchange.complete(response, (subject) =>
    judgeSecret({ ...subject, manifest, meshCaPem, now: new Date(clock.now()) }),
  );
  signal.throwIfAborted();

  const { appended, path } = await deps.manifestLog.record(manifest, clock.now());
  if (appended) {
    observe({ type: 'manifest-enforced', message: 'Manifest is enforced from now on', path, manifestSha256 });
  }
  return Object.freeze({
    secretId,
    key,
    manifestSha256,
    attestedAt,
    renewAt: Math.floor(began + lifetimes.renewAfter - deps.random() * lifetimes.jitter),
    expiresAt: Math.floor(began + lifetimes.usable),
    expiresMonotonic: Math.floor(beganMonotonic + lifetimes.usable),
  });
}

/** Asks for evidence with a fresh nonce; resolves with an accepted verdict. */
async function attest(
  deps: AttestDeps,
  { apiKey, manifest, signal }: AttestInput,
): Promise<Verdict & { readonly meshCaPem: string }> {
  const { control, roots, collateral, clock, observe } = deps;
  const nonce = new Uint8Array(randomBytes(32));
  observe({ type: 'step', message: 'Waiting for the evidence of the service' });
  const document = await control.attest(apiKey, nonce, signal);
  observe({ type: 'step', message: 'Waiting for the certificates and revocation lists of AMD or Intel' });
  const now = new Date(clock.now());
  const verdict = await (deps.verify ?? verify)({ document, nonce, manifest, roots, collateral, now });
  const { outcome, meshCaPem } = verdict;
  if (outcome !== 'accepted' || meshCaPem === undefined) {
    observe({ type: 'rejected', message: 'The evidence was rejected', verdict });
    await collateral.distrust?.();
    throw verdictError(verdict);
  }
  observe({ type: 'attested', message: 'Coordinator manifest fetched successfully', verdict });
  return { ...verdict, meshCaPem };
}

/** The check that decided, as an error with its code. */
function verdictError({ failure }: Verdict): PrivatemodeError {
  if (failure === undefined) {
    return new PrivatemodeError('attestation_failed', 'the evidence was not accepted');
  }
  const { id, code = 'attestation_failed', expected, found, source } = failure;
  const remedy = concernsClock(found) ? CLOCK_REMEDY : undefined;
  return new PrivatemodeError(code, `${id}: expected ${expected}; found ${found} (${source})`, { remedy });
}
