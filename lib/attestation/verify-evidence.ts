/**
 * Answers whether a document comes from a genuine, unmodified coordinator that runs under the expected
 * manifest (docs/protocol/attestation.md 2 to 11, 19.12). `verify` judges bytes alone, and asks `collateral`
 * for the facts that they do not carry.
 */
import { sha256 } from '#crypto';
import { malformed } from '../crypto/der.ts';
import { authenticContext } from './authentic.ts';
import {
  type Authentic,
  allAccepted,
  attempt,
  type Check,
  type CheckDescription,
  type CheckTopic,
  decisive,
  firstFailure,
  isRefuted,
  type Outcome,
  runChecks,
} from './check.ts';
import { askOnce, type CollateralSource } from './collateral.ts';
import { type AttestationDocument, parseDocument, reportData, transitionDigest } from './document.ts';
import { DOCUMENT_ROWS, NONCE_BYTES } from './document-checks.ts';
import { breathe, type EvidenceContext, type EvidenceFormat, type TrustRoots } from './evidence.ts';
import { coordinatorHashes, type Manifest, parseManifest, secretServiceEntry } from './manifest.ts';
import { MESH_ROWS, SECRET_ROWS } from './mesh.ts';
import { SNP } from './snp/verify-snp.ts';
import { TDX } from './tdx/verify-tdx.ts';

export type { Check } from './check.ts';
export type { CollateralSource, RevocationList, SignedCollateral } from './collateral.ts';
export type { TrustRoots } from './evidence.ts';

/** Every check of the program, in the order in which it makes them; docs/checks.md shows this table. */
export const CHECK_SECTIONS: readonly {
  readonly title: string;
  /** Ids are unique over all sections. */
  readonly rows: readonly CheckDescription[];
}[] = [
  { title: 'Document and manifest', rows: DOCUMENT_ROWS },
  { title: 'SEV-SNP evidence', rows: SNP.rows },
  { title: 'TDX evidence', rows: TDX.rows },
  { title: 'Mesh certificate', rows: MESH_ROWS },
  { title: 'Secret exchange', rows: SECRET_ROWS },
];

/** The ids of all checks about one of these topics. */
export function checksAbout(...topics: readonly CheckTopic[]): ReadonlySet<string> {
  const rows = CHECK_SECTIONS.flatMap((section) => section.rows);
  return new Set(rows.flatMap(({ id, about }) => (about && topics.includes(about) ? id : [])));
}

/** The verdict on evidence alone, before a secret is exchanged (lib/verdict/judge.ts). */
export interface EvidenceVerdict {
  readonly outcome: Outcome;
  readonly tee: 'snp' | 'tdx' | undefined;
  readonly manifestSha256: string;
  /** The moment with which all dates were compared. */
  readonly at: Date;
  /**
   * Every check, in order. The first failure decides, but one for lack of collateral only if there is no
   * other. Checks after it are still reported if they could be evaluated.
   */
  readonly checks: readonly Check[];
  /** The check that decided; its `code` is the error to report. */
  readonly failure: Check | undefined;
  /**
   * Whether the hardware itself states what was judged. It does not influence the outcome, and is not in the
   * verdict's JSON.
   */
  readonly authentic: Authentic;
  /** PEM of the mesh CA certificate, which the report data bind; undefined unless the verdict accepts. */
  readonly meshCaPem: string | undefined;
}

export interface VerifyInput {
  /** The decoded AttestationDoc: the coordinator's own JSON (docs/protocol/attestation.md section 2). */
  readonly document: Uint8Array;
  /** The 32 bytes that were sent. */
  readonly nonce: Uint8Array;
  /** The expected manifest, byte for byte. */
  readonly manifest: Uint8Array;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
  /** Whether a secret exchange is judged next: then the manifest must name the secret service. */
  readonly secretFollows: boolean;
}

/** A message of a known evidence format. */
type Evidence = ReturnType<typeof evidenceOf>;

const KINDS = {
  snp: { tee: 'snp', name: 'SEV-SNP', attestationType: '1.3.9901.2.1' },
  tdx: { tee: 'tdx', name: 'TDX', attestationType: '1.3.9901.2.2' },
} as const;

/** The evidence in `raw`. Throws evidence_malformed if `raw` is no message of this format. */
function evidenceOf<Message, Entry>(
  kind: keyof typeof KINDS,
  { decode, rows, verify: judge, authentic }: EvidenceFormat<Message, Entry>,
  raw: Uint8Array,
  entries: readonly Entry[] = [],
) {
  const message = decode(raw);
  /** One per reference value, in the order of the manifest. */
  const judgements = entries.map((entry) => (context: EvidenceContext) => judge(message, entry, context));
  return {
    ...KINDS[kind],
    rows,
    judgements,
    authentic: (context: EvidenceContext) => authentic(message, context),
  };
}

/**
 * Finds the evidence format by the shape of the message alone; a later check compares the type that the
 * document states. Throws evidence_malformed if the message has the shape of neither format, or of both.
 */
function recognise({ rawAttestation: raw }: AttestationDocument, manifest: Manifest | undefined): Evidence {
  const snp = attempt(() => evidenceOf('snp', SNP, raw, manifest?.snp));
  const tdx = attempt(() => evidenceOf('tdx', TDX, raw, manifest?.tdx));
  if (snp?.value && tdx?.value) throw malformed('the message can be read as SEV-SNP and as TDX');
  const evidence = snp?.value ?? tdx?.value;
  if (evidence !== undefined) return evidence;
  const [noSnp, noTdx] = [snp?.error?.message, tdx?.error?.message];
  throw malformed(`no SEV-SNP message (${noSnp}) and no TDX message (${noTdx})`);
}

/**
 * Judges an attestation document. Bad input gives a verdict, never an error; the promise rejects only for
 * defects of our own. The function tries the manifest's reference values in order, and reports the checks of
 * the first one that accepts, else those of the closest one. It asks for collateral only while no check has
 * failed.
 */
export async function verify(input: VerifyInput): Promise<EvidenceVerdict> {
  const { nonce, now, roots } = input;
  const document = attempt(() => parseDocument(input.document));
  await breathe();
  const manifest = attempt(() => {
    const parsed = parseManifest(input.manifest);
    if (input.secretFollows) secretServiceEntry(parsed);
    return parsed;
  });
  const read = document?.value;
  const evidence = read && attempt(() => recognise(read, manifest?.value));
  await breathe();
  const subject = { nonce, expectedManifest: input.manifest, now, document, manifest, evidence };
  const checks = await runChecks(DOCUMENT_ROWS, subject);
  const found = evidence?.value;
  const expected = manifest?.value;
  if (read && expected && found && nonce.length === NONCE_BYTES) {
    const transition = transitionDigest([input.manifest]);
    const context: EvidenceContext = {
      expectedReportData: reportData({ ...read, nonce, transition }),
      coordinatorHashes: coordinatorHashes(expected),
      roots,
      collateral: askOnce(input.collateral, firstFailure(checks) === undefined),
      now,
    };
    checks.push(...(await tryReferenceValues(found, context)));
  }
  const verdict = verdictOf(input, checks, found, read);
  if (verdict.outcome === 'accepted' || found === undefined || read === undefined) return verdict;
  if (nonce.length !== NONCE_BYTES) return { ...verdict, authentic: 'unknown' };
  return { ...verdict, authentic: await found.authentic(authenticContext(read, input)) };
}

async function tryReferenceValues(evidence: Evidence, context: EvidenceContext): Promise<readonly Check[]> {
  let closest: readonly Check[] = [];
  for (const judge of evidence.judgements) {
    await breathe();
    const checks = await judge(context);
    if (allAccepted(evidence.rows, checks)) return checks;
    if (closest.length === 0 || isCloser(checks, closest)) closest = checks;
  }
  return closest;
}

/**
 * Whether `checks` are closer to acceptance than `than`. Checks that fail only for missing collateral are
 * closer than checks that fail otherwise: their reference value may be the right one. Else, the list with
 * fewer failed or not evaluated checks is closer.
 */
function isCloser(checks: readonly Check[], than: readonly Check[]): boolean {
  const isRefused = than.some(isRefuted);
  if (checks.some(isRefuted) !== isRefused) return isRefused;
  return countUnmet(checks) < countUnmet(than);
}

const countUnmet = (checks: readonly Check[]): number =>
  checks.filter(({ outcome }) => outcome === 'fail' || outcome === 'not-evaluated').length;

const OUTCOMES: Readonly<Record<string, Outcome>> = {
  evidence_malformed: 'malformed',
  manifest_unsupported: 'unsupported',
};

/** Accepts only if every check of the document and of the evidence format was run and held. */
function verdictOf(
  input: VerifyInput,
  checks: readonly Check[],
  evidence: Evidence | undefined,
  document: AttestationDocument | undefined,
): EvidenceVerdict {
  const rows = evidence === undefined ? [] : [...DOCUMENT_ROWS, ...evidence.rows];
  const accepted = document !== undefined && allAccepted(rows, checks);
  const failure = accepted ? undefined : decisive(checks);
  return {
    outcome: accepted ? 'accepted' : (OUTCOMES[failure?.code ?? ''] ?? 'rejected'),
    tee: evidence?.tee,
    manifestSha256: Buffer.from(sha256(input.manifest)).toString('hex'),
    at: input.now,
    checks,
    failure,
    authentic: accepted ? 'yes' : 'no',
    meshCaPem: accepted ? Buffer.from(document.meshCa).toString('latin1') : undefined,
  };
}
