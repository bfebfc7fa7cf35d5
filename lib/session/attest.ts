/**
 * One attestation of the service, from nonce to secret (docs/protocol/attestation.md 1.3, 12). The session
 * runs it for each epoch, and `verify` for its verdict on the live service.
 */
import type { CollateralSource } from '../attestation/collateral.ts';
import { verifySecretResponse } from '../attestation/mesh.ts';
import { type TrustRoots, verify } from '../attestation/verify-evidence.ts';
import type { Clock } from '../clock.ts';
import { randomBytes } from '../crypto/random.ts';
import { evidenceVerdict, type SecretMessages, withSecretChecks } from '../verdict/judge.ts';
import { errorOf, type Verdict } from '../verdict/verdict.ts';
import type { ControlApi } from './control-api.ts';
import { type SharedSecret, startSecretExchange } from './secret-exchange.ts';

/** What the attestation waits for. */
export type Step = 'evidence' | 'collateral' | 'secret';

/** A verdict, and when this process asked the service for what it judges: ms on the monotonic clock. */
export interface JudgedPart {
  readonly verdict: Verdict;
  readonly askedAt: number;
}

export interface AttestDeps {
  readonly control: Pick<ControlApi, 'attest' | 'secret'>;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /** `verify` judges the evidence, `judgeSecret` the signature on the secret. Tests replace both. */
  readonly verify?: typeof verify | undefined;
  readonly judgeSecret?: typeof verifySecretResponse | undefined;
}

/** Callbacks for the progress of an attestation. An error that one of them throws ends the attestation. */
export interface AttestHooks {
  readonly onStep: (step: Step) => void;
  /**
   * Gets the verdict on the evidence, before the attestation asks for a secret. Its outcome is `unavailable`
   * if collateral could not be fetched.
   */
  readonly onEvidence: (
    judged: JudgedPart & { readonly nonce: Uint8Array; readonly document: Uint8Array },
  ) => unknown;
  /** Gets the verdict on the evidence and the secret exchange together. */
  readonly onSecret: (judged: JudgedPart & { readonly messages: SecretMessages }) => void;
}

/**
 * The result of an attestation that accepted the service. Times are in ms since 1970; `beganMonotonic` is in
 * ms on the monotonic clock.
 */
export interface Attested {
  readonly verdict: Verdict;
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly messages: SecretMessages;
  readonly secret: SharedSecret;
  readonly attestedAt: number;
  /** Taken just before the request for the secret. The service keeps the secret from some later moment on. */
  readonly began: number;
  readonly beganMonotonic: number;
}

/**
 * Asks for evidence with a nonce and judges it against `manifest`. Then exchanges a secret under the attested
 * mesh CA and judges that exchange. Throws the error of a verdict that rejects, secret_exchange_failed, the
 * signal's reason, and what `control` throws.
 */
export async function attest(
  deps: AttestDeps,
  hooks: AttestHooks,
  {
    apiKey,
    manifest,
    nonce = Uint8Array.from(randomBytes(32)),
    signal,
  }: {
    readonly apiKey: string;
    readonly manifest: Uint8Array;
    /** 32 bytes; a fresh one by default. */
    readonly nonce?: Uint8Array | undefined;
    readonly signal?: AbortSignal;
  },
): Promise<Attested> {
  const { control, roots, collateral, clock } = deps;
  const { verify: judgeEvidence = verify, judgeSecret = verifySecretResponse } = deps;
  const askedAt = clock.monotonic();
  hooks.onStep('evidence');
  const document = await control.attest(apiKey, nonce, signal);
  hooks.onStep('collateral');
  const now = new Date(clock.now());
  const found = await judgeEvidence({
    document,
    nonce,
    manifest,
    roots,
    collateral,
    secretFollows: true,
    now,
  });
  signal?.throwIfAborted(); // a renewal that was given up changes nothing any more
  const evidence = evidenceVerdict(found, roots);
  const { meshCaPem } = found;
  await hooks.onEvidence({ verdict: evidence, askedAt, nonce, document });
  const refused = errorOf(evidence);
  if (refused !== undefined) throw refused;
  if (meshCaPem === undefined) throw new Error('evidence was accepted without a mesh CA');
  const attestedAt = clock.now();

  hooks.onStep('secret');
  const exchange = await startSecretExchange();
  const [began, beganMonotonic] = [clock.now(), clock.monotonic()];
  const response = await control.secret(apiKey, exchange.publicKey, signal);
  const messages = { ...response, publicKey: exchange.publicKey };
  let verdict = evidence;
  const secret = await exchange.complete(response, async () => {
    const checks = await judgeSecret({ ...messages, manifest, meshCaPem, now });
    signal?.throwIfAborted();
    verdict = withSecretChecks(evidence, checks);
    hooks.onSecret({ verdict, askedAt: beganMonotonic, messages });
    return checks;
  });
  signal?.throwIfAborted();
  return { verdict, nonce, document, messages, secret, attestedAt, began, beganMonotonic };
}
