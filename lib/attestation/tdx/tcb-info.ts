/**
 * Reads Intel's TCB info and QE identity: signed JSON with the TCB levels of platforms, TDX modules and
 * quoting enclaves (docs/protocol/attestation.md 10). Every reader throws collateral_unavailable.
 */
import { PrivatemodeError } from '../../errors.ts';
import { pathText } from '../../strict-json.ts';
import { asCollateral, type SignedCollateral } from '../collateral.ts';
import { DATE, hex, integer, type JsonMembers, readMembers, TEXT } from '../json-members.ts';
import { readSignerChain, type SgxExtension } from './chain.ts';

export type TcbInfo = Readonly<ReturnType<typeof readTcbInfo>>;
export type QeIdentity = Readonly<ReturnType<typeof readQeIdentity>>;

/** A signed JSON body: its bytes, its content, and the certificate chain of its signer. */
export type SignedDocument<T = TcbInfo | QeIdentity> = ReturnType<ReturnType<typeof documentReader<T>>>;

export const readTcbDocument = documentReader('tcbInfo', readTcbInfo);
export const readQeDocument = documentReader('enclaveIdentity', readQeIdentity);

function documentReader<T>(name: string, read: (content: JsonMembers) => T) {
  return ({ body, issuerChain, stored }: SignedCollateral) => {
    const { content, ...signed } = readSignedJson(body, name);
    const chain = asCollateral('its issuer chain', () => readSignerChain(issuerChain));
    return { ...signed, value: read(content), chain, stored };
  };
}

/** The size limit of a JSON body. Real bodies have 1 to 10 KB and seven nesting levels. */
const MAX_BODY_CHARACTERS = 64 * 1024;
const LIMITS = { depth: 16, values: MAX_BODY_CHARACTERS };

/**
 * Reads a JSON body `{"<name>": {…}, "signature": "<hex>"}`. The signature covers the exact bytes of the
 * value, so these bytes are cut out of the received text and never serialized again.
 */
export function readSignedJson(body: string, name: string) {
  if (body.length > MAX_BODY_CHARACTERS) throw unusable('the body is too large');
  const members = readMembers(Buffer.from(body), LIMITS, (defect) => unusable(`the body: ${defect}`));
  const content = members.object(name);
  return {
    /** The bytes that the signature covers. */
    signed: new TextEncoder().encode(content.members.source),
    /** The signature as r || s in 64 bytes. */
    signature: members.get('signature', hex(64)),
    content,
  };
}

const unusable = (message: string) => new PrivatemodeError('collateral_unavailable', message);

/** Reads the value of the member `tcbInfo`. */
export function readTcbInfo(info: JsonMembers) {
  return {
    ...readIssue(info),
    tcbType: info.get('tcbType', integer(0xffff)),
    fmspc: info.get('fmspc', hex(6)),
    pceId: info.get('pceId', hex(2)),
    module: readSigner(info.object('tdxModule'), 48, 8),
    /** Each major module version has one entry. `id` is `TDX_` and the version in two hex digits. */
    moduleIdentities: info.objects('tdxModuleIdentities', []).map((identity) => ({
      ...readSigner(identity, 48, 8),
      id: identity.get('id', TEXT),
      levels: readLevels(identity, readSvn),
    })),
    levels: readLevels(info, (tcb) => ({
      sgxComponents: readComponents(tcb, 'sgxtcbcomponents'),
      tdxComponents: readComponents(tcb, 'tdxtcbcomponents'),
      pceSvn: tcb.get('pcesvn', integer(0xffff)),
    })),
  };
}

/** Reads the value of the member `enclaveIdentity`. */
export function readQeIdentity(identity: JsonMembers) {
  return {
    ...readIssue(identity),
    /** MISCSELECT and its mask, in the little-endian byte order of the enclave report. */
    miscSelect: {
      attributes: identity.get('miscselect', hex(4)),
      attributesMask: identity.get('miscselectMask', hex(4)),
    },
    ...readSigner(identity, 32, 16),
    isvProdId: identity.get('isvprodid', integer(0xffff)),
    levels: readLevels(identity, readSvn),
  };
}

/** Reads the kind, the version and the dates that TCB info and QE identity state. */
function readIssue(document: JsonMembers) {
  return {
    id: document.get('id', TEXT),
    version: document.get('version', integer(0xffff)),
    issueDate: document.get('issueDate', DATE),
    nextUpdate: document.get('nextUpdate', DATE),
    evaluationDataNumber: document.get('tcbEvaluationDataNumber', integer(0xffff_ffff)),
  };
}

/** Reads the signer and the masked attributes of a module or an enclave. Lengths are in bytes. */
function readSigner(signed: JsonMembers, signerLength: number, attributesLength: number) {
  return {
    mrSigner: signed.get('mrsigner', hex(signerLength)),
    attributes: signed.get('attributes', hex(attributesLength)),
    attributesMask: signed.get('attributesMask', hex(attributesLength)),
  };
}

/** Reads at least one TCB level, the best level first. A level has a status and the versions it requires. */
function readLevels<T extends object>(owner: JsonMembers, readVersions: (tcb: JsonMembers) => T) {
  const levels = owner.objects('tcbLevels').map((level) => ({
    ...readVersions(level.object('tcb')),
    status: level.get('tcbStatus', TEXT),
  }));
  if (levels.length === 0) throw unusable('a list of TCB levels is empty');
  return levels;
}

const readSvn = (tcb: JsonMembers) => ({ isvSvn: tcb.get('isvsvn', integer(0xffff)) });

function readComponents(tcb: JsonMembers, name: string): readonly number[] {
  const list = tcb.objects(name);
  if (list.length !== 16) throw unusable(`${pathText(tcb.at(name))} is not a list of 16`);
  return list.map((component) => component.get('svn', integer(0xff)));
}

/**
 * Returns the first TCB level that a platform reaches in all components. `teeTcbSvn` holds the minor [0] and
 * major [1] version of the TDX module; from version 1.0 on, the module identity covers these two bytes.
 */
export function platformLevel(
  { levels }: TcbInfo,
  { componentSvns, pceSvn }: Pick<SgxExtension, 'componentSvns' | 'pceSvn'>,
  teeTcbSvn: Uint8Array,
) {
  const firstTdx = (teeTcbSvn[1] ?? 0) > 0 ? 2 : 0;
  const reaches = (svns: ArrayLike<number>, needed: readonly number[], from = 0): boolean =>
    needed.every((svn, i) => i < from || (svns[i] ?? -1) >= svn);
  return levels.find(
    (level) =>
      reaches(componentSvns, level.sgxComponents) &&
      pceSvn >= level.pceSvn &&
      reaches(teeTcbSvn, level.tdxComponents, firstTdx),
  );
}

/** Returns the first TCB level whose security version is at most `isvSvn`, or undefined. */
export const svnLevel = (levels: QeIdentity['levels'], isvSvn: number) =>
  levels.find((level) => level.isvSvn <= isvSvn);
