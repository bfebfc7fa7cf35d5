/**
 * Answers whether a document comes from a genuine, unmodified coordinator that runs under the expected
 * manifest (docs/protocol/attestation.md 2 to 11, 19.12). `verify` judges bytes alone, and asks `collateral`
 * for the facts that they do not carry.
 *
 * It goes by stages: what can be read, who signed it, what that says, what is revoked. So a check that fails
 * after the second stage means that hardware said so, and nobody on the way.
 */
import { constantTimeEqual, sha256 } from '#crypto/digest';
import {
  allAccepted,
  type Check,
  type CheckDescription,
  Checks,
  type CheckTopic,
  decisive,
  type Outcome,
} from './check.ts';
import type { CollateralSource } from './collateral.ts';
import { type AttestationDocument, parseDocument, reportData, transitionDigest } from './document.ts';
import { DOCUMENT_ROWS, EVIDENCE_ROWS, GIVEN_ROWS, MANIFEST_ROWS } from './document-checks.ts';
import { type Evidence, readEvidence } from './evidence.ts';
import { coordinatorHashes, type Manifest, parseManifest, secretServiceEntry } from './manifest.ts';
import { MESH_ROWS, SECRET_ROWS } from './mesh.ts';
import type { TrustRoots } from './roots/production.ts';
import * as snp from './snp/verify-snp.ts';
import * as tdx from './tdx/verify-tdx.ts';

export type { Check } from './check.ts';
export type { CollateralSource, RevocationList, SignedCollateral } from './collateral.ts';
export type { TrustRoots } from './roots/production.ts';

const READING_ROWS = [...GIVEN_ROWS, ...DOCUMENT_ROWS, ...EVIDENCE_ROWS];

/** Every check of the program, in the order in which it makes them; docs/checks.md shows this table. */
export const CHECK_SECTIONS: readonly {
  readonly title: string;
  /** Ids are unique over all sections. */
  readonly rows: readonly CheckDescription[];
}[] = [
  { title: 'What can be read', rows: READING_ROWS },
  { title: 'Who signed: SEV-SNP', rows: snp.SNP_ROWS.signer },
  { title: 'Who signed: TDX', rows: tdx.TDX_ROWS.signer },
  { title: 'What it says: document and manifest', rows: MANIFEST_ROWS },
  { title: 'What it says: SEV-SNP', rows: snp.SNP_ROWS.policy },
  { title: 'What it says: TDX', rows: tdx.TDX_ROWS.policy },
  { title: 'What is revoked: SEV-SNP', rows: snp.SNP_ROWS.revocation },
  { title: 'What is revoked or out of date: TDX', rows: tdx.TDX_ROWS.revocation },
  { title: 'Mesh certificate', rows: MESH_ROWS },
  { title: 'Secret exchange', rows: SECRET_ROWS },
];

/** The checks of each kind of evidence, in order; an accepted verdict has a pass for every one. */
export const ROWS_OF = {
  snp: rowsOf(snp.SNP_ROWS),
  tdx: rowsOf(tdx.TDX_ROWS),
} as const;

function rowsOf({
  signer,
  policy,
  revocation,
}: Record<'signer' | 'policy' | 'revocation', readonly CheckDescription[]>) {
  return [...READING_ROWS, ...signer, ...MANIFEST_ROWS, ...policy, ...revocation];
}

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
   * other. Of the stages after one with a failure, no check was made.
   */
  readonly checks: readonly Check[];
  /** The check that decided; its `code` is the error to report. */
  readonly failure: Check | undefined;
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

const OUTCOMES: Readonly<Record<string, Outcome>> = {
  evidence_malformed: 'malformed',
  manifest_unsupported: 'unsupported',
};

/**
 * Judges an attestation document. Bad input gives a verdict, never an error; the promise rejects only for
 * defects of our own. The function tries the manifest's reference values in order, and reports the checks of
 * the first one that accepts, else those of the closest one. It asks for collateral only while no check has
 * failed. It accepts only if every check was made and held.
 */
export async function verify(input: VerifyInput): Promise<EvidenceVerdict> {
  const checks = new Checks([...ROWS_OF.snp, ...ROWS_OF.tdx]);
  const read = await readInput(checks, input);
  const holds = read !== undefined && (await judge(checks, input, read));
  const tee = read?.evidence.tee;
  const rows = tee === undefined ? [...READING_ROWS, ...MANIFEST_ROWS] : ROWS_OF[tee];
  const made = checks.of(rows);
  const accepted = holds && allAccepted(rows, made);
  const failure = accepted ? undefined : decisive(made);
  return {
    outcome: accepted ? 'accepted' : (OUTCOMES[failure?.code ?? ''] ?? 'rejected'),
    tee,
    manifestSha256: Buffer.from(sha256(input.manifest)).toString('hex'),
    at: input.now,
    checks: made,
    failure,
    meshCaPem: accepted ? Buffer.from(read.document.meshCa).toString('latin1') : undefined,
  };
}

interface Read {
  readonly manifest: Manifest;
  readonly document: AttestationDocument;
  readonly evidence: Evidence;
}

/** The expected manifest comes first: if this program does not understand it, nothing else matters. */
async function readInput(checks: Checks, { nonce, ...input }: VerifyInput): Promise<Read | undefined> {
  const manifest = await checks.read('manifest.valid', () => {
    const parsed = parseManifest(input.manifest);
    if (input.secretFollows) secretServiceEntry(parsed);
    return parsed;
  });
  if (manifest === undefined || !(await checks.run(GIVEN_ROWS, { manifest, nonce }))) return undefined;
  const document = await checks.read('document.form', () => parseDocument(input.document));
  if (document === undefined || !(await checks.run(DOCUMENT_ROWS, { document }))) return undefined;
  const evidence = await checks.read('evidence.form', () => readEvidence(document.rawAttestation));
  if (evidence === undefined || !(await checks.run(EVIDENCE_ROWS, { evidence }))) return undefined;
  return { manifest, document, evidence };
}

/** Judges who signed, what that says, and what is revoked. Returns whether all of it holds. */
async function judge(checks: Checks, input: VerifyInput, read: Read): Promise<boolean> {
  const { document, manifest, evidence } = read;
  const { nonce, now, roots, collateral } = input;
  const says = { ...read, expectedManifest: input.manifest, now };
  const boundTo = (manifests: readonly Uint8Array[]): Uint8Array =>
    reportData({ ...document, nonce, transition: transitionDigest(manifests) });
  const context = {
    expectedReportData: boundTo(document.manifests),
    coordinatorHashes: coordinatorHashes(manifest),
    roots,
    collateral,
    now,
  };
  const documentHolds = (): Promise<boolean> => checks.run(MANIFEST_ROWS, says);
  let reported: Uint8Array;
  if (evidence.tee === 'snp') {
    const given = { message: evidence.message, entries: manifest.snp, context };
    const signer = await snp.whoSigned(checks, given, async () => {
      const early = new Checks(MANIFEST_ROWS);
      await early.run(MANIFEST_ROWS, says);
      return decisive(early.of(MANIFEST_ROWS))?.id;
    });
    if (signer === undefined || !(await documentHolds())) return false;
    if (!(await snp.whatRuns(checks, given, signer))) return false;
    reported = evidence.message.report.reportData;
  } else {
    const given = { message: evidence.message, entries: manifest.tdx, context };
    const signer = await tdx.whoSigned(checks, given);
    if (signer === undefined || !(await documentHolds())) return false;
    if (!(await tdx.whatRuns(checks, given, signer))) return false;
    reported = evidence.message.tdQuoteBody.reportData;
  }
  // The second lock: whatever the checks compared, the hardware must name the expected manifest alone.
  const isExpected = constantTimeEqual(reported, boundTo([input.manifest]));
  if (!isExpected) checks.refuse('manifest.expected', 'the report data bind another manifest');
  return isExpected;
}
