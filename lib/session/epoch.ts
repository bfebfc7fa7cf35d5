import { sha256 } from '#crypto/digest';
import { verifySecretResponse } from '../attestation/mesh.ts';
import { type TrustRoots, verify } from '../attestation/verify.ts';
import { randomBytes } from '../crypto/random.ts';
import { asPrivatemodeError } from '../errors.ts';
import type { EpochFacts } from '../transparency/epoch-facts.ts';
import type { ManifestLog } from '../transparency/manifest-log.ts';
import { verdictText } from '../verdict/json.ts';
import { judgementOf, withSecretChecks } from '../verdict/judge.ts';
import { type Clock, pause } from './clock.ts';
import type { CollateralCache } from './collateral-cache.ts';
import type { ControlApi } from './control-api.ts';
import { cureOf, failureMessage, type Observer } from './events.ts';
import { type Lifetimes, lifetimesOf, type Term } from './lifetimes.ts';
import type { ManifestSource } from './manifest-source.ts';
import { verdictError } from './refusal.ts';
import { type SharedSecret, startSecretExchange } from './secret-exchange.ts';

/** One attested secret with its manifest and times. Immutable; a request attempt holds exactly one. */
export interface Epoch extends EpochFacts, SharedSecret, Term {}

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
  /** The verifier of evidence, which the client library wraps to keep the manifest, and that of the signature on a secret; tests replace both. */
  readonly verify?: typeof verify;
  readonly judgeSecret?: typeof verifySecretResponse;
}

const ROUNDS = 3;

interface GivenManifest {
  readonly manifest: Uint8Array;
  /** Whether it was fetched for this epoch, or cannot be fetched. */
  readonly newest: boolean;
}

/**
 * What makes an epoch with an API key, in up to three rounds, and throws what the last round threw, or the signal's reason.
 * It expects the manifest that was enforced last, so that renewals do not depend on the CDN. Where validation fails and the
 * manifest is managed, it fetches the newest one, once, and validates again.
 */
export function createEpochMaker(deps: EpochDeps): (apiKey: string, signal: AbortSignal) => Promise<Epoch> {
  const { manifests, control, roots, collateral, manifestLog, clock, random, observe } = deps;
  const { lifetimes = lifetimesOf(), verify: judge = verify, judgeSecret = verifySecretResponse } = deps;
  let enforced: Uint8Array | undefined;
  /** Errors of verdicts, as opposed to those of a service that said nothing which could be judged. */
  const rejections = new WeakSet<Error>();

  /**
   * Makes one epoch (docs/protocol/attestation.md 1.3, 12): attests the service against `manifest`, exchanges a secret
   * under the attested mesh CA, and records the manifest before anybody may use the secret, so that what is enforced is
   * always in the log. Throws api_key_rejected, the code of the failed check, secret_exchange_failed, manifest_log_failed
   * and what the control API throws.
   */
  async function tryOnce(apiKey: string, given: GivenManifest, signal: AbortSignal): Promise<Epoch> {
    const { manifest } = given;
    const { verdict, meshCaPem } = await attest(apiKey, given, signal);
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
      signal.throwIfAborted();
      whole = withSecretChecks(verdict, checks);
      const message = 'The signature on the secret was checked';
      // The evidence was accepted under this manifest, so no newer one is missing.
      const rejection = whole.failure && {
        error: verdictError(whole),
        askedAt: beganMonotonic,
        newest: true,
        authentic: 'yes' as const,
      };
      observe({ type: 'secret-judged', message, verdict: whole, rejection });
      return checks;
    });
    signal.throwIfAborted();

    const { appended, path } = await manifestLog.record(manifest, clock.now());
    enforced = manifest;
    if (appended) {
      const message = 'Manifest is enforced from now on';
      observe({ type: 'manifest-enforced', message, path, manifestSha256 });
    }
    const report = verdictText(judgementOf(whole, roots));
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
  async function attest(apiKey: string, { manifest, newest }: GivenManifest, signal: AbortSignal) {
    const askedAt = clock.monotonic();
    const nonce = Uint8Array.from(randomBytes(32));
    observe({ type: 'step', message: 'Waiting for the evidence of the service' });
    const document = await control.attest(apiKey, nonce, signal);
    observe({ type: 'step', message: 'Waiting for the certificates and revocation lists of AMD or Intel' });
    const now = new Date(clock.now());
    const verdict = await judge({ document, nonce, manifest, roots, collateral, now });
    signal.throwIfAborted(); // a renewal that was given up changes nothing any more
    const { outcome, meshCaPem } = verdict;
    if (outcome !== 'accepted' || meshCaPem === undefined) {
      const error = verdictError(verdict);
      const rejection = { error, askedAt, newest, authentic: verdict.authentic };
      observe({ type: 'rejected', message: 'The evidence was rejected', verdict, rejection });
      await collateral.distrust(verdict.checks);
      if (error.code !== 'collateral_unavailable') rejections.add(error);
      throw error;
    }
    const message =
      manifests.kind === 'static'
        ? 'Coordinator verified against the given manifest'
        : 'Coordinator manifest fetched successfully';
    observe({ type: 'attested', message, verdict });
    return { verdict, meshCaPem };
  }

  return async (apiKey, signal) => {
    let manifest = enforced;
    let newest = manifests.kind === 'static'; // or fetched for this epoch
    let refetched = newest;
    for (let round = 1; ; ) {
      try {
        signal.throwIfAborted();
        if (manifest === undefined) {
          observe({ type: 'step', message: 'Waiting for the manifest' });
          manifest = await manifests.newest(signal);
          newest = true;
        }
        return await tryOnce(apiKey, { manifest, newest }, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        const error = asPrivatemodeError(thrown);
        const isOutdated = rejections.has(error) || cureOf(error) === 'newer manifest';
        if (isOutdated && manifest !== undefined && !refetched) {
          refetched = true;
          const published = await manifests.newest(signal).catch(() => {
            signal.throwIfAborted();
            throw error; // the CDN does not have the newest manifest, but the service failed the validation
          });
          const changed = Buffer.compare(published, manifest) !== 0;
          const message = 'Validation failed, trying the newest manifest';
          observe({ type: 'manifest-refetched', message, error, changed });
          manifest = published;
          newest = true;
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
