/** Whether TCB info and QE identity may be believed: who signed them, and when they hold (attestation.md 10, 13.4). */
import { verifyEcdsa } from '../../crypto/signature.ts';
import { type Attempt, valueIn } from '../attempt.ts';
import { type Finding, finding, notApplicable } from '../check.ts';
import { period } from '../period.ts';
import { nameText } from '../x509/name.ts';
import { type Collateral, type SignedDocument, signerDefects } from './collateral.ts';
import { hex, noDefects, type TdxRow, type TdxSubject, wasRead } from './subject.ts';

type Document = SignedDocument<{
  readonly id: string;
  readonly version: number;
  readonly issueDate: Date;
  readonly nextUpdate: Date;
  readonly evaluationDataNumber: number;
}>;

/** The checks that TCB info and QE identity share. */
function documentChecks(
  prefix: string,
  name: string,
  identity: { readonly id: string; readonly version: number },
  pick: (collateral: Collateral) => Attempt<Document>,
): readonly TdxRow[] {
  const judge =
    (read: (document: Document, subject: TdxSubject) => Finding | undefined) =>
    (subject: TdxSubject): Finding | undefined => {
      const document = subject.collateral && valueIn(pick(subject.collateral));
      return document && read(document, subject);
    };
  return [
    {
      id: `${prefix}.format`,
      source: 'attestation.md 10',
      title: `${name} was fetched and can be read`,
      expected: 'a signed JSON body of the known form, and its issuer chain',
      code: 'collateral_unavailable',
      judge: ({ collateral }) => collateral && wasRead(pick(collateral), 'as expected'),
    },
    {
      id: `${prefix}.signer`,
      source: 'attestation.md 10',
      title: `${name} has a signer under the trusted root`,
      expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
      judge: judge((document, { pinnedRoot, context }) => {
        const pinned = valueIn(pinnedRoot);
        if (pinned === undefined) return undefined;
        return noDefects(signerDefects(document, pinned, context.now), nameText(document.signer.subject));
      }),
    },
    {
      id: `${prefix}.signature`,
      source: 'attestation.md 10',
      title: `${name} is signed`,
      expected: 'ECDSA P-256 by the signer over the exact bytes',
      judge: judge(({ signed: data, signature, signer }) => {
        const key = signer.publicKey.key;
        const holds = verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature });
        return finding(holds, holds ? 'valid' : 'not valid');
      }),
    },
    {
      id: `${prefix}.identity`,
      source: 'attestation.md 10',
      title: `${name} is of the right kind`,
      expected: `id ${identity.id}, version ${identity.version}`,
      judge: judge(({ value: { id, version } }) =>
        finding(id === identity.id && version === identity.version, `id ${id}, version ${version}`),
      ),
    },
    {
      id: `${prefix}.dates`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      expected: 'issued already, next update not yet due',
      judge: judge(({ value: { issueDate, nextUpdate } }, { context: { now } }) =>
        finding(issueDate <= now && now <= nextUpdate, period(issueDate, nextUpdate, now)),
      ),
    },
    {
      id: `${prefix}.evaluation_number`,
      source: 'attestation.md 10, 13.4',
      title: `${name} is recent enough for the manifest`,
      expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
      conditional: true,
      judge: judge(({ value }, { entry: { minTcbEvaluationDataNumber: minimum } }) => {
        if (minimum === 0) return notApplicable('the manifest sets no minimum');
        const found = value.evaluationDataNumber;
        return finding(found >= minimum, String(found), `${minimum} or above`);
      }),
    },
  ];
}

export const DOCUMENT_ROWS: readonly TdxRow[] = [
  ...documentChecks('tdx.tcb_info', 'TCB info', { id: 'TDX', version: 3 }, ({ tcbInfo }) => tcbInfo),
  {
    id: 'tdx.tcb_info.platform',
    source: 'attestation.md 10',
    title: 'TCB info is about this platform',
    expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
    judge: ({ collateral, sgx }) => {
      const [info, platform] = [valueIn(collateral?.tcbInfo)?.value, valueIn(sgx)];
      if (info === undefined || platform === undefined) return undefined;
      const { fmspc, pceId } = platform;
      const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
      const expected = `FMSPC ${hex(fmspc)}, PCE-ID ${hex(pceId)}, type 0`;
      return finding(found === expected, found, expected);
    },
  },
  ...documentChecks(
    'tdx.qe_identity',
    'QE identity',
    { id: 'TD_QE', version: 2 },
    ({ qeIdentity }) => qeIdentity,
  ),
];
