import { sha256 } from '#crypto/digest';
import { concernsClock } from '../attestation/findings.ts';
import { verifySecretResponse } from '../attestation/mesh.ts';
import { type TrustRoots, type Verdict, verify } from '../attestation/verify.ts';
import { randomBytes } from '../crypto/random.ts';
import { asPrivatemodeError, CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';
import type { ManifestLog } from '../transparency/manifest-log.ts';
import { verdictReport, verdictText, withSecretChecks } from '../transparency/verdict-report.ts';
import { type Clock, pause, type Term } from './clock.ts';
import type { CollateralCache } from './collateral-cache.ts';
import type { ControlApi } from './control-api.ts';
import { cureOf, failureMessage, type Observer } from './events.ts';
import type { ManifestSource } from './manifest-source.ts';
import { type SharedSecret, startSecretExchange } from './secret-exchange.ts';

/** One attested secret with its manifest and times. Immutable; a request attempt holds exactly one. */
export interface Epoch extends SharedSecret, Term {
  /** Lower-case hex SHA-256 of the manifest the remote was verified against. */
  readonly manifestSha256: string;
  /** Lower-case hex SHA-256 of the verdict on the remote, as `verdictText` writes it. */
  readonly verdictSha256: string;
  /** From here on the session renews it in the background. */
  readonly renewAt: number;
}

/** How long an epoch is good for, as `lifetimesOf` says. */
export type Lifetimes = Readonly<ReturnType<typeof lifetimesOf>>;

/** The service forgets a secret one hour after the exchange (docs/protocol/inference.md 10). */
const SERVICE_KEEPS_SECRET = 3_600_000;

/**
 * For a service that keeps secrets for `secret` ms; in ms from the beginning of the exchange. Renewal begins after three
 * quarters, where the reference makes requests wait, and up to `jitter` earlier, at random: a fleet that was started
 * together must not renew together. A sixth of the lifetime (ten minutes of the hour) remains to get through an outage
 * unnoticed. The last twelfth (five minutes) stays unused: the service looks the secret up when a request has arrived, which
 * for a large upload is minutes after it was sealed, and the two clocks may drift apart while this machine sleeps.
 */
export function lifetimesOf(secret: number = SERVICE_KEEPS_SECRET) {
  return { renewAfter: secret * (3 / 4), jitter: secret / 30, usable: secret * (11 / 12) };
}

export interface EpochDeps {
  readonly manifests: ManifestSource;
  readonly control: ControlApi;
  readonly roots: TrustRoots;
  readonly collateral: CollateralCache;
  readonly manifestLog: ManifestLog;
  /** Default: those that fit the real service. */
  readonly lifetimes?: Lifetimes | undefined;
  readonly clock: Clock;
  /** 0 ≤ x < 1. */
  readonly random: () => number;
  readonly observe: Observer;
  /** Tests replace the verifier of evidence, and that of the signature on a secret. */
  readonly verify?: typeof verify;
  readonly judgeSecret?: typeof verifySecretResponse;
}

const ROUNDS = 3;

/**
 * What makes an epoch with an API key, in up to three rounds, and throws what the last round threw, or the signal's reason.
 * It expects the manifest that was enforced last, so that renewals do not depend on the CDN. Where validation fails and the
 * manifest is managed, it fetches the newest one, once, and validates again.
 */
export function createEpochMaker(deps: EpochDeps): (apiKey: string, signal: AbortSignal) => Promise<Epoch> {
  const { manifests, control, roots, collateral, manifestLog, clock, random, observe } = deps;
  const { lifetimes = lifetimesOf(), verify: judge = verify, judgeSecret = verifySecretResponse } = deps;
  let enforced: Uint8Array | undefined;

  /**
   * Makes one epoch (docs/protocol/attestation.md 1.3, 12): attests the service against `manifest`, exchanges a secret
   * under the attested mesh CA, and records the manifest before anybody may use the secret, so that what is enforced is
   * always in the log. Throws api_key_rejected, the code of the failed check, secret_exchange_failed, manifest_log_failed
   * and what the control API throws.
   */
  async function tryOnce(apiKey: string, manifest: Uint8Array, signal: AbortSignal): Promise<Epoch> {
    const { verdict, meshCaPem } = await attest(apiKey, manifest, signal);
    const { manifestSha256 } = verdict;
    const attestedAt = clock.now();

    observe({ type: 'step', message: 'Waiting for the secret of the service' });
    const exchange = await startSecretExchange();
    // The service keeps the secret from some moment after this one, so counting from here errs on the safe side.
    const began = clock.now();
    const beganMonotonic = clock.monotonic();
    const response = await control.secret(apiKey, exchange.publicKey, signal);
    let whole = verdict;
    const shared = await exchange.complete(response, async (subject) => {
      const now = new Date(clock.now());
      const checks = await judgeSecret({ ...subject, manifest, meshCaPem, now });
      whole = withSecretChecks(verdict, checks);
      const message = 'The signature on the secret was checked';
      observe({ type: 'secret-judged', message, verdict: whole });
      return checks;
    });
    signal.throwIfAborted();

    const { appended, path } = await manifestLog.record(manifest, clock.now());
    enforced = manifest;
    if (appended) {
      const message = 'Manifest is enforced from now on';
      observe({ type: 'manifest-enforced', message, path, manifestSha256 });
    }
    const report = verdictText(verdictReport(whole, roots));
    const verdictSha256 = Buffer.from(sha256(Buffer.from(report))).toString('hex');
    observe({ type: 'verdict', message: 'The verdict is complete', report, sha256: verdictSha256 });
    return Object.freeze({
      ...shared,
      manifestSha256,
      verdictSha256,
      attestedAt,
      renewAt: Math.floor(began + lifetimes.renewAfter - random() * lifetimes.jitter),
      expiresAt: Math.floor(began + lifetimes.usable),
      expiresMonotonic: Math.floor(beganMonotonic + lifetimes.usable),
    });
  }

  /** Asks for evidence with a fresh nonce; resolves with an accepted verdict. */
  async function attest(apiKey: string, manifest: Uint8Array, signal: AbortSignal) {
    const nonce = Uint8Array.from(randomBytes(32));
    observe({ type: 'step', message: 'Waiting for the evidence of the service' });
    const document = await control.attest(apiKey, nonce, signal);
    observe({ type: 'step', message: 'Waiting for the certificates and revocation lists of AMD or Intel' });
    const now = new Date(clock.now());
    const verdict = await judge({ document, nonce, manifest, roots, collateral, now });
    const { outcome, meshCaPem } = verdict;
    if (outcome !== 'accepted' || meshCaPem === undefined) {
      observe({ type: 'rejected', message: 'The evidence was rejected', verdict });
      await collateral.distrust(verdict.checks);
      throw verdictError(verdict);
    }
    observe({ type: 'attested', message: 'Coordinator manifest fetched successfully', verdict });
    return { verdict, meshCaPem };
  }

  return async (apiKey, signal) => {
    let manifest = enforced;
    let refetched = manifests.kind === 'static';
    for (let round = 1; ; ) {
      try {
        signal.throwIfAborted();
        if (manifest === undefined) {
          observe({ type: 'step', message: 'Waiting for the manifest' });
          manifest = await manifests.newest(signal);
        }
        return await tryOnce(apiKey, manifest, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        const error = asPrivatemodeError(thrown);
        if (cureOf(error) === 'newer manifest' && manifest !== undefined && !refetched) {
          refetched = true;
          const newest = await manifests.newest(signal).catch(() => {
            signal.throwIfAborted();
            throw error; // the CDN does not have the newest manifest, but the service failed the validation
          });
          const changed = Buffer.compare(newest, manifest) !== 0;
          const message = 'Validation failed, trying the newest manifest';
          observe({ type: 'manifest-refetched', message, error, changed });
          manifest = newest;
          continue;
        }
        if (round === ROUNDS || cureOf(error) !== 'time') throw error;
        observe({ type: 'round-failed', message: failureMessage(error, round * 1000), error, round });
        await pause(clock, round * 1000 + random() * 100, signal);
        round++;
      }
    }
  };
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
