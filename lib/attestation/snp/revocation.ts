/**
 * The revocation list of the pinned ARK (docs/protocol/attestation.md 7): the one in the document, or a
 * fetched one.
 */
import { PrivatemodeError } from '../../errors.ts';
import { attempt, finding, rowsFrom } from '../check.ts';
import {
  type CollateralSource,
  currentList,
  MAX_EMBEDDED_CRL_BYTES,
  obtained,
  type ReadList,
  readFetchedList,
  readRevocationList,
} from '../collateral.ts';
import { issuedBy, NOT_YET, verified } from '../validity.ts';
import type { Roots } from './endorsement.ts';

/** A list, and for a person: whether it is the one in the document, and if not, why not. */
export type ArkCrl = ReadList & { readonly embedded: boolean; readonly origin: string };

/**
 * Obtains the list: the one in the evidence if it can be read and is in force, else one that `fetch` fetches.
 * A current list with a wrong signature is not replaced: the sender of the evidence could otherwise choose
 * between the two. Throws collateral_unavailable.
 */
export async function obtainArkCrl(
  crl: Uint8Array | undefined,
  now: Date,
  fetch: () => ReturnType<CollateralSource['amdCrl']>,
): Promise<ArkCrl> {
  const embedded = crl && attempt(() => readRevocationList({ crl }, MAX_EMBEDDED_CRL_BYTES)).value;
  const current = embedded && currentList(embedded.crl, now);
  // At nextUpdate itself, another list is due already (docs/protocol/attestation.md 7, CRL no. 1).
  if (current?.outcome === 'pass' && (embedded?.crl.nextUpdate ?? now) > now) {
    return { ...(embedded as ReadList), embedded: true, origin: 'from the document' };
  }
  const isEarly = current?.detail?.clock === 'early';
  const inDocument = `the one in the document being ${isEarly ? `not current: ${NOT_YET}` : whyNot(crl, embedded)}`;
  try {
    return { ...readFetchedList(await fetch()), embedded: false, origin: `fetched, ${inDocument}` };
  } catch (cause) {
    if (!(cause instanceof PrivatemodeError)) throw cause;
    const detail = isEarly ? current.detail : cause.detail;
    throw new PrivatemodeError(cause.code, `${cause.message} (needed, ${inDocument})`, { cause, detail });
  }
}

function whyNot(bytes: Uint8Array | undefined, read: ReadList | undefined): string {
  if (bytes === undefined) return 'absent';
  if (read === undefined) return bytes.length > MAX_EMBEDDED_CRL_BYTES ? 'too large' : 'unreadable';
  return 'not current';
}

interface CrlSubject {
  readonly arkCrl: ArkCrl;
  readonly roots: Roots;
  readonly now: Date;
}

export const CRL_ROWS = rowsFrom<CrlSubject>('attestation.md 7', {
  'snp.crl.available': {
    title: 'Revocation list',
    about: 'collateral date',
    source: 'attestation.md 7 CRL no. 1',
    expected: 'a CRL of the ARK in the document, or one that can be fetched',
    judge: ({ arkCrl, now }) => obtained(arkCrl, arkCrl.origin, now),
  },
  'snp.crl.signature': {
    title: 'Signature on the revocation list',
    about: 'collateral signature',
    source: 'attestation.md 7 CRL no. 2',
    expected: 'issued and signed by the pinned ARK',
    judge: ({ arkCrl: { crl }, roots: { ark } }) =>
      ark.keyUsage?.has('cRLSign') === false ? verified(false) : issuedBy(crl, ark),
  },
  'snp.crl.current': {
    title: 'Freshness of the revocation list',
    about: 'collateral date',
    source: 'attestation.md 7 CRL no. 4',
    expected: 'thisUpdate has passed, nextUpdate has not',
    judge: ({ arkCrl: { crl }, now }) => currentList(crl, now),
  },
  'snp.crl.age': {
    title: 'Age of the revocation list',
    source: 'attestation.md 7 CRL no. 5',
    expected: 'shown, with who chose the list; later revocations are unknown',
    judge: ({ arkCrl: { crl, embedded } }) => {
      const whose = embedded ? 'chosen by whoever sent the evidence' : 'not from the evidence';
      return finding(true, `issued ${crl.thisUpdate.toISOString()}; ${whose}`);
    },
  },
  'snp.crl.ask': {
    title: 'The ASK is not revoked',
    source: 'attestation.md 7 CRL no. 3',
    expected: 'the serial number of the pinned ASK is not on the list',
    judge: ({ arkCrl: { crl }, roots: { ask } }) => {
      const revoked = crl.revoked.has(ask.serial);
      return finding(!revoked, `${ask.serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  },
});
