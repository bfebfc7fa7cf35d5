/** Saved evidence of which only the collateral has run out since: what it said holds, but not at the time that it is judged by. */
import { attempt, type Check } from '../attestation/check.ts';
import { parseDocument } from '../attestation/document.ts';
import { DATE, JsonMembers } from '../attestation/json-members.ts';
import { decodeSnpAttestation, SNP_EXTRA_CRL } from '../attestation/snp/report.ts';
import { misplaced, unusable } from '../attestation/tdx/signed-json.ts';
import { parseCrl } from '../attestation/x509/crl.ts';
import { parseStrictJson } from '../strict-json.ts';
import { judge, type Subject } from '../verdict/judge.ts';
import type { Judgement } from '../verdict/verdict.ts';
import type { StoredCollateral } from './collateral-file.ts';

/** The checks that fail where collateral was in force once and is no longer. */
const OF_COLLATERAL: ReadonlySet<string> = new Set([
  ...['snp.crl.available', 'snp.crl.current'],
  ...['tdx.tcb_info.signer', 'tdx.tcb_info.dates', 'tdx.qe_identity.signer', 'tdx.qe_identity.dates'],
  ...['tdx.root_crl.dates', 'tdx.pck_crl.dates'],
]);

const LIMITS = { depth: 16, values: 64 * 1024 };
const SECOND = 1000;

/**
 * When the collateral of rejected evidence ran out, if nothing else keeps it from being accepted: only checks of collateral fail at
 * `subject.at`, and a second before that end every check holds, those of the secret exchange included. Else undefined. It changes no outcome.
 */
export async function outlivedAt(
  subject: Subject,
  stored: StoredCollateral,
  { outcome, checks }: Pick<Judgement, 'outcome' | 'checks'>,
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

/** Ms since 1970 at which what can be read of the collateral in document and file runs out, the latest first. */
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

/** Throws collateral_unavailable for what is not Intel's. */
function nextUpdateOf(text: string): Date {
  const json = parseStrictJson(Buffer.from(text), LIMITS, unusable);
  return new JsonMembers(json, [], misplaced).get('nextUpdate', DATE);
}
