/**
 * Advice on what the reader of a verdict should do next. The remedies in lib/errors.ts speak to users of the
 * proxy instead.
 */
import type { ErrorCode } from '../errors.ts';
import { OPENS } from './checks.ts';
import type { Verdict } from './verdict.ts';

/**
 * What the advice depends on besides the verdict. `managed`: the manifest is the one that the service
 * publishes. `saved`: --save keeps the exchange. `atGiven`: --at named the moment to judge by.
 */
export type Circumstances =
  | { readonly mode: 'live'; readonly manifest: 'static' | 'managed'; readonly saved: boolean }
  | { readonly mode: 'offline'; readonly atGiven: boolean };

type Advice = (circumstances: Circumstances, verdict: Verdict) => string;

const BY_TIME = 'If it is from an earlier day, judge it by the time it was made, with --at.';

/** What to do about files with evidence that was rejected. */
function distrustFiles(atGiven: boolean, { roots, failure }: Verdict): string {
  const lacksRoot = roots === 'vendor' || failure?.check?.detail?.missingRoot !== undefined;
  const hints = [!atGiven && BY_TIME, lacksRoot && 'If it is from a simulator, name its roots with --roots.'];
  return ['Do not trust any deployment on this evidence.', ...hints].filter(Boolean).join(' ');
}

const BY_CODE: Readonly<Partial<Record<ErrorCode, Advice>>> = {
  attestation_failed: (circumstances, verdict) => {
    const { check, error } = verdict.failure ?? {};
    if (check?.detail?.newer && error) return error.remedy;
    if (circumstances.mode === 'offline') return distrustFiles(circumstances.atGiven, verdict);
    const proof = circumstances.saved
      ? 'Report it with the saved exchange'
      : 'Keep the exchange as proof (--save DIR) and report it';
    return `Do not send anything to this remote. ${proof}.`;
  },
  evidence_malformed: () =>
    'Do not trust this response: it is not what a coordinator sends. If it persists, report it.',
  manifest_mismatch: (circumstances) =>
    circumstances.mode === 'live' && circumstances.manifest === 'managed'
      ? 'The service publishes one manifest and runs under another. During an update that passes within minutes; else report it.'
      : 'The deployment runs under another manifest than yours. If the service was updated, get its current manifest, read what changed, and verify against that.',
  manifest_unsupported: () =>
    'Update privatemode-proxy: the manifest may be in order, but this version cannot tell.',
  collateral_unavailable: (circumstances) => {
    if (circumstances.mode === 'live') {
      return 'Nothing is proved either way. Check that the hosts of AMD or Intel can be reached (docs/network.md names them), and try again.';
    }
    const missing =
      'The files do not hold what this evidence needs. Name it with --collateral; verify --save writes such a file.';
    return circumstances.atGiven ? missing : `${BY_TIME} ${missing}`;
  },
};

const EVIDENCE_ONLY =
  ' Only the evidence was verified. To verify the secret exchange too, name its files with --secret-request and --secret-response.';

/** The advice, in a few sentences. */
export function adviceFor(verdict: Verdict, circumstances: Circumstances): string {
  const { failure, checks, outlived } = verdict;
  if (failure === undefined) {
    const opens = checks.find(({ id }) => id === OPENS.id);
    return meaningOf(verdict, circumstances) + (opens?.outcome === 'not-applicable' ? EVIDENCE_ONLY : '');
  }
  if (outlived !== undefined) {
    return `Judge it by the time it was made, before ${outlived.toISOString()}, with --at. As it stands, do not trust any deployment on it.`;
  }
  const { check, error } = failure;
  const advice = BY_CODE[error.code]?.(circumstances, verdict) ?? error.remedy;
  const clock = check?.detail?.clock;
  if (circumstances.mode === 'live') {
    return clock === undefined ? advice : `Check the clock of this machine first. If it is right: ${advice}`;
  }
  const early = circumstances.atGiven && clock === 'early';
  return early ? `--at is before the evidence was valid: check it first. If it is right: ${advice}` : advice;
}

/** What an accepted verdict means. */
function meaningOf({ roots }: Verdict, circumstances: Circumstances): string {
  if (roots === 'custom') {
    return 'The roots are not those of AMD and Intel: this says nothing about real hardware.';
  }
  if (circumstances.mode === 'offline') {
    return 'The dates were in force at the time above; when the evidence was made is not shown. What the deployment ran is what the manifest names: compare its SHA-256 with one you trust.';
  }
  return circumstances.manifest === 'static'
    ? 'A proxy started with the same flags encrypts for this deployment and for no other. What it runs is what the manifest names.'
    : 'A proxy started with the same flags encrypts for a deployment under the manifest that the publisher then names; now that is this one. What it runs is what the manifest names. To pin it, use --manifest-path.';
}
