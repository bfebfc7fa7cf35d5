/**
 * The manifest: which workloads may exist and under which reference values (docs/protocol/attestation.md 4 as amended by 19.12).
 * Only the expected manifest, whose bytes are pinned, is ever read this way.
 */
import { publicKeyFromPkcs1, publicKeyFromSpki } from '../crypto/signature.ts';
import { PrivatemodeError } from '../errors.ts';
import { printable } from './check.ts';
import { hexBytes, ManifestObject, manifestInvalid, manifestUnsupported } from './manifest-object.ts';
import { readReferenceValues, type SnpReferenceValues, type TdxReferenceValues } from './reference-values.ts';
import { parseStrictJson } from './strict-json.ts';

export interface Manifest {
  /** By policy hash, lower-case hex. */
  readonly policies: ReadonlyMap<string, PolicyEntry>;
  readonly snp: readonly SnpReferenceValues[];
  readonly tdx: readonly TdxReferenceValues[];
}

export interface PolicyEntry {
  /** Lower-case hex, 32 bytes: SHA-256 of the workload's policy document. */
  readonly hash: string;
  readonly sans: readonly string[];
  readonly workloadSecretId: string | undefined;
  readonly isCoordinator: boolean;
}

const TOP_LEVEL_KEYS = [
  'Policies ReferenceValues MinimumAPIVersion',
  'WorkloadOwnerPubKeys WorkloadOwnerKeyDigests SeedshareOwnerPubKeys',
].flatMap((line) => line.split(' '));
const POLICY_KEYS = ['SANs', 'WorkloadSecretID', 'Role'];
const HASH_BYTES = 32;
const LIMITS = { depth: 16, values: 20_000 };

/**
 * Reads and validates a manifest by the 17 rules of docs/protocol/attestation.md 19.12. Throws manifest_invalid for what contradicts a
 * rule of every generation, manifest_unsupported for what this version does not understand; both name the JSON path.
 */
export function parseManifest(bytes: Uint8Array): Manifest {
  const json = parseStrictJson(bytes, LIMITS, manifestNotJson);
  const top = new ManifestObject(json, [], TOP_LEVEL_KEYS);
  const minimumApiVersion = top.text('MinimumAPIVersion') ?? '';
  if (minimumApiVersion !== '') throw manifestUnsupported(['MinimumAPIVersion'], minimumApiVersion);
  const policies = readPolicies(top.object('Policies', undefined));
  const { snp, tdx } = readReferenceValues(top.object('ReferenceValues', ['snp', 'tdx']));
  readOwnerKeys(top);
  return { policies, snp, tdx };
}

const manifestNotJson = (reason: string): PrivatemodeError =>
  new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${reason}`));

function readPolicies(policies: ManifestObject): ReadonlyMap<string, PolicyEntry> {
  const entries = new Map<string, PolicyEntry>();
  for (const key of policies.keys()) {
    hexBytes(key, policies.at(key), HASH_BYTES);
    const hash = key.toLowerCase();
    if (entries.has(hash)) throw manifestInvalid(policies.at(key), 'the policy appears twice');
    const entry = policies.object(key, POLICY_KEYS);
    const role = entry.text('Role') ?? '';
    if (role !== '' && role !== 'coordinator') throw manifestUnsupported(entry.at('Role'), role);
    entries.set(hash, {
      hash,
      sans: entry.texts('SANs'),
      workloadSecretId: entry.text('WorkloadSecretID'),
      isCoordinator: role === 'coordinator',
    });
  }
  if (![...entries.values()].some(({ isCoordinator }) => isCoordinator)) {
    throw manifestInvalid(policies.path, 'no entry has the role coordinator');
  }
  return entries;
}

/** Owner keys play no part in verification, but must be readable (docs/protocol/attestation.md 4.1, 19.3). */
function readOwnerKeys(top: ManifestObject): void {
  top.byteLists('WorkloadOwnerKeyDigests', HASH_BYTES);
  for (const { key, isKey } of OWNER_KEYS) {
    for (const [index, der] of top.byteLists(key, undefined).entries()) {
      if (!holds(() => isKey(der))) throw manifestInvalid([...top.at(key), index], 'not a key of this kind');
    }
  }
}

const OWNER_KEYS = [
  { key: 'WorkloadOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromSpki(der).algorithm === 'ec' },
  { key: 'SeedshareOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromPkcs1(der).algorithm === 'rsa' },
] as const;

function holds(condition: () => boolean): boolean {
  try {
    return condition();
  } catch {
    return false;
  }
}

/** The policy hashes that HOST_DATA or MRCONFIGID may carry (docs/protocol/attestation.md 4.3, 19.12 rule 11). */
export function coordinatorHashes(manifest: Manifest): Uint8Array[] {
  return [...manifest.policies.values()]
    .filter(({ isCoordinator }) => isCoordinator)
    .map(({ hash }) => new Uint8Array(Buffer.from(hash, 'hex')));
}

/**
 * The entry of the secret service (docs/protocol/attestation.md 19.11): its WorkloadSecretID names it and its first SAN, which becomes
 * the certificate's CN, is `root`. Undefined unless there is exactly one.
 */
export function secretServiceEntry(
  manifest: Manifest,
): (PolicyEntry & { readonly workloadSecretId: string }) | undefined {
  const [entry, ...others] = [...manifest.policies.values()].filter(
    ({ workloadSecretId, sans }) => workloadSecretId?.includes('secret-service') && sans[0] === 'root',
  );
  if (entry?.workloadSecretId === undefined || others.length > 0) return undefined;
  const id = entry.workloadSecretId;
  const shared = [...manifest.policies.values()].filter(({ workloadSecretId }) => workloadSecretId === id);
  return shared.length === 1 ? { ...entry, workloadSecretId: id } : undefined;
}
