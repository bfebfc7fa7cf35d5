/**
 * Answers whether the hardware itself states under which manifest it runs, whatever the checks find wrong
 * with the document. The hardware states it if the report data bind our nonce, the document's manifests and
 * the document's CAs, and if a key that chains to a pinned root signed the report. The report data do not
 * bind the rest of the document (policies, revocation lists). Without such hardware, nobody can make a
 * service look as if its manifest had changed (docs/decisions.md 14).
 */
import { type Check, type CheckRow, runChecks } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import { type AttestationDocument, reportData, transitionDigest } from './document.ts';
import type { EvidenceContext, TrustRoots } from './evidence.ts';

/**
 * The context for judging whether evidence is authentic. It expects the report data of this document,
 * computed over the document's own manifests. Dates and revocation are not judged.
 */
export function authenticContext(
  document: AttestationDocument,
  { nonce, roots }: { readonly nonce: Uint8Array; readonly roots: TrustRoots },
): EvidenceContext {
  const transition = transitionDigest(document.manifests);
  return {
    expectedReportData: reportData({ ...document, nonce, transition }),
    coordinatorHashes: [],
    roots,
    collateral: NOTHING_FETCHED,
    now: new Date(0), // no row that is judged here reads a date
  };
}

const nothing = (): never => {
  throw new Error('nothing is fetched to find out whether evidence is authentic');
};
const NOTHING_FETCHED: CollateralSource = {
  amdVcek: nothing,
  amdCrl: nothing,
  intelTcbInfo: nothing,
  intelQeIdentity: nothing,
  intelPckCrl: nothing,
  intelRootCrl: nothing,
};

/**
 * Makes a function that judges a subject by the rows with these ids. Throws if the table lacks one of them.
 */
export function judgeOf<Subject>(
  rows: readonly CheckRow<Subject>[],
  ids: readonly string[],
): (subject: Subject) => Promise<readonly Check[]> {
  const chosen = ids.map((id) => {
    const row = rows.find((each) => each.id === id);
    if (row === undefined) throw new Error(`no check ${id}`);
    return row;
  });
  return (subject) => runChecks(chosen, subject);
}

export const allPass = (checks: readonly Check[]): boolean =>
  checks.every(({ outcome }) => outcome === 'pass');
