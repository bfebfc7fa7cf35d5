/**
 * Tells when the collateral of saved evidence expired, for evidence that is rejected for that reason alone.
 */
import { attempt, type Check } from '../attestation/check.ts';
import { parseCrl } from '../attestation/crl.ts';
import { parseDocument } from '../attestation/document.ts';
import { DATE, JsonMembers } from '../attestation/json-members.ts';
import { decodeSnpAttestation, SNP_EXTRA_CRL } from '../attestation/snp/report.ts';
import { misplaced, unusable } from '../attestation/tdx/signed-json.ts';
import { checksAbout } from '../attestation/verify-evidence.ts';
import { parseStrictJson } from '../strict-json.ts';
import type { StoredCollateral } from '../verdict/collateral-file.ts';
import { judge, type Subject } from '../verdict/judge.ts';
import type { Verdict } from '../verdict/verdict.ts';

/** The checks that fail if collateral was valid once and has expired. */
const OF_COLLATERAL = checksAbout('collateral date', 'collateral signer');

const LIMITS = { depth: 16, values: 64 * 1024 };
const SECOND = 1000;

/**
 * The time at which the collateral of rejected evidence expired, if nothing else prevents acceptance;
 * otherwise undefined. That is so if two things hold: at `subject.at` only checks of collateral fail, and one
 * second before the expiry all checks hold, including those of the secret exchange. The outcome of the
 * verdict stays as it is.
 */
export async function outlivedAt(
  subject: Subject,
  stored: StoredCollateral,
  { outcome, checks }: Pick<Verdict, 'outcome' | 'checks'>,
): Promise<Date | undefined> {
  const failed = checks.filter((check) => check.outcome === 'fail');
  if (outcome !== 'rejected' || failed.length === 0 || !failed.every(isOfCollateral)) return undefined;
  for (const end of endsOf(subject.document, stored)) {
    const at = new Date(end - SECOND);
    if (at < subject.at && (await judge({ ...subject, at })).outcome === 'accepted') return new Date(end);
  }
  return undefined;
}

const isOfCollateral = ({ id }: Check): boolean => OF_COLLATERAL.has(id);

/**
 * Expiry times of all readable collateral in the document and the file, in ms since 1970, the latest first.
 */
function endsOf(document: Uint8Array, stored: StoredCollateral): readonly number[] {
  const lists = [stored.ark_crl, stored.pck_crl, stored.root_ca_crl].map((hex) =>
    Buffer.from(hex ?? '', 'hex'),
  );
  const read = [
    attempt(() => parseCrl(listIn(document)).nextUpdate),
    ...lists.map((list) => attempt(() => parseCrl(list).nextUpdate)),
    ...[stored.tcb_info, stored.qe_identity].map((text) => attempt(() => nextUpdateOf(text ?? ''))),
  ];
  const ends = read.flatMap((each) => each?.value?.getTime() ?? []);
  return Array.from(new Set(ends)).sort((a, b) => b - a);
}

/** The revocation list in a SEV-SNP document; empty if it has none. Throws evidence_malformed. */
function listIn(document: Uint8Array): Uint8Array {
  const { certificates } = decodeSnpAttestation(parseDocument(document).rawAttestation);
  return certificates.extras.get(SNP_EXTRA_CRL) ?? new Uint8Array();
}

/** The nextUpdate of Intel's signed JSON. Throws collateral_unavailable if the text is no such JSON. */
function nextUpdateOf(text: string): Date {
  const json = parseStrictJson(Buffer.from(text), LIMITS, unusable);
  return new JsonMembers(json, [], misplaced).get('nextUpdate', DATE);
}
