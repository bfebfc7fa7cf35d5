/**
 * Makes epochs: attests the service, tries again where that can help, and records the manifest, the verdict
 * and the exchange.
 */
import { sha256 } from '#crypto';
import type { CollateralSource } from '../attestation/verify-evidence.ts';
import { type Clock, pause } from '../clock.ts';
import { asPrivatemodeError, type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { ManifestLog } from '../manifest-log/manifest-log.ts';
import { completed } from '../verdict/judge.ts';
import type { recordExchange } from '../verdict/saved-exchange.ts';
import { type Verdict, verdictText } from '../verdict/verdict.ts';
import { type AttestDeps, attest, type Step } from './attest.ts';
import type { CollateralCache } from './collateral-cache.ts';
import type { EpochFacts } from './epoch-facts.ts';
import { failureMessage, type Observer } from './events.ts';
import type { Term } from './lifetimes.ts';
import type { ManifestSource } from './manifest-source.ts';
import type { SharedSecret } from './secret-exchange.ts';

/** One attested secret with its manifest and times. Immutable; a request attempt holds exactly one. */
export interface Epoch extends EpochFacts, SharedSecret, Term {
  /**
   * The digest that names the exchange which led to its verdict (`exchangeDigest`); undefined where none is
   * recorded.
   */
  readonly exchangeSha256?: string | undefined;
}

export interface EpochDeps extends Omit<AttestDeps, 'canBeOpened'> {
  readonly manifests: ManifestSource;
  readonly collateral: CollateralCache;
  readonly manifestLog: ManifestLog;
  readonly clock: Clock;
  /** 0 ≤ x < 1. */
  readonly random: () => number;
  readonly observe: Observer;
  /** Records the exchange of each epoch, so that it can be verified again; undefined: none is recorded. */
  readonly recordExchange?: ((collateral: CollateralSource) => ReturnType<typeof recordExchange>) | undefined;
}

const ROUNDS = 3;
const STEPS: Readonly<Record<Step, string>> = {
  evidence: 'Waiting for the evidence of the service',
  collateral: 'Waiting for the certificates and revocation lists of AMD or Intel',
  secret: 'Waiting for the secret of the service',
};

/**
 * What may cure a failure: `time`, because it may be over a second later, or the newest manifest, under which
 * the service may pass. A rejected key has no cure, so that nobody waits for a second refusal.
 */
const CURES: Readonly<Partial<Record<ErrorCode, 'time' | 'newer manifest'>>> = {
  upstream_unreachable: 'time',
  upstream_connect_timeout: 'time',
  upstream_reset: 'time',
  control_api_failed: 'time',
  manifest_unavailable: 'time',
  manifest_mismatch: 'newer manifest',
  manifest_unsupported: 'newer manifest',
  manifest_invalid: 'newer manifest',
  collateral_unavailable: 'time',
  secret_exchange_failed: 'time',
  attestation_failed: 'newer manifest',
  evidence_malformed: 'time',
};

/** Undefined: neither the next round nor a newer manifest is tried. */
export const cureOf = ({ code }: PrivatemodeError) => CURES[code];

/**
 * The error of a failed validation, where the newest manifest could not be fetched. With it a mismatch may be
 * over, unless no hardware vouches for the evidence; so then the remedy is that of the fetch.
 */
function withoutNewest(error: PrivatemodeError, cause: PrivatemodeError): PrivatemodeError {
  const { code, detail } = error;
  const { remedy } = code === 'manifest_mismatch' && !detail?.unvouched ? cause : error;
  const message = `${error.message}; whether there is a newer manifest is unknown: ${cause.message}`;
  const { pause } = cause.detail ?? {};
  return new PrivatemodeError(code, message, {
    cause,
    remedy,
    detail: { ...detail, newestMissing: true, pause },
  });
}

interface Round {
  /** When the first round of this epoch began, on the monotonic clock. */
  readonly began: number;
  readonly manifest: Uint8Array;
  /** Whether it was fetched for this epoch, or is static, so that there is no newer one. */
  readonly newest: boolean;
}

/**
 * Returns a function that makes an epoch with an API key. It tries up to three rounds, and throws what the
 * last round threw, or the signal's reason. It expects the manifest that was enforced last, so that renewals
 * do not depend on the CDN. If validation fails and the manifest is managed, it fetches the newest one, once,
 * and validates again; if that cannot be fetched, it throws the error of the validation, which says so too.
 */
export function createEpochMaker(deps: EpochDeps): (apiKey: string, signal: AbortSignal) => Promise<Epoch> {
  const { manifests, collateral, manifestLog, clock, random, observe } = deps;
  const { firstBackoff, longestRoundPause, secretRenew, secretJitter, secretUsable } = clock.times;
  const attestedMessage =
    manifests.kind === 'static'
      ? 'Coordinator verified against the given manifest'
      : 'Coordinator manifest fetched successfully';
  let enforced: Uint8Array | undefined;
  /** The errors of verdicts. The other errors come from a service that sent nothing which could be judged. */
  const rejections = new WeakSet<Error>();

  /**
   * Makes one epoch. Records the manifest before anybody may use the secret, so that every enforced manifest
   * is in the log. Throws what `attest` throws, and manifest_log_failed.
   */
  async function tryOnce(
    apiKey: string,
    { began, manifest, newest }: Round,
    signal: AbortSignal,
  ): Promise<Epoch> {
    const asked = collateral.forVerdict();
    const recording = deps.recordExchange?.(asked);
    let last: Verdict | undefined;
    const attested = await attest(
      { ...deps, collateral: recording?.source ?? asked },
      {
        onStep: (step) => observe({ type: 'step', message: STEPS[step] }),
        async onEvidence({ verdict, askedAt }) {
          const { failure, authentic } = verdict;
          last = verdict;
          if (failure === undefined) return observe({ type: 'attested', message: attestedMessage, verdict });
          const { error } = failure;
          const rejection = { error, began, askedAt, newest, authentic };
          const isOpen = verdict.outcome === 'unavailable';
          const message = isOpen ? 'The evidence could not be judged' : 'The evidence was rejected';
          observe({ type: 'rejected', message, verdict, rejection });
          await asked.distrust(verdict.checks);
          if (!isOpen) rejections.add(error);
        },
        onSecret({ verdict, askedAt }) {
          const message = 'The signature on the secret was checked';
          last = verdict;
          // The evidence was accepted under this manifest, so no newer one is missing.
          const authentic = 'yes' as const;
          const { error } = verdict.failure ?? {};
          const rejection = error && { error, began, askedAt, newest: true, authentic };
          observe({ type: 'secret-judged', message, verdict, rejection });
        },
      },
      { apiKey, manifest, signal },
    ).catch((thrown: unknown) => {
      signal.throwIfAborted();
      if (last === undefined || last.failure !== undefined) throw thrown;
      const message = 'The secret exchange failed';
      observe({
        type: 'secret-missing',
        message,
        verdict: completed(asPrivatemodeError(thrown), last),
        began,
      });
      throw thrown;
    });
    const { verdict, secret, attestedAt, beganMonotonic } = attested;
    const manifestSha256 = verdict.manifestSha256 as string; // a manifest was given, so it has a digest
    const { appended, path } = await manifestLog.record(manifest, clock.now());
    enforced = manifest;
    if (appended) {
      const message = 'Manifest is enforced from now on';
      observe({ type: 'manifest-enforced', message, path, manifestSha256 });
    }
    const report = verdictText(verdict);
    const verdictSha256 = Buffer.from(sha256(Buffer.from(report))).toString('hex');
    const { nonce, document, messages } = attested;
    const exchange = recording?.files(
      { nonce, document, secret: messages, manifest, roots: deps.roots },
      verdict,
    );
    const message = 'The verdict is complete';
    observe({ type: 'verdict', message, report, sha256: verdictSha256, exchange });
    return Object.freeze({
      ...secret,
      manifestSha256,
      verdictSha256,
      ...(exchange === undefined ? {} : { exchangeSha256: exchange.sha256 }),
      attestedAt,
      // These times count from before the request for the secret, which errs on the safe side.
      renewAt: Math.floor(attested.began + secretRenew - random() * secretJitter),
      expiresAt: Math.floor(attested.began + secretUsable),
      expiresMonotonic: Math.floor(beganMonotonic + secretUsable),
    });
  }

  return async (apiKey, signal) => {
    const began = clock.monotonic();
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
        return await tryOnce(apiKey, { began, manifest, newest }, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        const error = asPrivatemodeError(thrown);
        const isOutdated = rejections.has(error) || cureOf(error) === 'newer manifest';
        if (isOutdated && manifest !== undefined && !refetched) {
          refetched = true;
          const published = await manifests.newest(signal).catch((cause: unknown) => {
            signal.throwIfAborted();
            throw withoutNewest(error, asPrivatemodeError(cause));
          });
          const changed = Buffer.compare(published, manifest) !== 0;
          const message = 'Validation failed, trying the newest manifest';
          observe({ type: 'manifest-refetched', message, error, changed });
          manifest = published;
          newest = true;
          continue;
        }
        const wanted = 1000 * (error.detail?.pause ?? 0);
        // A long pause that a host wants is left to the next renewal.
        if (round === ROUNDS || wanted > longestRoundPause || cureOf(error) !== 'time') throw error;
        const wait = Math.max(round * firstBackoff, wanted);
        observe({ type: 'round-failed', message: failureMessage(error, wait), error, round });
        await pause(clock, wait + random() * 100, signal);
        round++;
      }
    }
  };
}
