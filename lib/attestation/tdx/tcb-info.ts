/**
 * Which versions of platform, TDX module and quoting enclave Intel calls up to date: its TCB info and its identity of
 * the quoting enclave (docs/protocol/attestation.md 10).
 */
import type { SgxExtension } from './sgx-extension.ts';
import { type JsonObject, unusable } from './signed-json.ts';

export type TcbInfo = Readonly<ReturnType<typeof readTcbInfo>>;
export type QeIdentity = Readonly<ReturnType<typeof readQeIdentity>>;
export type VersionedModuleIdentity = TcbInfo['moduleIdentities'][number];

/** The one status that is accepted, for every level. */
export const UP_TO_DATE = 'UpToDate';
const COMPONENTS = 16;

/**
 * Reads the value of `tcbInfo`; byte strings have the length given here. Throws collateral_unavailable when a member is
 * missing or of another shape.
 */
export function readTcbInfo(info: JsonObject) {
  const identities = info.has('tdxModuleIdentities') ? info.list('tdxModuleIdentities') : [];
  return {
    id: info.string('id'),
    version: info.integer('version', 0xffff),
    tcbType: info.integer('tcbType', 0xffff),
    issueDate: info.date('issueDate'),
    nextUpdate: info.date('nextUpdate'),
    fmspc: info.hex('fmspc', 6),
    pceId: info.hex('pceId', 2),
    evaluationDataNumber: info.integer('tcbEvaluationDataNumber', 0xffff_ffff),
    module: readModule(info.object('tdxModule')),
    /** One per major version of the TDX module; `id` is `TDX_` and that version in two hex digits. */
    moduleIdentities: identities.map((identity) => ({
      ...readModule(identity),
      id: identity.string('id'),
      levels: readSvnLevels(identity),
    })),
    /** Best first; at least one. */
    levels: readLevels(info, readPlatformLevel),
  };
}

/** Reads the value of `enclaveIdentity`, as readTcbInfo does. */
export function readQeIdentity(identity: JsonObject) {
  return {
    id: identity.string('id'),
    version: identity.integer('version', 0xffff),
    issueDate: identity.date('issueDate'),
    nextUpdate: identity.date('nextUpdate'),
    evaluationDataNumber: identity.integer('tcbEvaluationDataNumber', 0xffff_ffff),
    /** Little-endian, as in the enclave report. */
    miscSelect: identity.hex('miscselect', 4),
    miscSelectMask: identity.hex('miscselectMask', 4),
    attributes: identity.hex('attributes', 16),
    attributesMask: identity.hex('attributesMask', 16),
    mrSigner: identity.hex('mrsigner', 32),
    isvProdId: identity.integer('isvprodid', 0xffff),
    levels: readSvnLevels(identity),
  };
}

/** Who signed the TDX module, and its attributes under a mask. */
function readModule(module: JsonObject) {
  return {
    mrSigner: module.hex('mrsigner', 48),
    attributes: module.hex('attributes', 8),
    attributesMask: module.hex('attributesMask', 8),
  };
}

/** Security versions, best first, each with the status of what has at least that version. */
function readSvnLevels(owner: JsonObject) {
  return readLevels(owner, (level) => ({
    isvSvn: level.object('tcb').integer('isvsvn', 0xffff),
    status: level.string('tcbStatus'),
  }));
}

function readPlatformLevel(level: JsonObject) {
  const tcb = level.object('tcb');
  const components = (name: string): readonly number[] =>
    tcb.list(name, COMPONENTS).map((component) => component.integer('svn', 0xff));
  return {
    sgxComponents: components('sgxtcbcomponents'),
    tdxComponents: components('tdxtcbcomponents'),
    pceSvn: tcb.integer('pcesvn', 0xffff),
    status: level.string('tcbStatus'),
  };
}

function readLevels<T>(owner: JsonObject, read: (level: JsonObject) => T): readonly T[] {
  const levels = owner.list('tcbLevels').map(read);
  if (levels.length === 0) throw unusable('a list of TCB levels is empty');
  return levels;
}

/**
 * The first level that a platform reaches in all components; undefined where there is none. `teeTcbSvn` is the quote's, 16
 * bytes, of which [0] and [1] are minor and major version of the TDX module. From major version 1 on these two do not
 * count here: they have levels of their own, those of `moduleIdentity`.
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

/** The identity of the quote's TDX module, for major versions above 0; undefined where TCB info has none. */
export function moduleIdentity(info: TcbInfo, teeTcbSvn: Uint8Array): VersionedModuleIdentity | undefined {
  const id = `TDX_${(teeTcbSvn[1] ?? 0).toString(16).padStart(2, '0')}`;
  return info.moduleIdentities.find((identity) => identity.id === id);
}

/** The first level whose security version is reached; undefined where there is none. */
export function svnLevel(levels: QeIdentity['levels'], isvSvn: number) {
  return levels.find((level) => level.isvSvn <= isvSvn);
}

/** Whether the bits of `value` under the mask are those of `wanted`; all three of the same length. */
export function equalUnderMask(value: Uint8Array, mask: Uint8Array, wanted: Uint8Array): boolean {
  const sameLength = value.length === mask.length && value.length === wanted.length;
  return sameLength && value.every((byte, i) => (byte & (mask[i] ?? 0)) === wanted[i]);
}
