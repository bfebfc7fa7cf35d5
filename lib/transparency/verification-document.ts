/** What `GET /verification` says: what protects requests now, and how that was established. Its schema: docs/verification.schema.json. */
import type { TrustRoots, Verdict } from '../attestation/verify.ts';
import { type ChainLink, chainOfTrust } from '../verdict/chain-of-trust.ts';
import { verdictReport } from '../verdict/json.ts';
import { judgementOf } from '../verdict/judge.ts';
import type { VerdictReport } from '../verdict/verdict.ts';
import { type EpochFacts, epochFacts } from './epoch-facts.ts';
import { type EnforcedManifest, manifestHistory } from './manifest-changes.ts';

export interface VerificationDocument {
  readonly version: string;
  readonly protocol: string;
  /** When the document was made, RFC 3339 in UTC. */
  readonly now: string;
  /** Whether an epoch is in force, so that requests may be sent. A renewal that fails does not end it. */
  readonly verified: boolean;
  /** The state of the proxy by name (docs/states.md). */
  readonly state: string;
  /** Its times RFC 3339 in UTC. */
  readonly epoch: Readonly<Record<keyof EpochFacts, string>> | null;
  /** The last one, accepted or not; null before the first. */
  readonly verdict: VerdictReport | null;
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
  /** The one that requests may use; undefined: none. */
  readonly epoch: EpochFacts | undefined;
  readonly verdict: Verdict | undefined;
  /** The roots that the verdict was found with. */
  readonly roots: TrustRoots;
  readonly manifests: readonly EnforcedManifest[];
}

/** Checks that compare digests over the nonce of this attestation. Whoever may read the document has no use for these. */
const OF_NONCE: ReadonlySet<string | null> = new Set(['snp.report_data', 'tdx.policy.report_data']);
const DIGEST = 'the digest over nonce, manifest and both CA certificates';

/** The document. */
export function verificationDocument(facts: VerificationFacts): VerificationDocument {
  const { version, protocol, now, standing, epoch, verdict, roots, manifests } = facts;
  const report = verdict && verdictReport(judgementOf(verdict, roots));
  return {
    version,
    protocol,
    now: now.toISOString(),
    verified: standing.verified,
    state: standing.state,
    epoch: epoch === undefined ? null : inRfc3339(epochFacts(epoch)),
    verdict: report === undefined ? null : withoutNonce(report),
    chain: verdict && report ? chainOfTrust(verdict.checks, report.roots) : [],
    manifests,
  };
}

function inRfc3339(facts: EpochFacts): NonNullable<VerificationDocument['epoch']> {
  const iso = (ms: number): string => new Date(ms).toISOString();
  const { attestedAt, renewAt, expiresAt } = facts;
  return {
    ...facts,
    ...{ attestedAt: iso(attestedAt), renewAt: iso(renewAt), expiresAt: iso(expiresAt) },
  };
}

/** The body of GET /verification. */
export const verificationText = (document: VerificationDocument): string =>
  `${JSON.stringify(document, undefined, 2)}\n`;

function withoutNonce(report: VerdictReport): VerdictReport {
  const inWords = <Row extends { readonly id: string | null }>(row: Row, holds: boolean): Row =>
    OF_NONCE.has(row.id)
      ? { ...row, expected: DIGEST, found: holds ? 'that digest' : 'another digest' }
      : row;
  const checks = report.checks.map((check) =>
    check.outcome === 'pass' || check.outcome === 'fail' ? inWords(check, check.outcome === 'pass') : check,
  );
  return { ...report, checks, failure: report.failure && inWords(report.failure, false) };
}

/**
 * The document as it is whenever somebody asks. It reads the manifest log once and again after `changed`, which is to be called with
 * every event of the session, so that asking often costs no disk.
 */
export function createVerification({
  standing,
  epoch,
  verdict,
  workspace,
  ...fixed
}: Pick<VerificationFacts, 'version' | 'protocol' | 'roots'> & {
  readonly standing: () => VerificationFacts['standing'];
  readonly epoch: () => EpochFacts | undefined;
  readonly verdict: () => Verdict | undefined;
  readonly workspace: string;
}) {
  let history: Promise<readonly EnforcedManifest[]> | undefined;
  async function document(): Promise<VerificationDocument> {
    history ??= manifestHistory(workspace);
    const manifests = await history;
    return verificationDocument({
      ...fixed,
      now: new Date(),
      standing: standing(),
      epoch: epoch(),
      verdict: verdict(),
      manifests,
    });
  }
  return {
    document,
    text: async (): Promise<string> => verificationText(await document()),
    changed(): void {
      history = undefined;
    },
  };
}
