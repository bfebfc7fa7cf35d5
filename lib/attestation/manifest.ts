/**
 * Reads the manifest, which says which workloads may exist and under which reference values
 * (docs/protocol/attestation.md 4 as amended by 19.12). Only the expected manifest, whose bytes are pinned,
 * is ever read this way.
 */
import { parseStrictJson } from '../strict-json.ts';
import { hex, JsonMembers, TEXT } from './json-members.ts';
import { manifestInvalid, manifestUnsupported, misplaced, notValid, onlyKnown } from './manifest-members.ts';
import { readReferenceValues } from './reference-values.ts';

export type Manifest = Readonly<ReturnType<typeof parseManifest>>;
export type PolicyEntry = Readonly<ReturnType<typeof readPolicy>>;

const HASH = hex(32);
/** They play no part in verification, and upstream reads them (docs/protocol/attestation.md 4.1, 19.3). */
const OWNERS = {
  WorkloadOwnerKeyDigests: HASH,
  WorkloadOwnerPubKeys: hex(),
  SeedshareOwnerPubKeys: hex(),
};
const TOP_LEVEL_KEYS = ['Policies', 'ReferenceValues', 'MinimumAPIVersion', ...Object.keys(OWNERS)];
const POLICY_KEYS = ['SANs', 'WorkloadSecretID', 'Role'];
const LIMITS = { depth: 16, values: 20_000 };

/**
 * Reads and validates a manifest by the 17 rules of docs/protocol/attestation.md 19.12. Throws
 * manifest_invalid for a value that breaks a rule of every generation, manifest_unsupported for a value that
 * this version does not understand; both name the JSON path.
 */
export function parseManifest(bytes: Uint8Array) {
  const json = parseStrictJson(bytes, LIMITS, notValid);
  const top = onlyKnown(new JsonMembers(json, [], misplaced), TOP_LEVEL_KEYS);
  const minimumApiVersion = top.get('MinimumAPIVersion', TEXT, '');
  if (minimumApiVersion !== '') throw manifestUnsupported(['MinimumAPIVersion'], minimumApiVersion);
  const policies = readPolicies(top.object('Policies'));
  const referenceValues = readReferenceValues(onlyKnown(top.object('ReferenceValues'), ['snp', 'tdx']));
  for (const [key, kind] of Object.entries(OWNERS)) top.list(key, kind, []);
  return { /** By policy hash, lower-case hex. */ policies, ...referenceValues };
}

/**
 * Says why these bytes cannot be a manifest; undefined if they may be one. Else an error page in its place
 * would look like a service under another manifest. parseManifest refuses a wrong letter case.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  try {
    const names = Object.keys(JSON.parse(Buffer.from(bytes).toString('utf8')));
    if (names.some((name) => name.toLowerCase() === 'policies')) return undefined;
  } catch {} // no JSON, or null
  return 'is no JSON object with the member Policies: not a manifest';
}

function readPolicies(policies: JsonMembers): ReadonlyMap<string, PolicyEntry> {
  const entries = new Map<string, PolicyEntry>();
  for (const key of policies.members.keys()) {
    if (HASH.read(key) === undefined) throw misplaced(key, policies.at(key), HASH);
    const hash = key.toLowerCase();
    if (entries.has(hash)) throw manifestInvalid(policies.at(key), 'the policy appears twice');
    entries.set(hash, readPolicy(hash, onlyKnown(policies.object(key), POLICY_KEYS)));
  }
  if (![...entries.values()].some(({ isCoordinator }) => isCoordinator))
    throw manifestInvalid(policies.path, 'no entry has the role coordinator');
  return entries;
}

/** `hash`: that of the workload's policy document, 32 bytes in lower-case hex. */
function readPolicy(hash: string, entry: JsonMembers) {
  const role = entry.get('Role', TEXT, '');
  if (role !== '' && role !== 'coordinator') throw manifestUnsupported(entry.at('Role'), role);
  return {
    hash,
    sans: entry.list('SANs', TEXT, []),
    workloadSecretId: entry.get('WorkloadSecretID', TEXT, ''),
    isCoordinator: role === 'coordinator',
  };
}

/** The hashes that HOST_DATA or MRCONFIGID may carry (docs/protocol/attestation.md 4.3, 19.12 rule 11). */
export function coordinatorHashes({ policies }: Manifest): Uint8Array[] {
  const coordinators = [...policies.values()].filter(({ isCoordinator }) => isCoordinator);
  return coordinators.map(({ hash }) => new Uint8Array(Buffer.from(hash, 'hex')));
}

/**
 * The entry of the secret service (docs/protocol/attestation.md 19.11): its WorkloadSecretID contains
 * `secret-service`, and its first SAN, which becomes the certificate's CN, is `root`. Throws
 * manifest_unsupported unless one entry matches, and no other has its WorkloadSecretID.
 */
export function secretServiceEntry({ policies }: Manifest): PolicyEntry {
  const entries = [...policies.values()];
  const [entry, ...others] = entries.filter(
    ({ workloadSecretId, sans }) => workloadSecretId.includes('secret-service') && sans[0] === 'root',
  );
  const sharing = entries.filter(({ workloadSecretId }) => workloadSecretId === entry?.workloadSecretId);
  if (entry === undefined || others.length > 0 || sharing.length > 1)
    throw manifestUnsupported(['Policies'], 'a list without exactly one secret service');
  return entry;
}
