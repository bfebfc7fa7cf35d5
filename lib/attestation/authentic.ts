/**
 * Whether the hardware itself says under which manifest it runs, whatever the checks find wrong with the document: the report data bind our
 * nonce, the document's manifests and its CAs, and the report is signed under a key that chains to a pinned root. The rest of the document
 * (policies, revocation lists) is not bound. Without such hardware nobody can make a service look as if its manifest had changed
 * (docs/decisions.md 14).
 */
import { type Check, type CheckRow, runChecks } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import { type AttestationDocument, reportData, transitionDigest } from './document.ts';
import type { EvidenceContext, TrustRoots } from './evidence.ts';

/** What the hardware has to have said: the report data of this document, of its own manifests. Dates and revocation do not belong to it. */
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
    now: new Date(0), // no row of a date is judged
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

/** Judges the rows with these ids, which have to be in the table. */
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
