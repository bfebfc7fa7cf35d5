/**
 * The manifest of the simulated deployment, in the shape of the live one (docs/protocol/attestation.md 4,
 * 19.2). It depends only on the hardware and a revision number, so that a restart serves the same bytes.
 */
import { createPublicKey } from 'node:crypto';
import { sha256 } from '#crypto';
import type { Hardware } from './hardware.ts';
import type { WorkloadIdentity } from './pki/mesh.ts';
import { referenceValues } from './reference-values.ts';

const NAMESPACE = 'continuum-simulated';
const CLUSTER = `${NAMESPACE}.svc.cluster.local`;

type WorkloadRow = WorkloadIdentity & { readonly role?: 'coordinator' };

const inferenceWorkload = (name: string): WorkloadRow => ({
  sans: ['continuum-etcd-client', name, '*'],
  workloadSecretId: `apps/v1/Deployment/${NAMESPACE}/${name}`,
});

/** Clients recognise the secret service by its WorkloadSecretID (docs/protocol/attestation.md 19.11). */
const WORKLOADS = {
  coordinator: {
    sans: ['coordinator', '*'],
    workloadSecretId: `apps/v1/StatefulSet/${NAMESPACE}/coordinator`,
    role: 'coordinator',
  },
  'secret-service': {
    sans: [
      'root',
      'secret-service',
      '*',
      `secret-service-internal.${CLUSTER}`,
      `*.secret-service-headless.${CLUSTER}`,
    ],
    workloadSecretId: `apps/v1/StatefulSet/${NAMESPACE}/secret-service`,
  },
  'workload-chat': inferenceWorkload('workload-chat'),
  'workload-whisper': inferenceWorkload('workload-whisper'),
  'unstructured-api': inferenceWorkload('unstructured-api'),
} as const satisfies Record<string, WorkloadRow>;

export const identityOf = (name: keyof typeof WORKLOADS): WorkloadIdentity => WORKLOADS[name];

const initdata = (name: string, revision: number): Uint8Array =>
  Buffer.from(`# initdata of the simulated ${name}\nversion = "0.1.0"\nrevision = ${revision}\n`, 'utf8');

export type Manifest = ReturnType<typeof buildManifest>;

/** Manifest number `revision` of a deployment on this hardware. */
export function buildManifest(hardware: Hardware, revision: number) {
  const rows = Object.entries<WorkloadRow>(WORKLOADS).map(([name, row]) => {
    const document = initdata(name, revision);
    return { row, document, hash: sha256(document) };
  });
  const owner = createPublicKey(hardware.keys.seedshareOwner).export({ type: 'pkcs1', format: 'der' });
  const policies = rows.map(({ row: { sans, workloadSecretId, role }, hash }): [string, unknown] => [
    Buffer.from(hash).toString('hex'),
    { SANs: sans, WorkloadSecretID: workloadSecretId, ...(role && { Role: role }) },
  ]);
  const manifest = {
    Policies: Object.fromEntries(policies.sort(([a], [b]) => (a < b ? -1 : 1))),
    ReferenceValues: referenceValues(hardware),
    SeedshareOwnerPubKeys: [owner.toString('hex')],
  };
  const bytes = Buffer.from(`${JSON.stringify(manifest, undefined, 2)}\n`, 'utf8');
  return {
    bytes: bytes as Uint8Array,
    /** Lower-case hex. */
    sha256: Buffer.from(sha256(bytes)).toString('hex'),
    /** The initdata documents; their hashes are the keys of `Policies`. */
    policies: rows.map(({ document }) => document),
    /** 32 bytes: HOST_DATA of the coordinator (docs/protocol/attestation.md 4.3). */
    coordinatorHash: rows.find(({ row }) => row.role === 'coordinator')?.hash ?? new Uint8Array(32),
  };
}
