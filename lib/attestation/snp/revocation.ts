/** The CRL of the ARK: whether AMD has revoked the pinned ASK (attestation.md 7, CRL). Always required. */
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attempt, attemptAsync, demand, valueIn } from '../attempt.ts';
import { type CheckRow, finding } from '../check.ts';
import type { CollateralSource } from '../collateral.ts';
import { NOT_YET, period } from '../period.ts';
import { MAX_EMBEDDED_CRL_BYTES, obtained, type ReadList, readRevocationList } from '../revocation-list.ts';
import { isCurrent, verifySignedBy } from '../x509/crl.ts';
import { sameName } from '../x509/name.ts';
import type { SnpRoots } from './chain.ts';

export interface ArkCrl extends ReadList {
  readonly origin: string;
}

/**
 * The CRL that came with the evidence if it parses and is in force, else a fetched one. A current one with a wrong
 * signature is not replaced: that would let an attacker choose. `fetch` = undefined means: do not ask the network.
 */
export async function obtainCrl(
  embedded: Uint8Array | undefined,
  now: Date,
  fetch: (() => ReturnType<CollateralSource['amdCrl']>) | undefined,
): Promise<Attempt<ArkCrl>> {
  const parsed =
    embedded === undefined
      ? undefined
      : valueIn(attempt(() => readRevocationList({ crl: embedded }, MAX_EMBEDDED_CRL_BYTES)));
  if (parsed !== undefined && isCurrent(parsed.crl, now)) {
    return { value: { ...parsed, origin: 'from the document' } };
  }
  if (fetch === undefined) return undefined;
  const inDocument = `the one in the document being ${whyNot(embedded, parsed, now)}`;
  return attemptAsync(async () => {
    try {
      return { ...readRevocationList(await fetch()), origin: `fetched, ${inDocument}` };
    } catch (error) {
      if (!(error instanceof PrivatemodeError)) throw error;
      throw new PrivatemodeError(error.code, `${error.message} (needed, ${inDocument})`, { cause: error });
    }
  });
}

function whyNot(embedded: Uint8Array | undefined, parsed: ReadList | undefined, now: Date): string {
  if (embedded === undefined) return 'absent';
  if (parsed === undefined) return embedded.length > MAX_EMBEDDED_CRL_BYTES ? 'too large' : 'unreadable';
  return parsed.crl.thisUpdate > now ? `not current: ${NOT_YET}` : 'not current';
}

export interface RevocationSubject {
  readonly now: Date;
  readonly roots: Attempt<SnpRoots>;
  readonly arkCrl: Attempt<ArkCrl>;
}

export const REVOCATION_ROWS: readonly CheckRow<RevocationSubject>[] = [
  {
    id: 'snp.crl.available',
    title: 'Revocation list',
    source: 'attestation.md 7 CRL no. 1',
    expected: 'a CRL of the ARK in the document, or one that can be fetched',
    judge: ({ arkCrl, now }) => {
      const found = demand(arkCrl);
      return found && obtained(found, found.origin, now);
    },
  },
  {
    id: 'snp.crl.signature',
    title: 'Signature on the revocation list',
    source: 'attestation.md 7 CRL no. 2',
    expected: 'issued and signed by the pinned ARK',
    judge: ({ arkCrl, roots }) => {
      const crl = valueIn(arkCrl)?.crl;
      const ark = valueIn(roots)?.ark;
      if (crl === undefined || ark === undefined) return undefined;
      if (!sameName(crl.issuer, ark.subject)) return finding(false, 'another issuer');
      const signed = (ark.keyUsage === undefined || ark.keyUsage.has('cRLSign')) && verifySignedBy(crl, ark);
      return finding(signed, signed ? 'valid' : 'the signature does not verify');
    },
  },
  {
    id: 'snp.crl.current',
    title: 'Freshness of the revocation list',
    source: 'attestation.md 7 CRL no. 4',
    expected: 'thisUpdate has passed, nextUpdate has not',
    judge: ({ arkCrl, now }) => {
      const crl = valueIn(arkCrl)?.crl;
      if (crl === undefined) return undefined;
      return finding(isCurrent(crl, now), period(crl.thisUpdate, crl.nextUpdate, now));
    },
  },
  {
    id: 'snp.crl.ask',
    title: 'The ASK is not revoked',
    source: 'attestation.md 7 CRL no. 3',
    expected: 'the serial number of the pinned ASK is not on the list',
    judge: ({ arkCrl, roots }) => {
      const crl = valueIn(arkCrl)?.crl;
      const ask = valueIn(roots)?.ask;
      if (crl === undefined || ask === undefined) return undefined;
      const revoked = crl.revoked.has(ask.serial);
      return finding(!revoked, `${ask.serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  },
];
