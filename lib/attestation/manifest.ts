/**
 * The manifest: which workloads may exist and under which reference values (docs/protocol/attestation.md 4 as amended by 19.12).
 * Only the expected manifest, whose bytes are pinned, is ever read this way.
 */
import { publicKeyFromPkcs1, publicKeyFromSpki } from '#crypto/signature';
import { PrivatemodeError } from '../errors.ts';
import { attempt, printable } from './check.ts';
import { hexBytes, ManifestObject, manifestInvalid, manifestUnsupported } from './manifest-object.ts';
import { readReferenceValues } from './reference-values.ts';
import { parseStrictJson } from './strict-json.ts';

export type Manifest = Readonly<ReturnType<typeof parseManifest>>;
export type PolicyEntry = Readonly<ReturnType<typeof readPolicy>>;

const OWNER_KEYS = [
  { key: 'WorkloadOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromSpki(der).algorithm === 'ec' },
  { key: 'SeedshareOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromPkcs1(der).algorithm === 'rsa' },
] as const;
const TOP_LEVEL_KEYS = [
  ...['Policies', 'ReferenceValues', 'MinimumAPIVersion', 'WorkloadOwnerKeyDigests'],
  ...OWNER_KEYS.map(({ key }) => key),
];
const HASH_BYTES = 32;
const LIMITS = { depth: 16, values: 20_000 };

/**
 * Reads and validates a manifest by the 17 rules of docs/protocol/attestation.md 19.12. Throws manifest_invalid for what contradicts a
 * rule of every generation, manifest_unsupported for what this version does not understand; both name the JSON path.
 */
export function parseManifest(bytes: Uint8Array) {
  const json = parseStrictJson(bytes, LIMITS, manifestNotJson);
  const top = new ManifestObject(json, [], TOP_LEVEL_KEYS);
  const minimumApiVersion = top.text('MinimumAPIVersion') ?? '';
  if (minimumApiVersion !== '') throw manifestUnsupported(['MinimumAPIVersion'], minimumApiVersion);
  const policies = readPolicies(top.object('Policies', undefined));
  const referenceValues = readReferenceValues(top.object('ReferenceValues', ['snp', 'tdx']));
  readOwnerKeys(top);
  return { /** By policy hash, lower-case hex. */ policies, ...referenceValues };
}

const manifestNotJson = (reason: string): PrivatemodeError =>
  new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${reason}`));

function readPolicies(policies: ManifestObject): ReadonlyMap<string, PolicyEntry> {
  const entries = new Map<string, PolicyEntry>();
  for (const key of policies.keys()) {
    hexBytes(key, policies.at(key), HASH_BYTES);
    const hash = key.toLowerCase();
    if (entries.has(hash)) throw manifestInvalid(policies.at(key), 'the policy appears twice');
    entries.set(hash, readPolicy(hash, policies.object(key, ['SANs', 'WorkloadSecretID', 'Role'])));
  }
  if (![...entries.values()].some(({ isCoordinator }) => isCoordinator)) {
    throw manifestInvalid(policies.path, 'no entry has the role coordinator');
  }
  return entries;
}

/** `hash`: of the workload's policy document, 32 bytes in lower-case hex. */
function readPolicy(hash: string, entry: ManifestObject) {
  const role = entry.text('Role') ?? '';
  if (role !== '' && role !== 'coordinator') throw manifestUnsupported(entry.at('Role'), role);
  return {
    hash,
    sans: entry.texts('SANs'),
    workloadSecretId: entry.text('WorkloadSecretID'),
    isCoordinator: role === 'coordinator',
  };
}

/** Owner keys play no part in verification, but must be readable (docs/protocol/attestation.md 4.1, 19.3). */
function readOwnerKeys(top: ManifestObject): void {
  top.byteLists('WorkloadOwnerKeyDigests', HASH_BYTES);
  for (const { key, isKey } of OWNER_KEYS) {
    for (const [index, der] of top.byteLists(key, undefined).entries()) {
      const isGood = attempt(() => isKey(der))?.value;
      if (!isGood) throw manifestInvalid([...top.at(key), index], 'not a key of this kind');
    }
  }
}

/** The policy hashes that HOST_DATA or MRCONFIGID may carry (docs/protocol/attestation.md 4.3, 19.12 rule 11). */
export function coordinatorHashes({ policies }: Manifest): Uint8Array[] {
  const coordinators = [...policies.values()].filter(({ isCoordinator }) => isCoordinator);
  return coordinators.map(({ hash }) => new Uint8Array(Buffer.from(hash, 'hex')));
}

/**
 * The entry of the secret service (docs/protocol/attestation.md 19.11): its WorkloadSecretID names it and its first SAN, which becomes
 * the certificate's CN, is `root`. Undefined unless there is exactly one.
 */
export function secretServiceEntry(manifest: Manifest) {
  const entries = [...manifest.policies.values()];
  const [entry, ...others] = entries.filter(
    ({ workloadSecretId, sans }) => workloadSecretId?.includes('secret-service') && sans[0] === 'root',
  );
  if (entry?.workloadSecretId === undefined || others.length > 0) return undefined;
  const id = entry.workloadSecretId;
  const isShared = entries.filter(({ workloadSecretId }) => workloadSecretId === id).length > 1;
  return isShared ? undefined : { ...entry, workloadSecretId: id };
}
