/**
 * Makes one epoch: attests the service, exchanges a secret, and records manifest, verdict and exchange. If
 * the evidence fails under the manifest enforced so far, the newest manifest is tried.
 */
import type { SecretKey } from '#crypto';
import { sha256Hex } from '../attestation/check.ts';
import type { CollateralSource } from '../attestation/collateral.ts';
import { verifySecretResponse } from '../attestation/mesh.ts';
import { type TrustRoots, verify } from '../attestation/verify-evidence.ts';
import type { Clock } from '../clock.ts';
import { randomBytes } from '../crypto/random.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { ManifestLog } from '../manifest-log.ts';
import { completed, evidenceVerdict, withSecretChecks } from '../verdict/judge.ts';
import type { JudgedExchange, recordExchange } from '../verdict/record.ts';
import { errorOf, type Verdict, verdictText } from '../verdict/verdict.ts';
import type { CollateralCache } from './collateral-cache.ts';
import type { ControlApi, ManifestSource } from './control-api.ts';
import { startSecretExchange } from './secret-exchange.ts';
import type { Failure, Term } from './state.ts';

/** An event of a session. No event contains a key, a secret or any part of a request. */
export type SessionEvent = { readonly message: string } & (
  | /** The attempt begins a step, for which it may have to wait. */ { readonly type: 'step' }
  /**
   * `attested`: the evidence was accepted. Operators look for this message after repairing their network.
   * `judged`: the evidence was not accepted (`unavailable` if collateral could not be fetched), or the secret
   * exchange was judged. If the verdict ends the attempt, a later event has the error.
   */
  | { readonly type: 'attested' | 'judged'; readonly verdict: Verdict }
  /** A verdict rejected the evidence, so the attestation is repeated with the newest manifest. */
  | { readonly type: 'manifest-refetched'; readonly error: PrivatemodeError; readonly changed: boolean }
  | { readonly type: 'manifest-enforced'; readonly path: string; readonly manifestSha256: string }
  | ({ readonly type: 'epoch' } & Pick<Term, 'secretId' | 'expiresAt'>)
  /** `permanent`: the program ends, because there has been no secret yet and waiting does not help. */
  | { readonly type: 'update-failed'; readonly error: PrivatemodeError; readonly permanent: boolean }
  /** A failure that says nothing about the service: a refused key, or another attempt that succeeded. */
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
  | { readonly type: 'secret-denied' | 'secret-known'; readonly secretId: string }
);

export type Observer = (event: SessionEvent) => void;

const STEPS = {
  evidence: 'Waiting for the evidence of the service',
  collateral: 'Waiting for the certificates and revocation lists of AMD or Intel',
  secret: 'Waiting for the secret of the service',
};

/** The step for which an attestation waits. */
export type Step = keyof typeof STEPS;

export interface AttestDeps {
  readonly control: ControlApi;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /** `verify` judges the evidence, `judgeSecret` the signature on the secret; tests replace both. */
  readonly verify?: typeof verify | undefined;
  readonly judgeSecret?: typeof verifySecretResponse | undefined;
}

/**
 * An attestation has two verdicts. The first verdict judges the evidence before a secret is requested
 * (`unavailable`: collateral is missing). The second verdict judges the evidence together with the secret
 * exchange. `askedAt`: when this process sent the request for the judged part (ms, monotonic clock).
 */
export interface Judged {
  readonly part: 'evidence' | 'secret';
  readonly verdict: Verdict;
  readonly askedAt: number;
  readonly exchange: JudgedExchange;
}

/** If `onStep` or `onVerdict` throws an error, the attestation ends with this error. */
export interface AttestHooks {
  readonly onStep: (step: Step) => void;
  onVerdict(judged: Judged): unknown;
}

export interface AttestInput {
  readonly apiKey: string;
  readonly manifest: Uint8Array;
  readonly nonce?: Uint8Array | undefined; // 32 bytes, by default random
  readonly signal?: AbortSignal;
}

/**
 * Attests the service once, from nonce to secret (docs/protocol/attestation.md 1.3, 12): judges the evidence
 * against `manifest`, and exchanges a secret under the attested mesh CA. The lifetime of the secret counts
 * from `began` and `beganMonotonic`, which are read just before the request for the secret. The command
 * `verify` also uses this function. Throws the error of a rejecting verdict, secret_exchange_failed, the
 * reason of `signal`, and the errors of `control`.
 */
export async function attest(deps: AttestDeps, hooks: AttestHooks, asked: AttestInput) {
  const { control, roots, collateral, clock } = deps;
  const { apiKey, manifest, signal, nonce = Uint8Array.from(randomBytes(32)) } = asked;
  const { verify: judgeEvidence = verify, judgeSecret = verifySecretResponse } = deps;
  const askedAt = clock.monotonic();
  hooks.onStep('evidence');
  const document = await control.attest(apiKey, nonce, signal);
  hooks.onStep('collateral');
  const now = new Date(clock.now());
  const input = { document, nonce, manifest, roots, collateral, now, secretFollows: true };
  const found = await judgeEvidence(input);
  signal?.throwIfAborted(); // an aborted attempt must change nothing
  const evidence = evidenceVerdict(found, roots);
  const presented = { nonce, document, manifest, roots, secret: undefined };
  await hooks.onVerdict({ part: 'evidence', verdict: evidence, askedAt, exchange: presented });
  const { meshCaPem } = found;
  const refused = errorOf(evidence);
  if (refused !== undefined) throw refused;
  if (meshCaPem === undefined) throw new Error('evidence was accepted without a mesh CA');
  const attestedAt = clock.now();

  hooks.onStep('secret');
  const agreement = await startSecretExchange();
  const [began, beganMonotonic] = [clock.now(), clock.monotonic()];
  const response = await control.secret(apiKey, agreement.publicKey, signal);
  const messages = { ...response, publicKey: agreement.publicKey };
  const checks = await judgeSecret({ ...messages, manifest, meshCaPem, now });
  signal?.throwIfAborted();
  const verdict = withSecretChecks(evidence, checks);
  const exchange = { ...presented, secret: messages };
  await hooks.onVerdict({ part: 'secret', verdict, askedAt: beganMonotonic, exchange });
  const secret = await agreement.complete(response.encapsulatedKey, checks);
  signal?.throwIfAborted();
  return { verdict, exchange, secret, attestedAt, began, beganMonotonic };
}

/** One immutable attested secret, with its manifest and times. An attempt of a request uses one epoch. */
export interface Epoch extends Term {
  readonly key: SecretKey; // AES-256
  /** The record that `exchangeSha256` names. Absent if padding in the evidence made the record too long. */
  readonly exchange?: string | undefined;
}

/** The greatest length of a record in characters. Real records have some 70,000 characters. */
const LONGEST_RECORD = 1024 * 1024;

export interface EpochDeps extends AttestDeps {
  readonly manifests: ManifestSource;
  readonly collateral: CollateralCache;
  readonly manifestLog: ManifestLog;
  readonly clock: Clock;
  readonly random: () => number; // a random number: 0 ≤ x < 1
  readonly observe: Observer;
  /** Records the exchange of each epoch for later verification. If undefined, no record is made. */
  readonly recordExchange?: ((collateral: CollateralSource) => ReturnType<typeof recordExchange>) | undefined;
}

/** The result of an attempt. `verdict` is the last verdict. Each check that was not made has a row in it. */
export type Made =
  | { readonly epoch: Epoch; readonly verdict: Verdict }
  | (Failure & { readonly epoch?: never; readonly verdict?: Verdict | undefined });

/**
 * The error of a rejection when the newest manifest could not be fetched. The newest manifest may resolve a
 * manifest mismatch, so the error of a mismatch gets the remedy of the failed fetch.
 */
function withoutNewest(error: PrivatemodeError, cause: PrivatemodeError): PrivatemodeError {
  const { code, detail } = error;
  const { remedy } = code === 'manifest_mismatch' ? cause : error;
  const message = `${error.message}; whether there is a newer manifest is unknown: ${cause.message}`;
  return new PrivatemodeError(code, message, {
    cause,
    remedy,
    detail: { ...detail, pause: cause.detail?.pause },
  });
}

/**
 * Returns a function that makes one attempt to get an epoch with an API key. The function never rejects. The
 * function attests against the operator's manifest, or else against the manifest enforced last, so that
 * renewals do not depend on the CDN. If a verdict rejects the evidence under a managed manifest, the function
 * fetches the newest manifest once and attests again. `accepted` is called for each acceptance of evidence.
 */
export function createEpochMaker(deps: EpochDeps, accepted: () => void) {
  const { manifests, collateral, manifestLog, clock, random, observe } = deps;
  const { secretRenew, secretJitter, secretUsable } = clock.times;
  const isPinned = manifests.kind === 'static';
  const attestedMessage = isPinned
    ? 'Coordinator verified against the given manifest'
    : 'Coordinator manifest fetched successfully';
  let enforced: Uint8Array | undefined;

  async function under(input: AttestInput, newest: boolean): Promise<Made> {
    const asked = collateral.forVerdict();
    const recording = deps.recordExchange?.(asked);
    const recorded = { ...deps, collateral: recording?.source ?? asked };
    let last: Verdict | undefined;
    let rejected: Failure['rejected'];
    let isAccepted = false;
    const hooks: AttestHooks = {
      onStep: (step) => observe({ type: 'step', message: STEPS[step] }),
      async onVerdict({ part, verdict, askedAt }) {
        last = verdict;
        const isRejected = verdict.failure !== null && verdict.outcome !== 'unavailable';
        // A verdict on the secret follows accepted evidence, so no newer manifest could change the verdict.
        if (isRejected) rejected = { part, askedAt, newest: newest || part === 'secret' };
        if (part === 'secret')
          return observe({ type: 'judged', message: 'The signature on the secret was checked', verdict });
        isAccepted = verdict.failure === null;
        if (isAccepted) {
          accepted();
          return observe({ type: 'attested', message: attestedMessage, verdict });
        }
        observe({ type: 'judged', message: 'The evidence was checked', verdict });
        await asked.distrust();
      },
    };
    try {
      const attested = await attest(recorded, hooks, input);
      const { verdict, exchange, secret, attestedAt, began, beganMonotonic } = attested;
      const manifestSha256 = verdict.manifestSha256 as string; // the digest of `input.manifest`
      // The manifest is logged before the secret is used, so that the log contains every enforced manifest.
      const { appended, path } = await manifestLog.record(input.manifest, clock.now());
      enforced = input.manifest;
      const message = 'Manifest is enforced from now on';
      if (appended) observe({ type: 'manifest-enforced', message, path, manifestSha256 });
      const verdictSha256 = sha256Hex(Buffer.from(verdictText(verdict)));
      const record = recording?.record(exchange, verdict);
      const epoch = Object.freeze({
        ...secret,
        manifestSha256,
        verdictSha256,
        exchangeSha256: record?.sha256,
        exchange: record && record.text.length <= LONGEST_RECORD ? record.text : undefined,
        attestedAt,
        // Times of a secret count from just before its request, so that no secret is used for too long.
        renewAt: Math.floor(began + secretRenew - random() * secretJitter),
        expiresAt: Math.floor(began + secretUsable),
        expiresMonotonic: Math.floor(beganMonotonic + secretUsable),
      });
      return { epoch, verdict };
    } catch (thrown) {
      const error = (last && errorOf(last)) ?? asPrivatemodeError(thrown);
      const verdict = last && (last.failure === null ? completed(error, last) : last);
      return { error, rejected, isAccepted, verdict };
    }
  }

  return async (apiKey: string, signal: AbortSignal): Promise<Made> => {
    try {
      const known = isPinned ? await manifests.newest() : enforced;
      if (known === undefined) observe({ type: 'step', message: 'Waiting for the manifest' });
      const manifest = known ?? (await manifests.newest(signal));
      const made = await under({ apiKey, signal, manifest }, isPinned || known === undefined);
      if (isPinned || signal.aborted || made.epoch || made.rejected?.part !== 'evidence') return made;
      const { error } = made;
      const published = await manifests.newest(signal).catch(asPrivatemodeError);
      if (published instanceof PrivatemodeError) return { ...made, error: withoutNewest(error, published) };
      const changed = Buffer.compare(published, manifest) !== 0;
      const message = 'Trying the newest manifest';
      observe({ type: 'manifest-refetched', message, error, changed });
      const again = await under({ apiKey, signal, manifest: published }, true);
      return again.epoch || again.rejected || again.isAccepted ? again : made; // `again` proved nothing
    } catch (thrown) {
      return { error: asPrivatemodeError(thrown) };
    }
  };
}
