/**
 * Is this document the answer of a genuine, unmodified coordinator running under the expected manifest? The whole
 * question as one function of bytes (attestation.md 2 to 11, 19.12); what it cannot know it asks `collateral` for.
 */
import { sha256 } from '../crypto/digest.ts';
import { attempt, valueIn } from './attempt.ts';
import { allAccepted, type Check, type CheckDescription, firstFailure, runChecks } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import { askOnce } from './collateral-once.ts';
import { type AttestationDocument, parseDocument } from './document.ts';
import { DOCUMENT_ROWS, NONCE_BYTES } from './document-checks.ts';
import { breathe, type EvidenceContext, type EvidenceFormat } from './evidence.ts';
import { coordinatorHashes, type Manifest, parseManifest } from './manifest.ts';
import { reportData, transitionDigest } from './report-data.ts';
import { SNP } from './snp/verify.ts';
import { TDX } from './tdx/verify.ts';
import type { TrustRoots } from './trust-roots.ts';
import { malformed } from './x509/der.ts';

export type { Check } from './check.ts';
export type { CollateralSource, RevocationList, SignedCollateral } from './collateral.ts';
export type { TrustRoots } from './trust-roots.ts';

export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

export interface Verdict {
  readonly outcome: Outcome;
  readonly tee: 'snp' | 'tdx' | undefined;
  readonly manifestSha256: string;
  /** Every check, in order. The first failure decides; the rest is still reported where it could be evaluated. */
  readonly checks: readonly Check[];
  /** The first failed check; its `code` is the error to report. */
  readonly failure: Check | undefined;
  /** PEM text of the mesh CA certificate, bound by the report data; only for an accepted verdict. */
  readonly meshCaPem: string | undefined;
}

export interface VerifyInput {
  /** The decoded AttestationDoc: the coordinator's own JSON (attestation.md section 2). */
  readonly document: Uint8Array;
  /** The 32 bytes that were sent. */
  readonly nonce: Uint8Array;
  /** The expected manifest, byte for byte. */
  readonly manifest: Uint8Array;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}

/** A message that was recognised, with the reference values it can be judged against. */
interface Evidence {
  readonly tee: 'snp' | 'tdx';
  readonly name: string;
  readonly attestationType: string;
  readonly rows: readonly CheckDescription[];
  readonly referenceValues: number;
  /** One judgement per reference value, in the order of the manifest. */
  readonly judgements: readonly ((context: EvidenceContext) => Promise<readonly Check[]>)[];
}

function evidenceOf<Message, Entry>(
  kind: Pick<Evidence, 'tee' | 'name' | 'attestationType'>,
  format: EvidenceFormat<Message, Entry>,
  raw: Uint8Array,
  entries: readonly Entry[],
): Evidence {
  const message = format.decode(raw);
  return {
    ...kind,
    rows: format.rows,
    referenceValues: entries.length,
    judgements: entries.map((entry) => (context) => format.verify(message, entry, context)),
  };
}

/** By the shape of the message alone; the stated type is compared afterwards. Throws evidence_malformed. */
function recognise({ rawAttestation: raw }: AttestationDocument, manifest: Manifest | undefined): Evidence {
  const { snp = [], tdx = [] } = manifest ?? {};
  const candidates = [
    attempt(() =>
      evidenceOf({ tee: 'snp', name: 'SEV-SNP', attestationType: '1.3.9901.2.1' }, SNP, raw, snp),
    ),
    attempt(() => evidenceOf({ tee: 'tdx', name: 'TDX', attestationType: '1.3.9901.2.2' }, TDX, raw, tdx)),
  ];
  const [evidence, another] = candidates.map(valueIn).filter((each) => each !== undefined);
  if (evidence === undefined) {
    const reasons = candidates.map((each) =>
      each !== undefined && 'error' in each ? each.error.message : '',
    );
    throw malformed(`no SEV-SNP message (${reasons[0]}) and no TDX message (${reasons[1]})`);
  }
  if (another !== undefined) throw malformed('the message can be read as SEV-SNP and as TDX');
  return evidence;
}

/**
 * Judges an attestation document. Bad input is a verdict, never an error; it rejects only for defects of our own. All
 * reference values of the manifest are tried; the checks of the first one that accepts are listed, else those of
 * the closest one. Collateral is asked for only while no check has failed.
 */
export async function verify(input: VerifyInput): Promise<Verdict> {
  const { nonce, now, roots } = input;
  const document = attempt(() => parseDocument(input.document));
  await breathe();
  const manifest = attempt(() => parseManifest(input.manifest));
  const read = valueIn(document);
  const evidence = read === undefined ? undefined : attempt(() => recognise(read, valueIn(manifest)));
  await breathe();
  const checks = runChecks(DOCUMENT_ROWS, {
    nonce,
    expectedManifest: input.manifest,
    now,
    document,
    manifest,
    evidence,
  });
  const found = valueIn(evidence);
  const expected = valueIn(manifest);
  if (read !== undefined && expected !== undefined && found !== undefined && nonce.length === NONCE_BYTES) {
    const { rootCa, meshCa } = read;
    const transition = transitionDigest([input.manifest]);
    const context: EvidenceContext = {
      expectedReportData: reportData({ nonce, transition, rootCa, meshCa }),
      coordinatorHashes: coordinatorHashes(expected),
      roots,
      collateral: askOnce(input.collateral, firstFailure(checks) === undefined),
      now,
    };
    checks.push(...(await tryReferenceValues(found, context)));
  }
  return verdictOf(input, checks, found, read);
}

async function tryReferenceValues(evidence: Evidence, context: EvidenceContext): Promise<readonly Check[]> {
  let closest: readonly Check[] = [];
  for (const judge of evidence.judgements) {
    await breathe();
    const checks = await judge(context);
    if (allAccepted(evidence.rows, checks)) return checks;
    if (closest.length === 0 || countUnmet(checks) < countUnmet(closest)) closest = checks;
  }
  return closest;
}

const countUnmet = (checks: readonly Check[]): number =>
  checks.filter(({ outcome }) => outcome === 'fail' || outcome === 'not-evaluated').length;

const OUTCOMES: Readonly<Record<string, Outcome>> = {
  evidence_malformed: 'malformed',
  manifest_unsupported: 'unsupported',
};

/** Accepted only if every check of the document and of the evidence format was run and held. */
function verdictOf(
  input: VerifyInput,
  checks: readonly Check[],
  evidence: Evidence | undefined,
  document: AttestationDocument | undefined,
): Verdict {
  const rows = evidence === undefined ? [] : [...DOCUMENT_ROWS, ...evidence.rows];
  const accepted = document !== undefined && allAccepted(rows, checks);
  const failure = accepted
    ? undefined
    : (firstFailure(checks) ?? checks.find(({ outcome }) => outcome === 'not-evaluated'));
  return {
    outcome: accepted ? 'accepted' : (OUTCOMES[failure?.code ?? ''] ?? 'rejected'),
    tee: evidence?.tee,
    manifestSha256: Buffer.from(sha256(input.manifest)).toString('hex'),
    checks,
    failure,
    meshCaPem: accepted ? Buffer.from(document.meshCa).toString('latin1') : undefined,
  };
}
