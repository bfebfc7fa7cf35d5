/**
 * The document of `GET /verification`, also a member of `GET /status`: what protects requests now, and how
 * the proxy established that. Its schema: docs/verification.schema.json.
 */
import type { Clock } from '../clock.ts';
import { type EnforcedManifest, manifestHistory } from '../manifest-log.ts';
import type { AttestedSession } from '../session/session.ts';
import type { Term } from '../session/state.ts';
import { chainOfTrust } from '../verdict/chain-of-trust.ts';
import { VERSION } from '../version.ts';

export type VerificationDocument = Readonly<ReturnType<typeof verificationDocument>>;

/** The facts of an epoch that pages show. Its key is not among them. */
export type EpochFacts = Omit<Term, 'exchangeSha256' | 'expiresMonotonic'>;

export function epochFacts(epoch: EpochFacts): EpochFacts {
  const { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt } = epoch;
  return { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt };
}

/**
 * The document at the time `now` (ms since 1970), with times in RFC 3339 in UTC.
 *
 * `verified`: whether an epoch is in force, so that requests may be sent; a failed renewal does not end one.
 * False while the proxy stops, although it takes requests until its port closes. `epoch`: null exactly if not
 * verified. `verdict`: the last one, accepted or not; null before the first. `chain`: in the order of trust.
 * `manifests`: newest first.
 */
export function verificationDocument(
  session: Pick<AttestedSession, 'current' | 'standing' | 'lastVerdict'>,
  manifests: readonly EnforcedManifest[],
  { protocol, now }: { readonly protocol: string; readonly now: number },
) {
  const iso = (ms: number): string => new Date(ms).toISOString();
  const { verified, state } = session.standing();
  const epoch = verified ? session.current() : undefined;
  const verdict = session.lastVerdict() ?? null;
  return {
    version: VERSION,
    protocol,
    now: iso(now),
    verified,
    state: state as string,
    epoch: epoch === undefined ? null : inRfc3339(epochFacts(epoch)),
    verdict,
    chain: verdict === null ? [] : chainOfTrust(verdict),
    manifests,
  };

  function inRfc3339(facts: EpochFacts) {
    const { attestedAt, renewAt, expiresAt } = facts;
    return { ...facts, attestedAt: iso(attestedAt), renewAt: iso(renewAt), expiresAt: iso(expiresAt) };
  }
}

/** The body of GET /verification. */
export const verificationText = (document: VerificationDocument): string =>
  `${JSON.stringify(document, undefined, 2)}\n`;

/**
 * The sources of the document. Reads the manifest log once, and again after `changed`, so that frequent
 * requests cost no disk reads. The caller must call `changed` with every event of the session.
 */
export function createVerification(
  { protocolVersion: protocol, workspace }: { readonly protocolVersion: string; readonly workspace: string },
  session: Parameters<typeof verificationDocument>[0],
  clock: Pick<Clock, 'now'>,
) {
  let history: Promise<readonly EnforcedManifest[]> | undefined;
  const manifests = () => (history ??= manifestHistory(workspace));
  const document = (enforced: readonly EnforcedManifest[]): VerificationDocument =>
    verificationDocument(session, enforced, { protocol, now: clock.now() });
  return {
    manifests,
    /** As of this moment, with what `manifests` resolved with. */
    document,
    changed(): void {
      history = undefined;
    },
  };
}
