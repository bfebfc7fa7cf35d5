/**
 * Reads the manifest, which says which workloads may exist and under which reference values
 * (docs/protocol/attestation.md 4 as amended by 19.12). Only the expected manifest, whose bytes are pinned,
 * is ever read this way.
 */
import { publicKeyFromPkcs1, publicKeyFromSpki } from '../crypto/signature.ts';
import { parseStrictJson } from '../strict-json.ts';
import { attempt } from './check.ts';
import { hex, JsonMembers, TEXT } from './json-members.ts';
import { manifestInvalid, manifestUnsupported, misplaced, notValid, onlyKnown } from './manifest-members.ts';
import { readReferenceValues } from './reference-values.ts';

export type Manifest = Readonly<ReturnType<typeof parseManifest>>;
export type PolicyEntry = Readonly<ReturnType<typeof readPolicy>>;

const OWNER_KEYS = [
  { key: 'WorkloadOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromSpki(der).algorithm === 'ec' },
  { key: 'SeedshareOwnerPubKeys', isKey: (der: Uint8Array) => publicKeyFromPkcs1(der).algorithm === 'rsa' },
] as const;
const MANDATORY = ['Policies', 'ReferenceValues'];
const TOP_LEVEL_KEYS = [
  ...[...MANDATORY, 'MinimumAPIVersion', 'WorkloadOwnerKeyDigests'],
  ...OWNER_KEYS.map(({ key }) => key),
];
const POLICY_KEYS = ['SANs', 'WorkloadSecretID', 'Role'];
const HASH = hex(32);
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
  readOwnerKeys(top);
  return { /** By policy hash, lower-case hex. */ policies, ...referenceValues };
}

/**
 * Says why these bytes cannot be a manifest, as the end of a sentence about them; undefined if they may be
 * one. Without this check, an error page or a JSON error in place of a manifest would look like a service
 * that runs under a different manifest.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString('utf8');
  if (text.trim() === '') return 'is empty: not a manifest';
  if (text.startsWith('\ufeff'))
    return 'begins with a byte order mark, which the manifest of the service does not have';
  if (/^\s*</.test(text)) return 'is an HTML page, most likely an error page, not a manifest';
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {} // what cannot be parsed is no object either
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    return 'is not a JSON object: not a manifest';
  // A wrong letter case is for the checks of the manifest to refuse.
  const names = new Set(Object.keys(json).map((name) => name.toLowerCase()));
  const missing = MANDATORY.find((name) => !names.has(name.toLowerCase()));
  return missing && `has no member ${missing}: not a manifest`;
}

function readPolicies(policies: JsonMembers): ReadonlyMap<string, PolicyEntry> {
  const entries = new Map<string, PolicyEntry>();
  for (const key of policies.members.keys()) {
    if (HASH.read(key) === undefined) throw misplaced(key, policies.at(key), HASH);
    const hash = key.toLowerCase();
    if (entries.has(hash)) throw manifestInvalid(policies.at(key), 'the policy appears twice');
    entries.set(hash, readPolicy(hash, onlyKnown(policies.object(key), POLICY_KEYS)));
  }
  if (![...entries.values()].some(({ isCoordinator }) => isCoordinator)) {
    throw manifestInvalid(policies.path, 'no entry has the role coordinator');
  }
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

/** Owner keys play no part in verification, but must be readable (docs/protocol/attestation.md 4.1, 19.3). */
function readOwnerKeys(top: JsonMembers): void {
  top.list('WorkloadOwnerKeyDigests', HASH, []);
  for (const { key, isKey } of OWNER_KEYS) {
    for (const [index, der] of top.list(key, hex(), []).entries()) {
      const isGood = attempt(() => isKey(der))?.value;
      if (!isGood) throw manifestInvalid([...top.at(key), index], 'not a key of this kind');
    }
  }
}

/**
 * The policy hashes that HOST_DATA or MRCONFIGID may carry (docs/protocol/attestation.md 4.3, 19.12 rule 11).
 */
export function coordinatorHashes({ policies }: Manifest): Uint8Array[] {
  const coordinators = [...policies.values()].filter(({ isCoordinator }) => isCoordinator);
  return coordinators.map(({ hash }) => new Uint8Array(Buffer.from(hash, 'hex')));
}

/**
 * The entry of the secret service (docs/protocol/attestation.md 19.11): its WorkloadSecretID contains
 * `secret-service`, and its first SAN, which becomes the certificate's CN, is `root`. Throws
 * manifest_unsupported unless exactly one entry matches and no other entry has the same WorkloadSecretID: a
 * deployment may name its services otherwise.
 */
export function secretServiceEntry(manifest: Manifest): PolicyEntry {
  const entries = [...manifest.policies.values()];
  const [entry, ...others] = entries.filter(
    ({ workloadSecretId, sans }) => workloadSecretId.includes('secret-service') && sans[0] === 'root',
  );
  const sharing = entries.filter(({ workloadSecretId }) => workloadSecretId === entry?.workloadSecretId);
  if (entry === undefined || others.length > 0 || sharing.length > 1)
    throw manifestUnsupported(['Policies'], 'a list without exactly one secret service');
  return entry;
}
