/**
 * Intel's TCB info and QE identity: which versions of platform, TDX module and quoting enclave are up to date
 * (docs/protocol/attestation.md 10).
 */
import { asCollateral, type SignedCollateral } from '../collateral.ts';
import { DATE, hex, integer, type JsonMembers, TEXT } from '../json-members.ts';
import type { Certificate } from '../x509.ts';
import { readCertificates } from './chain.ts';
import type { SgxExtension } from './sgx-extension.ts';
import { misplaced, readSignedJson, unusable } from './signed-json.ts';

export type TcbInfo = Readonly<ReturnType<typeof readTcbInfo>>;
export type QeIdentity = Readonly<ReturnType<typeof readQeIdentity>>;
export type VersionedModuleIdentity = TcbInfo['moduleIdentities'][number];

/** The one status that is accepted, for every level. */
export const UP_TO_DATE = 'UpToDate';
const COMPONENTS = 16;

/** Reads the value of `tcbInfo`. Throws collateral_unavailable for a member that is missing or misshaped. */
export function readTcbInfo(info: JsonMembers) {
  const identities = info.members.has('tdxModuleIdentities') ? info.objects('tdxModuleIdentities') : [];
  return {
    ...readIssue(info),
    tcbType: info.get('tcbType', integer(0xffff)),
    fmspc: info.get('fmspc', hex(6)),
    pceId: info.get('pceId', hex(2)),
    module: readSigner(info.object('tdxModule'), 48, 8),
    /** One per major version of the TDX module; `id` is `TDX_` and that version in two hex digits. */
    moduleIdentities: identities.map((identity) => ({
      ...readSigner(identity, 48, 8),
      id: identity.get('id', TEXT),
      levels: readSvnLevels(identity),
    })),
    /** Best first; at least one. */
    levels: readLevels(info, readPlatformLevel),
  };
}

/** Reads the value of `enclaveIdentity`, as readTcbInfo does. */
export function readQeIdentity(identity: JsonMembers) {
  return {
    ...readIssue(identity),
    /** Little-endian, as in the enclave report. */
    miscSelect: identity.get('miscselect', hex(4)),
    miscSelectMask: identity.get('miscselectMask', hex(4)),
    ...readSigner(identity, 32, 16),
    isvProdId: identity.get('isvprodid', integer(0xffff)),
    levels: readSvnLevels(identity),
  };
}

/** What both documents state about themselves: kind, version and dates. */
function readIssue(document: JsonMembers) {
  return {
    id: document.get('id', TEXT),
    version: document.get('version', integer(0xffff)),
    issueDate: document.get('issueDate', DATE),
    nextUpdate: document.get('nextUpdate', DATE),
    evaluationDataNumber: document.get('tcbEvaluationDataNumber', integer(0xffff_ffff)),
  };
}

/** Who signed a module or an enclave, and its attributes under a mask; lengths in bytes. */
function readSigner(signed: JsonMembers, signerLength: number, attributesLength: number) {
  return {
    mrSigner: signed.get('mrsigner', hex(signerLength)),
    attributes: signed.get('attributes', hex(attributesLength)),
    attributesMask: signed.get('attributesMask', hex(attributesLength)),
  };
}

/** Security versions, best first. Each has the status of modules or enclaves of at least that version. */
function readSvnLevels(owner: JsonMembers) {
  return readLevels(owner, (level) => ({
    isvSvn: level.object('tcb').get('isvsvn', integer(0xffff)),
    status: level.get('tcbStatus', TEXT),
  }));
}

function readPlatformLevel(level: JsonMembers) {
  const tcb = level.object('tcb');
  const components = (name: string): readonly number[] => {
    const list = tcb.objects(name);
    if (list.length !== COMPONENTS)
      throw misplaced(undefined, tcb.at(name), { expected: `a list of ${COMPONENTS}` });
    return list.map((component) => component.get('svn', integer(0xff)));
  };
  return {
    sgxComponents: components('sgxtcbcomponents'),
    tdxComponents: components('tdxtcbcomponents'),
    pceSvn: tcb.get('pcesvn', integer(0xffff)),
    status: level.get('tcbStatus', TEXT),
  };
}

function readLevels<T>(owner: JsonMembers, read: (level: JsonMembers) => T): readonly T[] {
  const levels = owner.objects('tcbLevels').map(read);
  if (levels.length === 0) throw unusable('a list of TCB levels is empty');
  return levels;
}

/** A signed JSON body: its bytes, what it says, and the certificates of its signer. */
export type SignedDocument<T = TcbInfo | QeIdentity> = Readonly<ReturnType<typeof readDocument<T>>>;

/** Reads a document whose value is at `name`. Throws collateral_unavailable. */
function readDocument<T>(
  { body, issuerChain, stored }: SignedCollateral,
  name: string,
  read: (content: JsonMembers) => T,
) {
  const signed = readSignedJson(body, name);
  const chain = asCollateral('its issuer chain', () => readCertificates(issuerChain, 2));
  const [signer, root] = chain as [Certificate, Certificate];
  return { ...signed, value: read(signed.content), signer, root, stored };
}

export const readTcbDocument = (fetched: SignedCollateral): SignedDocument<TcbInfo> =>
  readDocument(fetched, 'tcbInfo', readTcbInfo);

export const readQeDocument = (fetched: SignedCollateral): SignedDocument<QeIdentity> =>
  readDocument(fetched, 'enclaveIdentity', readQeIdentity);

/**
 * The first level that a platform reaches in all components. `teeTcbSvn` is the quote's: [0] is the minor and
 * [1] the major version of the TDX module. From major version 1 on, `moduleIdentity` covers these two.
 */
export function platformLevel(
  info: TcbInfo,
  { componentSvns, pceSvn }: Pick<SgxExtension, 'componentSvns' | 'pceSvn'>,
  teeTcbSvn: Uint8Array,
): TcbInfo['levels'][number] | undefined {
  const firstTdx = (teeTcbSvn[1] ?? 0) > 0 ? 2 : 0;
  const reaches = (svns: ArrayLike<number>, needed: readonly number[], from: number): boolean =>
    needed.every((svn, i) => i < from || (svns[i] ?? -1) >= svn);
  return info.levels.find(
    (level) =>
      reaches(componentSvns, level.sgxComponents, 0) &&
      pceSvn >= level.pceSvn &&
      reaches(teeTcbSvn, level.tdxComponents, firstTdx),
  );
}

/** The identity of the quote's TDX module, for major versions above 0; undefined if TCB info has none. */
export function moduleIdentity(info: TcbInfo, teeTcbSvn: Uint8Array): VersionedModuleIdentity | undefined {
  const id = `TDX_${(teeTcbSvn[1] ?? 0).toString(16).padStart(2, '0')}`;
  return info.moduleIdentities.find((identity) => identity.id === id);
}

/** The first level whose security version is reached; undefined if there is none. */
export function svnLevel(levels: QeIdentity['levels'], isvSvn: number) {
  return levels.find((level) => level.isvSvn <= isvSvn);
}

/** Whether the bits of `value` under the mask equal `wanted`; false unless all three have the same length. */
export function equalUnderMask(value: Uint8Array, mask: Uint8Array, wanted: Uint8Array): boolean {
  const sameLength = value.length === mask.length && value.length === wanted.length;
  return sameLength && value.every((byte, i) => (byte & (mask[i] ?? 0)) === wanted[i]);
}
