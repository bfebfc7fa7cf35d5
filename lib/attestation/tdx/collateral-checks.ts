/**
 * Checks what Intel's collateral says: whether it may be believed, what it revokes, and whether platform, TDX
 * module and quoting enclave are genuine and up to date (docs/protocol/attestation.md 10, 13.3, 13.4).
 */
import { type Checks, type Finding, finding, hex, notApplicable, oneOf, rowsFrom } from '../check.ts';
import { asCollateral, currentList, howObtained, obtained, readFetchedList } from '../collateral.ts';
import { littleEndian } from '../protobuf.ts';
import { inForce, issuedBy } from '../validity.ts';
import { type Certificate, crlDistributionPoint, nameText } from '../x509.ts';
import { judgeSigner, noDefects } from './chain.ts';
import type { EntrySubject } from './policy-checks.ts';
import type { TdQuoteBody } from './quote.ts';
import { signatureFinding } from './quote-checks.ts';
import {
  platformLevel,
  type QeIdentity,
  readQeDocument,
  readTcbDocument,
  type SignedDocument,
  svnLevel,
  type TcbInfo,
} from './tcb-info.ts';

/** Evidence whose signer is known, a reference value, and one of the two documents that Intel signs. */
interface DocumentSubject<T = TcbInfo | QeIdentity> extends EntrySubject {
  readonly document: SignedDocument<T>;
}

type Rows<Subject> = Parameters<typeof rowsFrom<Subject>>[1];

/** The checks that TCB info and QE identity share. */
const documentRows = (prefix: string, name: string, id: string, version: number): Rows<DocumentSubject> => ({
  [`${prefix}.format`]: {
    title: `${name} was fetched and can be read`,
    expected: 'a signed JSON body of the known form, and its issuer chain',
    code: 'collateral_unavailable',
    judge: ({ document }) => finding(true, howObtained(document, 'as expected')),
  },
  [`${prefix}.signer`]: {
    title: `${name} has a signer under the trusted root`,
    expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
    judge: (subject) => judgeSigner(subject.document.chain, subject),
  },
  [`${prefix}.signature`]: {
    title: `${name} is signed`,
    expected: 'ECDSA P-256 by the signer over the exact bytes',
    judge: ({ document: { signed, signature, chain } }) =>
      signatureFinding(chain[0].publicKey, signed, signature),
  },
  [`${prefix}.identity`]: {
    title: `${name} is of the right kind`,
    expected: `id ${id}, version ${version}`,
    judge: ({ document: { value } }) =>
      finding(value.id === id && value.version === version, `id ${value.id}, version ${value.version}`),
  },
  [`${prefix}.dates`]: {
    source: 'attestation.md 10, 13.4',
    title: `${name} is in force`,
    expected: 'issued already, next update not yet due',
    judge: ({ document: { value }, now }) =>
      inForce(now, { notBefore: value.issueDate, notAfter: value.nextUpdate }),
  },
  [`${prefix}.evaluation_number`]: {
    source: 'attestation.md 10, 13.4',
    title: `${name} is recent enough for the manifest`,
    expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
    conditional: true,
    judge: ({ document: { value }, entry: { minTcbEvaluationDataNumber: minimum } }) => {
      if (minimum === 0) return notApplicable('the manifest sets no minimum');
      const { evaluationDataNumber: found } = value;
      return finding(found >= minimum, `${found}`, `${minimum} or above`);
    },
  },
});

const UP_TO_DATE = 'UpToDate';

/** Refuses all but `UpToDate`: `SWHardeningNeeded` and such ask for work that this program cannot verify. */
const judgeLevel = (level: { readonly status: string } | undefined): Finding =>
  finding(level?.status === UP_TO_DATE, level?.status ?? 'no level is reached');

/** Compares the bits under the mask; fails unless all three have the same length. */
export function underMask(found: Uint8Array, expected: QeIdentity['miscSelect']): Finding {
  const { attributes, attributesMask: mask } = expected;
  const sameLength = found.length === mask.length && found.length === attributes.length;
  const holds = sameLength && found.every((byte, i) => (byte & (mask[i] ?? 0)) === attributes[i]);
  return finding(holds, hex(found), `${hex(attributes)} under ${hex(mask)}`);
}

/** Judges by the identity of the module's major version, TEE_TCB_SVN[1]; version 0 has none of its own. */
const byModuleVersion =
  (judge: (identity: TcbInfo['moduleIdentities'][number], body: TdQuoteBody) => Finding) =>
  ({ body, document }: DocumentSubject<TcbInfo>): Finding => {
    const major = body.teeTcbSvn[1];
    if (major === 0) return notApplicable('TDX module of major version 0');
    const id = `TDX_${major?.toString(16).padStart(2, '0')}`;
    const identity = document.value.moduleIdentities.find((each) => each.id === id);
    return identity ? judge(identity, body) : finding(false, `TCB info knows no module version ${major}`);
  };

const TCB_ROWS = rowsFrom<DocumentSubject<TcbInfo>>('attestation.md 10', {
  ...documentRows('tdx.tcb_info', 'TCB info', 'TDX', 3),
  'tdx.tcb_info.platform': {
    title: 'TCB info is about this platform',
    expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
    judge: ({ document: { value: info }, sgx: { fmspc, pceId } }) => {
      const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
      const expected = `FMSPC ${hex(fmspc)}, PCE-ID ${hex(pceId)}, type 0`;
      return finding(found === expected, found, expected);
    },
  },
  'tdx.tcb.module_signer': {
    title: 'The TDX module is signed by Intel',
    expected: 'MRSIGNERSEAM of TCB info',
    judge: ({ body, document }) => oneOf(body.mrSignerSeam, [document.value.module.mrSigner]),
  },
  'tdx.tcb.module_attributes': {
    title: 'The TDX module has the attributes of a production module',
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: ({ body, document: { value } }) => underMask(body.seamAttributes, value.module),
  },
  'tdx.tcb.module_identity': {
    title: 'The TDX module is of a version that TCB info describes',
    expected: 'signer and attributes of that version',
    conditional: true,
    judge: byModuleVersion((identity, { mrSignerSeam, seamAttributes }) => {
      const isSigned = hex(mrSignerSeam) === hex(identity.mrSigner);
      const holds = isSigned && underMask(seamAttributes, identity).outcome === 'pass';
      return finding(holds, holds ? identity.id : `${identity.id} has another signer or other attributes`);
    }),
  },
  'tdx.tcb.platform_status': {
    source: 'attestation.md 10, 13.3',
    title: 'The platform is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ body, document, sgx }) => judgeLevel(platformLevel(document.value, sgx, body.teeTcbSvn)),
  },
  'tdx.tcb.module_status': {
    title: 'The TDX module is up to date',
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: byModuleVersion(({ levels }, { teeTcbSvn }) => judgeLevel(svnLevel(levels, teeTcbSvn[0] ?? 0))),
  },
});

const QE_ROWS = rowsFrom<DocumentSubject<QeIdentity>>('attestation.md 10', {
  ...documentRows('tdx.qe_identity', 'QE identity', 'TD_QE', 2),
  'tdx.qe.misc_select': {
    title: 'The quoting enclave has the expected extended features',
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: ({ qe: { qeReport }, document: { value } }) =>
      underMask(littleEndian(qeReport.miscSelect, 4), value.miscSelect),
  },
  'tdx.qe.attributes': {
    title: 'The quoting enclave has the attributes of a production enclave',
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: ({ qe: { qeReport }, document: { value } }) => underMask(qeReport.attributes, value),
  },
  'tdx.qe.signer': {
    title: 'The quoting enclave is signed by Intel',
    expected: 'MRSIGNER of QE identity',
    judge: ({ qe: { qeReport }, document }) => oneOf(qeReport.mrSigner, [document.value.mrSigner]),
  },
  'tdx.qe.product': {
    title: 'The quoting enclave is the one for trust domains',
    expected: 'ISVPRODID of QE identity',
    judge: ({ qe: { qeReport }, document: { value } }) =>
      finding(qeReport.isvProdId === value.isvProdId, `${qeReport.isvProdId}`, `${value.isvProdId}`),
  },
  'tdx.qe.status': {
    title: 'The quoting enclave is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ qe: { qeReport }, document }) => judgeLevel(svnLevel(document.value.levels, qeReport.isvSvn)),
  },
});

interface ListSubject {
  readonly list: ReturnType<typeof readFetchedList>;
  /** Must have signed the list. */
  readonly issuer: Certificate;
  /** Must not be on the list. */
  readonly issued: readonly Certificate[];
  readonly now: Date;
}

/** The checks that both revocation lists share. */
const listRows = (prefix: string, name: string): Rows<ListSubject> => ({
  [`${prefix}.format`]: {
    title: `${name} was fetched and can be read`,
    expected: 'a DER revocation list',
    code: 'collateral_unavailable',
    judge: ({ list, now }) => obtained(list, 'as expected', now),
  },
  [`${prefix}.signature`]: {
    title: `${name} is signed by its issuer`,
    expected: 'the issuer of the certificates it is about, by name and by signature',
    judge: async ({ list: { crl }, issuer }) => {
      const { outcome, found } = await issuedBy(crl, issuer);
      const mayNot = issuer.keyUsage?.has('cRLSign') === false && 'its issuer may not sign revocation lists';
      return noDefects([outcome === 'fail' && found, mayNot], nameText(crl.issuer));
    },
  },
  [`${prefix}.dates`]: {
    source: 'attestation.md 10, 13.4',
    title: `${name} is in force`,
    expected: 'issued already, next update named and not yet due',
    judge: ({ list: { crl }, now }) => currentList(crl, now),
  },
});

/** None of the certificates is on the list. */
const notRevoked = (title: string): Rows<ListSubject>[string] => ({
  title,
  expected: 'serial number not in the revocation list',
  judge: ({ list: { crl }, issued }) => {
    const serials = issued.map(({ serial }) => serial);
    const revoked = serials.filter((serial) => crl.revoked.has(serial));
    if (revoked.length > 0) return finding(false, `serial ${revoked.join(', ')} is revoked`);
    return finding(true, `serial ${serials.join(', ')} not revoked`);
  },
});

const ROOT_CRL_ROWS = rowsFrom<ListSubject>('attestation.md 10', {
  ...listRows('tdx.root_crl', "The root's revocation list"),
  'tdx.revocation.platform_ca': notRevoked('The platform CA is not revoked'),
});
const PCK_CRL_ROWS = rowsFrom<ListSubject>('attestation.md 10', {
  ...listRows('tdx.pck_crl', "The platform CA's revocation list"),
  'tdx.revocation.pck': notRevoked('The PCK certificate is not revoked'),
});
const SIGNING_ROWS = rowsFrom<ListSubject>('attestation.md 10', {
  'tdx.revocation.tcb_signing': notRevoked('The signers of the collateral are not revoked'),
});

export const COLLATERAL_ROWS = [TCB_ROWS, QE_ROWS, ROOT_CRL_ROWS, PCK_CRL_ROWS, SIGNING_ROWS].flat();

/** Fetches all collateral of the platform. What came is judged, whatever else did not come. */
export async function judgeCollateral(checks: Checks, subject: EntrySubject): Promise<boolean> {
  const { sgx, entry, chain, pinned, now, collateral } = subject;
  const [pck, platformCa] = chain;
  const { minTcbEvaluationDataNumber: evaluationDataNumber } = entry;
  // Without a number, Intel serves its default set.
  const query = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    checks.read('tdx.tcb_info.format', () =>
      collateral.intelTcbInfo({ fmspc: hex(sgx.fmspc), ...query }).then(readTcbDocument),
    ),
    checks.read('tdx.qe_identity.format', () => collateral.intelQeIdentity(query).then(readQeDocument)),
    checks.read('tdx.pck_crl.format', () => collateral.intelPckCrl().then(readFetchedList)),
  ]);
  // The root certificate names the address of its list, so nobody asks there before it is trusted.
  const isTrusted = qeIdentity && (await judgeSigner(qeIdentity.chain, subject)).outcome === 'pass';
  const rootCrl =
    isTrusted &&
    (await checks.read('tdx.root_crl.format', async () => {
      const url = asCollateral('the root certificate', () => crlDistributionPoint(qeIdentity.chain[1]));
      return readFetchedList(await collateral.intelRootCrl({ url }));
    }));
  const ofRoot = rootCrl && { list: rootCrl, issuer: pinned, now };
  const signers = tcbInfo && qeIdentity && [tcbInfo.chain[0], qeIdentity.chain[0]];
  const held = [
    tcbInfo && (await checks.run(TCB_ROWS, { ...subject, document: tcbInfo })),
    qeIdentity && (await checks.run(QE_ROWS, { ...subject, document: qeIdentity })),
    ofRoot && (await checks.run(ROOT_CRL_ROWS, { ...ofRoot, issued: [platformCa] })),
    pckCrl && (await checks.run(PCK_CRL_ROWS, { list: pckCrl, issuer: platformCa, issued: [pck], now })),
    ofRoot && signers && (await checks.run(SIGNING_ROWS, { ...ofRoot, issued: signers })),
  ];
  return held.every((holds) => holds === true);
}
