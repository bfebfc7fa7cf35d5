/** Whether the revocation lists may be believed, and what they revoke (attestation.md 10, 13.4). */
import { type Attempt, demand, valueIn } from '../attempt.ts';
import { finding } from '../check.ts';
import { period } from '../period.ts';
import { obtained, type ReadList } from '../revocation-list.ts';
import { type Certificate, verifySignedBy } from '../x509/certificate.ts';
import { type Crl, isCurrent } from '../x509/crl.ts';
import { nameText, sameName } from '../x509/name.ts';
import type { Collateral } from './collateral.ts';
import { noDefects, type TdxRow, type TdxSubject } from './subject.ts';

/** The checks that both revocation lists share; `issuer` is who must have signed the list. */
function crlChecks(
  prefix: string,
  name: string,
  pick: (collateral: Collateral) => Attempt<ReadList>,
  issuer: (subject: TdxSubject) => Certificate | undefined,
): readonly TdxRow[] {
  const crlOf = ({ collateral }: TdxSubject): Crl | undefined => collateral && valueIn(pick(collateral))?.crl;
  return [
    {
      id: `${prefix}.format`,
      source: 'attestation.md 10',
      title: `${name} was fetched and can be read`,
      expected: 'a DER revocation list',
      code: 'collateral_unavailable',
      judge: ({ collateral, context }) => {
        const list = collateral && demand(pick(collateral));
        return list && obtained(list, 'as expected', context.now);
      },
    },
    {
      id: `${prefix}.signature`,
      source: 'attestation.md 10',
      title: `${name} is signed by its issuer`,
      expected: 'the issuer of the certificates it is about, by name and by signature',
      judge: (subject) => {
        const [crl, signer] = [crlOf(subject), issuer(subject)];
        if (crl === undefined || signer === undefined) return undefined;
        const defects: string[] = [];
        if (!sameName(crl.issuer, signer.subject)) defects.push(`the issuer is "${nameText(crl.issuer)}"`);
        if (!verifySignedBy(crl, signer)) defects.push("the issuer's key did not sign it");
        if (signer.keyUsage?.has('cRLSign') === false)
          defects.push('the issuer may not sign revocation lists');
        return noDefects(defects, nameText(crl.issuer));
      },
    },
    {
      id: `${prefix}.dates`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      expected: 'issued already, next update named and not yet due',
      judge: (subject) => {
        const [crl, { now }] = [crlOf(subject), subject.context];
        return crl && finding(isCurrent(crl, now), period(crl.thisUpdate, crl.nextUpdate, now));
      },
    },
  ];
}

/** A check that certificates are not on a revocation list. */
function revocationCheck(
  id: string,
  title: string,
  pick: (collateral: Collateral) => Attempt<ReadList>,
  certificates: (subject: TdxSubject) => readonly (Certificate | undefined)[],
): TdxRow {
  return {
    id,
    source: 'attestation.md 10',
    title,
    expected: 'serial number not in the revocation list',
    judge: (subject) => {
      const crl = subject.collateral && valueIn(pick(subject.collateral))?.crl;
      const found = certificates(subject);
      if (crl === undefined || found.some((certificate) => certificate === undefined)) return undefined;
      const serials = found.flatMap((certificate) => certificate?.serial ?? []);
      const revoked = serials.filter((serial) => crl.revoked.has(serial));
      return noDefects(
        revoked.map((serial) => `serial ${serial} is revoked`),
        `serial ${serials.join(', ')} not revoked`,
      );
    },
  };
}

export const CRL_ROWS: readonly TdxRow[] = [
  ...crlChecks(
    'tdx.root_crl',
    "The root's revocation list",
    ({ rootCrl }) => rootCrl,
    ({ pinnedRoot }) => valueIn(pinnedRoot),
  ),
  ...crlChecks(
    'tdx.pck_crl',
    "The platform CA's revocation list",
    ({ pckCrl }) => pckCrl,
    ({ chain }) => valueIn(chain)?.intermediate,
  ),
  revocationCheck(
    'tdx.revocation.platform_ca',
    'The platform CA is not revoked',
    ({ rootCrl }) => rootCrl,
    ({ chain }) => [valueIn(chain)?.intermediate],
  ),
  revocationCheck(
    'tdx.revocation.tcb_signing',
    'The signers of the collateral are not revoked',
    ({ rootCrl }) => rootCrl,
    ({ collateral }) => [valueIn(collateral?.tcbInfo)?.signer, valueIn(collateral?.qeIdentity)?.signer],
  ),
  revocationCheck(
    'tdx.revocation.pck',
    'The PCK certificate is not revoked',
    ({ pckCrl }) => pckCrl,
    ({ chain }) => [valueIn(chain)?.leaf],
  ),
];
