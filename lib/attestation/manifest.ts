/**
 * Reads the manifest, which lists the allowed workloads and the reference values for their hardware
 * (docs/protocol/attestation.md 4 as amended by 19.12). Only the expected manifest, whose bytes are pinned,
 * is ever parsed. A value that is wrong in every version of the format gives `manifest_invalid`. A value that
 * a newer verifier may understand gives `manifest_unsupported`.
 */
import { PrivatemodeError } from '../errors.ts';
import { JsonNumber, type JsonValue, type Path, parseStrictJson, pathText } from '../strict-json.ts';
import { printable } from '../text.ts';
import { bigInteger, FLAG, hex, integer, JsonMembers, TEXT } from './json-members.ts';
import * as packed from './snp/packed-fields.ts';

export type Manifest = Readonly<ReturnType<typeof parseManifest>>;
export type PolicyEntry = Readonly<ReturnType<typeof readPolicy>>;
export type SnpReferenceValues = Readonly<ReturnType<typeof readSnp>>;
export type TdxReferenceValues = Readonly<ReturnType<typeof readTdx>>;

const HASH = hex(32);
const UINT64 = bigInteger(2n ** 64n - 1n);
const BYTE = integer(255);

/** The keys of owners, of which only the form is checked (docs/protocol/attestation.md 4.1, 19.3). */
const OWNERS = { WorkloadOwnerKeyDigests: HASH, WorkloadOwnerPubKeys: hex(), SeedshareOwnerPubKeys: hex() };
/** The members that each object of a manifest may have. */
const KEYS = {
  top: ['Policies', 'ReferenceValues', 'MinimumAPIVersion', ...Object.keys(OWNERS)],
  policy: ['SANs', 'WorkloadSecretID', 'Role'],
  snp: [
    ...['Platform', 'ProductName', 'TrustedMeasurement', 'MinimumTCB', 'GuestPolicy', 'PlatformInfo'],
    ...['MinimumMitigationVector', 'AllowedChipIDs', 'CPUs', 'APEIP'],
  ],
  tcb: ['BootloaderVersion', 'TEEVersion', 'SNPVersion', 'MicrocodeVersion'],
  tdx: [
    ...['Platform', 'MinTCBEvaluationDataNumber', 'MrTd', 'MrSeam', 'Rtmrs', 'Rtmr0Alternatives', 'Xfam'],
    ...['AllowedPIIDs', 'MemoryIntegrity', 'SMTDisabled', 'StaticPlatform', 'CPUs'],
  ],
};
/** Members of GuestPolicy that would weaken the guest if true (docs/protocol/attestation.md 19.12 rule 9). */
const NEVER_TRUE = ['Debug', 'MigrateMA', 'CXLAllowed'] as const;
const LIMITS = { depth: 16, values: 20_000 };

/** Reads a manifest by the 17 rules of docs/protocol/attestation.md 19.12. Errors name the JSON path. */
export function parseManifest(bytes: Uint8Array) {
  const json = parseStrictJson(bytes, LIMITS, notValid);
  const top = onlyKnown(new JsonMembers(json, [], misplaced), KEYS.top);
  const minimumApiVersion = top.get('MinimumAPIVersion', TEXT, '');
  if (minimumApiVersion !== '') throw unsupported(['MinimumAPIVersion'], minimumApiVersion);
  const policies = readPolicies(top.object('Policies'));
  const values = onlyKnown(top.object('ReferenceValues'), ['snp', 'tdx']);
  const entries = (tee: 'snp' | 'tdx') => values.objects(tee, []).map((entry) => onlyKnown(entry, KEYS[tee]));
  const snp = entries('snp').map(readSnp);
  const tdx = entries('tdx').map(readTdx);
  if (snp.length + tdx.length === 0) throw invalid(values.path, 'no reference value at all');
  for (const [key, kind] of Object.entries(OWNERS)) top.list(key, kind, []);
  return { /** Policies by the SHA-256 of their documents, in lower-case hex. */ policies, snp, tdx };
}

/**
 * Returns why the bytes cannot be a manifest, or undefined if they may be one. This check keeps an error page
 * from looking like a changed manifest. parseManifest refuses a wrong letter case.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  try {
    const names = Object.keys(JSON.parse(Buffer.from(bytes).toString('utf8')));
    if (names.some((name) => name.toLowerCase() === 'policies')) return undefined;
  } catch {} // the text is not JSON, or is null
  return 'is no JSON object with the member Policies: not a manifest';
}

function readPolicies(policies: JsonMembers): ReadonlyMap<string, PolicyEntry> {
  const entries = new Map<string, PolicyEntry>();
  for (const key of policies.members.keys()) {
    if (HASH.read(key) === undefined) throw misplaced(key, policies.at(key), HASH);
    const hash = key.toLowerCase();
    if (entries.has(hash)) throw invalid(policies.at(key), 'the policy appears twice');
    entries.set(hash, readPolicy(onlyKnown(policies.object(key), KEYS.policy)));
  }
  if (![...entries.values()].some(({ isCoordinator }) => isCoordinator))
    throw invalid(policies.path, 'no entry has the role coordinator');
  return entries;
}

function readPolicy(entry: JsonMembers) {
  const role = entry.get('Role', TEXT, '');
  if (role !== '' && role !== 'coordinator') throw unsupported(entry.at('Role'), role);
  return {
    sans: entry.list('SANs', TEXT, []),
    workloadSecretId: entry.get('WorkloadSecretID', TEXT, ''),
    isCoordinator: role === 'coordinator',
  };
}

/** The policy hashes allowed in HOST_DATA or MRCONFIGID (docs/protocol/attestation.md 4.3, 19.12 rule 11). */
export function coordinatorHashes({ policies }: Manifest): Uint8Array[] {
  const coordinators = [...policies].filter(([, { isCoordinator }]) => isCoordinator);
  return coordinators.map(([hash]) => new Uint8Array(Buffer.from(hash, 'hex')));
}

/**
 * Finds the policy entry of the secret service (docs/protocol/attestation.md 19.11). The entry's
 * WorkloadSecretID contains `secret-service`. The entry's first SAN, which the certificate has as its CN, is
 * `root`. Throws manifest_unsupported unless exactly one entry matches and its WorkloadSecretID is unique.
 */
export function secretServiceEntry({ policies }: Manifest): PolicyEntry {
  const entries = [...policies.values()];
  const [entry, ...others] = entries.filter(
    ({ workloadSecretId, sans }) => workloadSecretId.includes('secret-service') && sans[0] === 'root',
  );
  const sharing = entries.filter(({ workloadSecretId }) => workloadSecretId === entry?.workloadSecretId);
  if (entry === undefined || others.length > 0 || sharing.length > 1)
    throw unsupported(['Policies'], 'a list without exactly one secret service');
  return entry;
}

/** Checks CPUs and Platform. A Platform without confidential hardware is refused (19.12 rule 4). */
function checkPlatform(entry: JsonMembers): void {
  entry.get('CPUs', UINT64, 0n);
  const platform = entry.get('Platform', TEXT, '');
  if (platform.toLowerCase().includes('insecure'))
    throw invalid(entry.at('Platform'), `${platform} is a platform without confidential hardware`);
}

function readSnp(entry: JsonMembers) {
  checkPlatform(entry);
  const product = entry.get('ProductName', TEXT, '');
  if (product === '') throw invalid(entry.at('ProductName'), 'a product name is mandatory');
  if (!packed.isProduct(product)) throw unsupported(entry.at('ProductName'), product);
  const tcb = onlyKnown(entry.object('MinimumTCB'), KEYS.tcb);
  const { flags: platformInfo } = readFlags(entry, 'PlatformInfo', packed.PLATFORM_INFO_FLAGS);
  return {
    product,
    /** The launch digest. If `apeip` is set, the launch digest is that of a guest with one vCPU. */
    trustedMeasurement: entry.get('TrustedMeasurement', hex(48)),
    /** The reset address of application processors. Without it, the measurement must match exactly. */
    apeip: readApeip(entry),
    minimumTcb: {
      bootloader: tcb.get('BootloaderVersion', BYTE),
      tee: tcb.get('TEEVersion', BYTE),
      snp: tcb.get('SNPVersion', BYTE),
      microcode: tcb.get('MicrocodeVersion', BYTE),
    },
    guestPolicy: readGuestPolicy(entry),
    platformInfo,
    minimumMitigationVector: entry.get('MinimumMitigationVector', UINT64, 0n),
    /** The chips that are allowed. If the list is empty, any chip is allowed. */
    allowedChipIds: entry.list('AllowedChipIDs', hex(64), []),
  };
}

/** Reads APEIP, four bytes, big-endian. If APEIP is absent or empty, the measurement must match exactly. */
function readApeip(entry: JsonMembers): number | undefined {
  const text = entry.get('APEIP', TEXT, '');
  return text === '' ? undefined : new DataView(entry.get('APEIP', hex(4)).buffer).getUint32(0);
}

function readGuestPolicy(entry: JsonMembers) {
  const { object, flags } = readFlags(entry, 'GuestPolicy', packed.POLICY_FLAGS, 'ABIMinor', 'ABIMajor');
  const weakening = NEVER_TRUE.find((member) => flags[member]);
  if (weakening !== undefined) throw invalid(object.at(weakening), 'must not be true');
  const [ABIMinor, ABIMajor] = [object.get('ABIMinor', BYTE, 0), object.get('ABIMajor', BYTE, 0)];
  return { ABIMinor, ABIMajor, ...flags };
}

/** Reads the flags of the object `key`, which may be absent. `others` names the members that are no flags. */
function readFlags<Table extends readonly packed.BitFlag[]>(
  entry: JsonMembers,
  key: string,
  table: Table,
  ...others: readonly string[]
) {
  const names = table.map(({ member }) => member);
  const object = onlyKnown(entry.object(key, 'empty'), [...others, ...names]);
  const flags = Object.fromEntries(names.map((name) => [name, object.get(name, FLAG, false)]));
  return { object, flags: flags as packed.Flags<Table> };
}

function readTdx(entry: JsonMembers) {
  checkPlatform(entry);
  const rtmrs = entry.list('Rtmrs', hex(48), []);
  if (rtmrs.length !== 4) throw invalid(entry.at('Rtmrs'), `${rtmrs.length} values where 4 belong`);
  return {
    /** The lowest accepted evaluation data number. The value 0 means that the manifest sets no minimum. */
    minTcbEvaluationDataNumber: entry.get('MinTCBEvaluationDataNumber', integer(2 ** 31 - 1), 0),
    mrTd: entry.get('MrTd', hex(48)),
    mrSeam: entry.get('MrSeam', hex(48)),
    /** The run-time measurements RTMR0 to RTMR3. */
    rtmrs: rtmrs as unknown as readonly [Uint8Array, Uint8Array, Uint8Array, Uint8Array],
    /** Additional values that are allowed for RTMR0 (docs/protocol/attestation.md 19.10). */
    rtmr0Alternatives: entry.list('Rtmr0Alternatives', hex(48), []),
    /** The bytes of XFAM in the same order as in the quote. */
    xfam: entry.get('Xfam', hex(8)),
    /** The platform instances that are allowed. If the list is empty, any instance is allowed. */
    allowedPiids: entry.list('AllowedPIIDs', hex(16), []),
    memoryIntegrity: entry.get('MemoryIntegrity', FLAG, false),
    smtDisabled: entry.get('SMTDisabled', FLAG, false),
    staticPlatform: entry.get('StaticPlatform', FLAG, false),
  };
}

/** Makes the error manifest_invalid. `reason` says what is wrong and names the member. */
const notValid = (reason: string): PrivatemodeError =>
  new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${reason}`));

const invalid = (path: Path, reason: string): PrivatemodeError =>
  notValid(`${pathText(path) || 'top level'}: ${reason}`);

const misplaced = (value: JsonValue | undefined, path: Path, { expected }: { expected: string }) =>
  invalid(path, `${valueText(value)} where ${expected} belongs`);

/** Makes manifest_unsupported, whose message says "unmarshaling" (docs/protocol/attestation.md 19.12). */
function unsupported(path: Path, value: string): PrivatemodeError {
  const what = `${pathText(path)}: ${value} is not understood by this version; update privatemode-proxy`;
  return new PrivatemodeError('manifest_unsupported', printable(`unmarshaling manifest: ${what}`));
}

/** Returns the JSON value as text for an error message, cut after 60 characters. */
function valueText(value: JsonValue | undefined): string {
  if (value instanceof Map) return 'an object';
  if (Array.isArray(value)) return 'a list';
  const text = value instanceof JsonNumber ? value.text : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/**
 * Returns the object if all its keys are known. Throws manifest_invalid for a key that differs from a known
 * key only in letter case. Throws manifest_unsupported for any other unknown key.
 */
function onlyKnown(object: JsonMembers, known: readonly string[]): JsonMembers {
  for (const [key, value] of object.members) {
    if (known.includes(key)) continue;
    const meant = known.find((name) => fold(name) === fold(key));
    if (meant !== undefined) throw invalid(object.at(key), `the key must be spelled ${meant}`);
    throw unsupported(object.at(key), valueText(value));
  }
  return object;
}

/** Folds letter case as Go's JSON decoder does. Go's decoder also maps ſ and K (U+212A) to ASCII. */
const fold = (key: string): string => key.toUpperCase().toLowerCase();
