/** Whether collateral may be believed: who signed it, when it holds, and what it revokes (docs/protocol/attestation.md 10, 13.4). */
import { demand, finding, notApplicable, valueIn } from '../check.ts';
import { obtained } from '../collateral.ts';
import { period } from '../findings.ts';
import { type Certificate, verifySignedBy } from '../x509/certificate.ts';
import { isCurrent } from '../x509/crl.ts';
import { nameText, sameName } from '../x509/name.ts';
import { signerDefects } from './collateral.ts';
import {
  hex,
  judging,
  noDefects,
  rowsFrom,
  signatureFinding,
  type TdxRow,
  type TdxSubject,
  wasRead,
} from './subject.ts';

/** The checks that TCB info and QE identity share. */
function documentChecks(
  prefix: string,
  name: string,
  identity: { readonly id: string; readonly version: number },
  part: 'tcbInfo' | 'qeIdentity',
): readonly TdxRow[] {
  return rowsFrom('attestation.md 10', [
    {
      id: `${prefix}.format`,
      title: `${name} was fetched and can be read`,
      expected: 'a signed JSON body of the known form, and its issuer chain',
      code: 'collateral_unavailable',
      judge: ({ collateral }) => collateral && wasRead(collateral[part], 'as expected'),
    },
    {
      id: `${prefix}.signer`,
      title: `${name} has a signer under the trusted root`,
      expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
      judge: judging(part, async (document, { pinnedRoot, context }) => {
        const pinned = valueIn(pinnedRoot);
        if (pinned === undefined) return undefined;
        return noDefects(
          await signerDefects(document, pinned, context.now),
          nameText(document.signer.subject),
        );
      }),
    },
    {
      id: `${prefix}.signature`,
      title: `${name} is signed`,
      expected: 'ECDSA P-256 by the signer over the exact bytes',
      judge: judging(part, ({ signed, signature, signer }) =>
        signatureFinding(signer.publicKey.key, signed, signature),
      ),
    },
    {
      id: `${prefix}.identity`,
      title: `${name} is of the right kind`,
      expected: `id ${identity.id}, version ${identity.version}`,
      judge: judging(part, ({ value: { id, version } }) =>
        finding(id === identity.id && version === identity.version, `id ${id}, version ${version}`),
      ),
    },
    {
      id: `${prefix}.dates`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      expected: 'issued already, next update not yet due',
      judge: judging(part, ({ value: { issueDate, nextUpdate } }, { context: { now } }) =>
        finding(issueDate <= now && now <= nextUpdate, period(issueDate, nextUpdate, now)),
      ),
    },
    {
      id: `${prefix}.evaluation_number`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is recent enough for the manifest`,
      expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
      conditional: true,
      judge: judging(part, ({ value }, { entry: { minTcbEvaluationDataNumber: minimum } }) => {
        if (minimum === 0) return notApplicable('the manifest sets no minimum');
        const found = value.evaluationDataNumber;
        return finding(found >= minimum, String(found), `${minimum} or above`);
      }),
    },
  ]);
}

export const DOCUMENT_ROWS: readonly TdxRow[] = [
  ...documentChecks('tdx.tcb_info', 'TCB info', { id: 'TDX', version: 3 }, 'tcbInfo'),
  {
    id: 'tdx.tcb_info.platform',
    source: 'attestation.md 10',
    title: 'TCB info is about this platform',
    expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
    judge: judging('tcbInfo', ({ value: info }, { sgx }) => {
      const platform = valueIn(sgx);
      if (platform === undefined) return undefined;
      const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
      const expected = `FMSPC ${hex(platform.fmspc)}, PCE-ID ${hex(platform.pceId)}, type 0`;
      return finding(found === expected, found, expected);
    }),
  },
  ...documentChecks('tdx.qe_identity', 'QE identity', { id: 'TD_QE', version: 2 }, 'qeIdentity'),
];

/** The checks that both revocation lists share; `issuer` must have signed the list. */
function crlChecks(
  prefix: string,
  name: string,
  part: 'rootCrl' | 'pckCrl',
  issuer: (subject: TdxSubject) => Certificate | undefined,
): readonly TdxRow[] {
  return rowsFrom('attestation.md 10', [
    {
      id: `${prefix}.format`,
      title: `${name} was fetched and can be read`,
      expected: 'a DER revocation list',
      code: 'collateral_unavailable',
      judge: ({ collateral, context }) => {
        const list = collateral && demand(collateral[part]);
        return list && obtained(list, 'as expected', context.now);
      },
    },
    {
      id: `${prefix}.signature`,
      title: `${name} is signed by its issuer`,
      expected: 'the issuer of the certificates it is about, by name and by signature',
      judge: judging(part, async ({ crl }, subject) => {
        const signer = issuer(subject);
        if (signer === undefined) return undefined;
        const defects: string[] = [];
        if (!sameName(crl.issuer, signer.subject)) defects.push(`the issuer is "${nameText(crl.issuer)}"`);
        if (!(await verifySignedBy(crl, signer))) defects.push("the issuer's key did not sign it");
        if (signer.keyUsage?.has('cRLSign') === false) {
          defects.push('the issuer may not sign revocation lists');
        }
        return noDefects(defects, nameText(crl.issuer));
      }),
    },
    {
      id: `${prefix}.dates`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      expected: 'issued already, next update named and not yet due',
      judge: judging(part, ({ crl }, { context: { now } }) =>
        finding(isCurrent(crl, now), period(crl.thisUpdate, crl.nextUpdate, now)),
      ),
    },
  ]);
}

/** A check that certificates are not on a revocation list; not evaluated unless all of them were read. */
function revocationCheck(
  id: string,
  title: string,
  part: 'rootCrl' | 'pckCrl',
  certificates: (subject: TdxSubject) => readonly (Certificate | undefined)[],
): TdxRow {
  return {
    id: `tdx.revocation.${id}`,
    source: 'attestation.md 10',
    title,
    expected: 'serial number not in the revocation list',
    judge: judging(part, ({ crl }, subject) => {
      const found = certificates(subject);
      if (found.includes(undefined)) return undefined;
      const serials = found.flatMap((certificate) => certificate?.serial ?? []);
      const revoked = serials.filter((serial) => crl.revoked.has(serial));
      return noDefects(
        revoked.map((serial) => `serial ${serial} is revoked`),
        `serial ${serials.join(', ')} not revoked`,
      );
    }),
  };
}

const platformCa = ({ chain }: TdxSubject): Certificate | undefined => valueIn(chain)?.intermediate;

export const CRL_ROWS: readonly TdxRow[] = [
  ...crlChecks('tdx.root_crl', "The root's revocation list", 'rootCrl', (subject) =>
    valueIn(subject.pinnedRoot),
  ),
  ...crlChecks('tdx.pck_crl', "The platform CA's revocation list", 'pckCrl', platformCa),
  revocationCheck('platform_ca', 'The platform CA is not revoked', 'rootCrl', (subject) => [
    platformCa(subject),
  ]),
  revocationCheck(
    'tcb_signing',
    'The signers of the collateral are not revoked',
    'rootCrl',
    ({ collateral }) => [valueIn(collateral?.tcbInfo)?.signer, valueIn(collateral?.qeIdentity)?.signer],
  ),
  revocationCheck('pck', 'The PCK certificate is not revoked', 'pckCrl', ({ chain }) => [
    valueIn(chain)?.leaf,
  ]),
];
