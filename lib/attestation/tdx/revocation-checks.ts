/** Checks Intel's certificate revocation lists (docs/protocol/attestation.md 10, 13.4). */
import { finding, type Rows, row } from '../check.ts';
import { currentList, obtained, type readFetchedList } from '../collateral.ts';
import { issuedBy } from '../validity.ts';
import { type Certificate, nameText } from '../x509.ts';
import { noDefects } from './chain.ts';

export interface ListSubject {
  readonly list: ReturnType<typeof readFetchedList>;
  /** The certificate whose key must have signed the certificate revocation list. */
  readonly issuer: Certificate;
  /** The certificates that must not be on the certificate revocation list. */
  readonly issued: readonly Certificate[];
  readonly now: Date;
}

/** Makes the checks that are the same for both certificate revocation lists. */
const listRows = (prefix: string, name: string): Rows<ListSubject> => [
  row(`${prefix}.format`, `${name} was fetched and can be read`, '10', {
    expected: 'a DER revocation list',
    code: 'collateral_unavailable',
    judge: ({ list, now }) => obtained(list, 'as expected', now),
  }),
  row(`${prefix}.signature`, `${name} is signed by its issuer`, '10', {
    expected: 'the issuer of the certificates it is about, by name and by signature',
    judge: async ({ list: { crl }, issuer }) => {
      const { outcome, found } = await issuedBy(crl, issuer);
      const mayNot = issuer.keyUsage?.has('cRLSign') === false && 'its issuer may not sign revocation lists';
      return noDefects([outcome === 'fail' && found, mayNot], nameText(crl.issuer));
    },
  }),
  row(`${prefix}.dates`, `${name} is in force`, '10, 13.4', {
    expected: 'issued already, next update named and not yet due',
    judge: ({ list: { crl }, now }) => currentList(crl, now),
  }),
];

/** Checks that none of the `issued` certificates is on the certificate revocation list. */
const notRevoked = (id: string, who: string) =>
  row<ListSubject>(`tdx.revocation.${id}`, `${who} not revoked`, '10', {
    expected: 'serial number not in the revocation list',
    judge: ({ list: { crl }, issued }) => {
      const serials = issued.map(({ serial }) => serial);
      const revoked = serials.filter((serial) => crl.revoked.has(serial));
      if (revoked.length > 0) return finding(false, `serial ${revoked.join(', ')} is revoked`);
      return finding(true, `serial ${serials.join(', ')} not revoked`);
    },
  });

export const ROOT_CRL_ROWS: Rows<ListSubject> = [
  ...listRows('tdx.root_crl', "The root's revocation list"),
  notRevoked('platform_ca', 'The platform CA is'),
];
export const PCK_CRL_ROWS: Rows<ListSubject> = [
  ...listRows('tdx.pck_crl', "The platform CA's revocation list"),
  notRevoked('pck', 'The PCK certificate is'),
];
export const SIGNING_ROWS = [notRevoked('tcb_signing', 'The signers of the collateral are')];
