import { asPrivatemodeError, type ErrorCode, type PrivatemodeError } from '../errors.ts';
import type { ManifestSource } from '../transparency/manifest-source.ts';
import { type AttestDeps, attestAndExchange } from './attest.ts';
import { pause } from './clock.ts';
import type { Epoch } from './epoch.ts';
import { failureMessage } from './failure-message.ts';

export interface RenewalDeps extends AttestDeps {
  readonly manifests: ManifestSource;
}

export interface Renewal {
  /** Makes an epoch with this key, in up to three rounds. Throws what the last round threw. */
  renew(apiKey: string, signal: AbortSignal): Promise<Epoch>;
  /** Whether waiting does not help. `configured`: the key is the operator's, not one that a client brought. */
  isPermanent(error: PrivatemodeError, configured: boolean): boolean;
}

const ROUNDS = 3;

/** Failures that may be over a second later. A rejected key is none: nobody waits for a second refusal. */
const TRANSIENT: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'upstream_unreachable',
  'upstream_connect_timeout',
  'upstream_reset',
  'control_api_failed',
  'manifest_unavailable',
  'collateral_unavailable',
  'evidence_malformed',
  'secret_exchange_failed',
]);

/** Failures that a newer manifest may cure. */
const VALIDATION: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'attestation_failed',
  'manifest_mismatch',
  'manifest_unsupported',
  'manifest_invalid',
]);

/**
 * Expects the manifest that was enforced last, so that renewals do not depend on the CDN. Where validation fails and the
 * manifest is managed, a renewal fetches the newest one, once, and validates again.
 */
export function createRenewal(deps: RenewalDeps): Renewal {
  const { manifests, clock, random, observe } = deps;
  const isStatic = manifests.kind === 'static';
  let enforced: Uint8Array | undefined;

  async function renew(apiKey: string, signal: AbortSignal): Promise<Epoch> {
    let manifest = enforced;
    let refetched = isStatic;
    for (let round = 1; ; ) {
      try {
        signal.throwIfAborted();
        if (manifest === undefined) {
          observe({ type: 'step', message: 'Waiting for the manifest' });
          manifest = await manifests.newest(signal);
        }
        const epoch = await attestAndExchange(deps, { apiKey, manifest, signal });
        enforced = manifest;
        return epoch;
      } catch (thrown) {
        signal.throwIfAborted();
        const error = asPrivatemodeError(thrown);
        if (VALIDATION.has(error.code) && manifest !== undefined && !refetched) {
          refetched = true;
          const newest = await newestOr(error, signal);
          const changed = Buffer.compare(newest, manifest) !== 0;
          const message = 'Validation failed, trying the newest manifest';
          observe({ type: 'manifest-refetched', message, error, changed });
          manifest = newest;
          continue;
        }
        if (round === ROUNDS || !TRANSIENT.has(error.code)) throw error;
        observe({ type: 'round-failed', message: failureMessage(error, round * 1000), error, round });
        await pause(clock, round * 1000 + random() * 100, signal);
        round++;
      }
    }
  }

  /** Where the CDN does not have the newest manifest, the failed validation is the error to report. */
  async function newestOr(error: PrivatemodeError, signal: AbortSignal): Promise<Uint8Array> {
    try {
      return await manifests.newest(signal);
    } catch {
      signal.throwIfAborted();
      throw error;
    }
  }

  function isPermanent({ code }: PrivatemodeError, configured: boolean): boolean {
    return (
      code === 'manifest_unsupported' ||
      (configured && code === 'api_key_rejected') ||
      (isStatic && (code === 'manifest_mismatch' || code === 'manifest_invalid'))
    );
  }

  return { renew, isPermanent };
}
