import { asPrivatemodeError, type ErrorCode, type PrivatemodeError } from '../errors.ts';
import type { ManifestSource } from '../transparency/manifest-source.ts';
import { type EstablishDeps, establish } from './attest.ts';
import { pause } from './clock.ts';
import type { Epoch } from './epoch.ts';
import { headline } from './failure-message.ts';

export interface UpdateDeps extends EstablishDeps {
  readonly manifests: ManifestSource;
}

/** Makes an epoch with this key, in up to three rounds. Throws what the last round threw. */
export type Update = (apiKey: string, signal: AbortSignal) => Promise<Epoch>;

const ROUNDS = 3;

/** What may well be different a second later (inference.md 10). A rejected key is not: nobody waits for a second no. */
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

/** What a newer manifest may cure. */
const VALIDATION: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'attestation_failed',
  'manifest_mismatch',
  'manifest_unsupported',
  'manifest_invalid',
]);

/**
 * The manifest that was enforced last is expected again, so that renewals do not depend on the CDN. When validation
 * fails and the manifest is managed, the newest one is fetched and validation retried, once per update (spec, "States
 * and transitions"); with a static one it is not.
 */
export function createUpdate(deps: UpdateDeps): Update {
  const { manifests, clock, random, observe } = deps;
  let enforced: Uint8Array | undefined;

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
        const epoch = await establish(deps, { apiKey, manifest, signal });
        enforced = manifest;
        return epoch;
      } catch (thrown) {
        signal.throwIfAborted();
        const error = asPrivatemodeError(thrown);
        if (VALIDATION.has(error.code) && manifest !== undefined && !refetched) {
          refetched = true;
          const newest = await newestOr(error, signal);
          const changed = Buffer.compare(newest, manifest) !== 0;
          observe({
            type: 'manifest-refetched',
            message: 'Validation failed, trying the newest manifest',
            error,
            changed,
          });
          manifest = newest;
          continue;
        }
        if (round === ROUNDS || !TRANSIENT.has(error.code)) throw error;
        observe({
          type: 'round-failed',
          message: headline(error, round * 1000),
          error,
          round,
        });
        await pause(clock, round * 1000 + random() * 100, signal);
        round++;
      }
    }
  };

  /** If the newest manifest cannot be had, the failed validation is what went wrong. */
  async function newestOr(error: PrivatemodeError, signal: AbortSignal): Promise<Uint8Array> {
    try {
      return await manifests.newest(signal);
    } catch {
      signal.throwIfAborted();
      throw error;
    }
  }
}
