/**
 * Decides whether an attestation document comes from a genuine, unmodified coordinator under the expected
 * manifest (docs/protocol/attestation.md 2 to 11, 19.12). The stages check the form of the input, then its
 * signer, then the signed data, then revocation. So failures after the second stage rest on signed data.
 */
import { constantTimeEqual } from '#crypto';
import { allAccepted, type Check, Checks, decisive, finding, type Outcome, sha256Hex } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import { parseDocument, readEvidence, reportData, transitionDigest } from './document.ts';
import { MANIFEST_ROWS, READING_ROWS, type ReadSubject } from './document-checks.ts';
import { coordinatorHashes, parseManifest, secretServiceEntry } from './manifest.ts';
import { MESH_ROWS, SECRET_ROWS } from './mesh.ts';
import type { TrustRoots } from './roots/production.ts';
import { SNP_ROWS, verifySnp } from './snp/verify-snp.ts';
import { TDX_ROWS, verifyTdx } from './tdx/verify-tdx.ts';

export type { Check } from './check.ts';
export type { CollateralSource, RevocationList, SignedCollateral } from './collateral.ts';
export type { TrustRoots } from './roots/production.ts';

type Rows = Parameters<typeof allAccepted>[0];

/** Every check of the program, in the order of docs/verify.md. No check id appears in two sections. */
export const CHECK_SECTIONS: readonly { title: string; rows: Rows }[] = [
  { title: 'Document and manifest', rows: [...READING_ROWS, ...MANIFEST_ROWS] },
  { title: 'SEV-SNP evidence', rows: Object.values(SNP_ROWS).flat() },
  { title: 'TDX evidence', rows: Object.values(TDX_ROWS).flat() },
  { title: 'Mesh certificate', rows: MESH_ROWS },
  { title: 'Secret exchange', rows: SECRET_ROWS },
];

const inOrder = ({ signer, later }: Readonly<Record<'signer' | 'later', Rows>>): Rows =>
  [READING_ROWS, signer, MANIFEST_ROWS, later].flat();

/** The checks for each kind of evidence, stage by stage. In an accepted verdict, no check failed. */
export const ROWS_OF = { snp: inOrder(SNP_ROWS), tdx: inOrder(TDX_ROWS) };

/** The verdict on the evidence alone, before a secret exchange (lib/verdict/judge.ts). */
export interface EvidenceVerdict {
  readonly outcome: Outcome;
  readonly tee: 'snp' | 'tdx' | undefined;
  readonly manifestSha256: string;
  /** The time with which all dates in certificates and collateral were compared. */
  readonly at: Date;
  /** Every check, in order. If a stage has a failed check, the checks of later stages were not made. */
  readonly checks: readonly Check[];
  /** The check that decided against the evidence. The `code` of the check is the error code to report. */
  readonly failure: Check | undefined;
  /** The mesh CA certificate (PEM) that the report data cover, or undefined without acceptance. */
  readonly meshCaPem: string | undefined;
}

export interface VerifyInput {
  /** The decoded AttestationDoc: the coordinator's JSON (docs/protocol/attestation.md 2). */
  readonly document: Uint8Array;
  /** The nonce that was sent, 32 bytes. */
  readonly nonce: Uint8Array;
  /** The exact bytes of the expected manifest. */
  readonly manifest: Uint8Array;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
  /** Whether a secret exchange follows. A secret exchange needs the secret service in the manifest. */
  readonly secretFollows: boolean;
}

const OUTCOMES: Readonly<Record<string, Outcome>> = {
  evidence_malformed: 'malformed',
  manifest_unsupported: 'unsupported',
};

/**
 * Judges an attestation document. Invalid input leads to a verdict that does not accept; the promise rejects
 * only for defects of this program. The verdict has the checks of the first reference value that passes, or
 * else of the closest reference value. Collateral is fetched only while no check has failed.
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
    manifestSha256: sha256Hex(input.manifest),
    at: input.now,
    checks: made,
    failure,
    meshCaPem: accepted ? Buffer.from(read.document.meshCa).toString('latin1') : undefined,
  };
}

/** Reads the expected manifest first, because all other checks depend on a manifest that is understood. */
async function readInput(checks: Checks, { nonce, ...input }: VerifyInput): Promise<ReadSubject | undefined> {
  const manifest = await checks.read('manifest.valid', () => {
    const parsed = parseManifest(input.manifest);
    if (input.secretFollows) secretServiceEntry(parsed);
    return parsed;
  });
  const document = manifest && (await checks.read('document.form', () => parseDocument(input.document)));
  const evidence =
    document && (await checks.read('evidence.form', () => readEvidence(document.rawAttestation)));
  const read = manifest && document && evidence && { manifest, nonce, document, evidence };
  return read && (await checks.run(READING_ROWS, read)) ? read : undefined;
}

/** Judges the signer, the signed data and the revocations. Returns whether all these checks hold. */
async function judge(checks: Checks, input: VerifyInput, read: ReadSubject): Promise<boolean> {
  const { document, manifest, evidence, nonce } = read;
  const boundTo = (manifests: readonly Uint8Array[]): Uint8Array =>
    reportData({ ...document, nonce, transition: transitionDigest(manifests) });
  const expectedReportData = boundTo(document.manifests);
  const context = { ...input, expectedReportData, coordinatorHashes: coordinatorHashes(manifest) };
  const documentHolds = (made: Checks): Promise<boolean> =>
    made.run(MANIFEST_ROWS, { ...read, expectedManifest: input.manifest, now: input.now });
  const holds =
    evidence.tee === 'snp'
      ? await verifySnp(checks, evidence.message, manifest.snp, context, documentHolds)
      : await verifyTdx(checks, evidence.message, manifest.tdx, context, documentHolds);
  if (!holds) return false;
  // A second safeguard: independently of all checks, the report data must match the expected manifest.
  const isExpected = constantTimeEqual(evidence.reportData, boundTo([input.manifest]));
  if (!isExpected)
    checks.refuse('manifest.expected', finding(false, 'the report data bind another manifest'));
  return isExpected;
}
