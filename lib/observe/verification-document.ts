/**
 * The document of `GET /verification`: what protects requests now, and how the proxy established that. Its
 * schema: docs/verification.schema.json.
 */
import type { Clock } from '../clock.ts';
import { type EnforcedManifest, manifestHistory } from '../manifest-log.ts';
import type { AttestedSession } from '../session/session.ts';
import { type ChainLink, chainOfTrust, NONCE_DIGESTS } from '../verdict/chain-of-trust.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { VERSION } from '../version.ts';
import { type EpochFacts, epochFacts } from './status-report.ts';

export interface VerificationDocument {
  readonly version: string;
  readonly protocol: string;
  /** When the document was made, RFC 3339 in UTC. */
  readonly now: string;
  /**
   * Whether an epoch is in force, so that the proxy may send requests. A failed renewal does not end an
   * epoch. False while the proxy stops, although it takes requests until its port closes.
   */
  readonly verified: boolean;
  /** The state of the proxy by name (docs/states.md). */
  readonly state: string;
  /** The epoch that requests use, with its times as RFC 3339 in UTC; null exactly if not verified. */
  readonly epoch: Readonly<Record<keyof EpochFacts, string>> | null;
  /** The last verdict, accepted or not; null before the first. */
  readonly verdict: Verdict | null;
  /** In the order of trust; empty before the first verdict. */
  readonly chain: readonly ChainLink[];
  /** Newest first. */
  readonly manifests: readonly EnforcedManifest[];
}

interface VerificationFacts {
  readonly version: string;
  readonly protocol: string;
  readonly now: Date;
  readonly standing: Pick<VerificationDocument, 'state' | 'verified'>;
  /** The epoch that requests may use; undefined if there is none. */
  readonly epoch: EpochFacts | undefined;
  readonly verdict: Verdict | undefined;
  readonly manifests: readonly EnforcedManifest[];
}

/**
 * Checks that compare digests over the nonce of this attestation. The digests are of no use to readers of the
 * document.
 */
const OF_NONCE: ReadonlySet<string | null> = NONCE_DIGESTS;
const DIGEST = 'the digest over nonce, manifest and both CA certificates';

export function verificationDocument(facts: VerificationFacts): VerificationDocument {
  const { version, protocol, now, standing, epoch, verdict, manifests } = facts;
  return {
    version,
    protocol,
    now: now.toISOString(),
    verified: standing.verified,
    state: standing.state,
    epoch: standing.verified && epoch !== undefined ? inRfc3339(epochFacts(epoch)) : null,
    verdict: verdict === undefined ? null : withoutNonce(verdict),
    chain: verdict === undefined ? [] : chainOfTrust(verdict),
    manifests,
  };
}

function inRfc3339(facts: EpochFacts): NonNullable<VerificationDocument['epoch']> {
  const iso = (ms: number): string => new Date(ms).toISOString();
  const { attestedAt, renewAt, expiresAt } = facts;
  return {
    ...facts,
    attestedAt: iso(attestedAt),
    renewAt: iso(renewAt),
    expiresAt: iso(expiresAt),
  };
}

/** The body of GET /verification. */
export const verificationText = (document: VerificationDocument): string =>
  `${JSON.stringify(document, undefined, 2)}\n`;

function withoutNonce(verdict: Verdict): Verdict {
  const inWords = <Row extends { readonly id: string | null }>(row: Row, holds: boolean): Row =>
    OF_NONCE.has(row.id)
      ? { ...row, expected: DIGEST, found: holds ? 'that digest' : 'another digest' }
      : row;
  const checks = verdict.checks.map((check) =>
    check.outcome === 'pass' || check.outcome === 'fail' ? inWords(check, check.outcome === 'pass') : check,
  );
  return { ...verdict, checks, failure: verdict.failure && inWords(verdict.failure, false) };
}

/**
 * Builds the document from the state of the session each time it is requested. Reads the manifest log once,
 * and again after `changed`, so that frequent requests cost no disk reads. The caller must call `changed`
 * with every event of the session.
 */
export function createVerification(
  { protocolVersion, workspace }: { readonly protocolVersion: string; readonly workspace: string },
  session: Pick<AttestedSession, 'current' | 'standing' | 'lastVerdict'>,
  clock: Pick<Clock, 'now'>,
) {
  let history: Promise<readonly EnforcedManifest[]> | undefined;
  async function document(): Promise<VerificationDocument> {
    history ??= manifestHistory(workspace);
    const manifests = await history;
    return verificationDocument({
      version: VERSION,
      protocol: protocolVersion,
      now: new Date(clock.now()),
      standing: session.standing(),
      epoch: session.current(),
      verdict: session.lastVerdict(),
      manifests,
    });
  }
  return {
    document,
    changed(): void {
      history = undefined;
    },
  };
}
