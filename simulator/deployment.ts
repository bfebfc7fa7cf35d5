/**
 * The simulated deployment as a client sees it: one manifest, one mesh, a coordinator and a secret service.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { reportData, transitionDigest } from '../lib/attestation/document.ts';
import { snpEvidence } from './evidence/snp.ts';
import { tdxEvidence } from './evidence/tdx.ts';
import type { Faults } from './faults.ts';
import type { Hardware } from './hardware.ts';
import { buildManifest, identityOf, type Manifest } from './manifest.ts';
import { createMesh, issueWorkload, type Mesh, type WorkloadCertificate } from './pki/mesh.ts';
import { exchangeSecret, type SecretExchange } from './secret-exchange.ts';

export type Tee = 'snp' | 'tdx';

/** For each kind of hardware, the object identifier of its evidence, and the function that makes it. */
const EVIDENCE = {
  snp: { type: [1, 3, 9901, 2, 1], make: snpEvidence },
  tdx: { type: [1, 3, 9901, 2, 2], make: tdxEvidence },
} as const;

const COORDINATOR_VERSION = 'v1.24.1';

export interface Deployment {
  /** The active manifest, and its number. */
  manifest(): Manifest;
  revision(): number;
  /**
   * The attestation document for a nonce of 32 bytes (docs/protocol/attestation.md 2, 19.8).
   */
  attest(nonce: Uint8Array): Uint8Array;
  /** The secret service's response to an HPKE public key; rejects if the bytes are no such key. */
  exchange(publicKey: Uint8Array): Promise<SecretExchange>;
  /** A new deployment takes over: new manifest, new mesh. */
  rotateManifest(): void;
  /** The coordinator restarts: same manifest, new mesh. */
  rotateMesh(): void;
}

export function createDeployment(options: {
  readonly hardware: Hardware;
  /** Number of the first manifest. Default: 0. */
  readonly revision?: number;
  readonly tee: Tee;
  /** vCPUs of the SEV-SNP guest, 2 by default. */
  readonly vcpus?: 1 | 2;
  readonly faults: Faults;
  /** ms since 1970. */
  readonly now: () => number;
}): Deployment {
  const { hardware, tee, vcpus = 2, faults, now } = options;
  let { revision = 0 } = options;
  let manifest = buildManifest(hardware, revision);
  let mesh = createMesh(now());

  return {
    manifest: () => manifest,
    revision: () => revision,
    attest: (nonce) => attestationDocument({ nonce, manifest, mesh, hardware, tee, vcpus, faults }),
    exchange: (publicKey) =>
      exchangeSecret(publicKey, secretService(mesh, faults, now()), faults.get('secret-signature')),
    rotateManifest() {
      revision += 1;
      manifest = buildManifest(hardware, revision);
      mesh = createMesh(now());
    },
    rotateMesh() {
      mesh = createMesh(now());
    },
  };
}

function attestationDocument(input: {
  readonly nonce: Uint8Array;
  readonly manifest: Manifest;
  readonly mesh: Mesh;
  readonly hardware: Hardware;
  readonly tee: Tee;
  readonly vcpus: 1 | 2;
  readonly faults: Faults;
}): Uint8Array {
  const { manifest, mesh, hardware, tee, vcpus, faults } = input;
  const manifests = faults.get('evidence-history')
    ? [buildManifest(hardware, -1).bytes, manifest.bytes]
    : [manifest.bytes];
  const nonce = faults.get('evidence-stale-nonce') ? new Uint8Array(randomBytes(32)) : input.nonce;
  const [rootCa, meshCa] = [Buffer.from(mesh.rootCaPem), Buffer.from(mesh.meshCaPem)];
  const { type, make } = EVIDENCE[tee];
  const evidence = make({
    hardware,
    reportData: reportData({ nonce, transition: transitionDigest(manifests), rootCa, meshCa }),
    coordinatorHash: manifest.coordinatorHash,
    vcpus,
    faults,
  });
  const servedMeshCa = faults.get('evidence-mesh-ca')
    ? Buffer.from(createMesh(Date.now()).meshCaPem)
    : meshCa;
  const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
  const document = {
    version: COORDINATOR_VERSION,
    raw_attestation_doc: base64(evidence),
    attestation_type: type,
    manifests: manifests.map(base64),
    policies: shuffled(manifest.policies).map(base64),
    root_ca: base64(rootCa),
    mesh_ca: base64(servedMeshCa),
  };
  return Buffer.from(`${JSON.stringify(document)}\n`, 'utf8');
}

/**
 * The identity that responds to a secret exchange. Its certificate is new each time, so that it follows the
 * clock and the faults.
 */
function secretService(mesh: Mesh, faults: Faults, now: number): WorkloadCertificate {
  return issueWorkload(
    faults.get('secret-foreign-ca') ? createMesh(now) : mesh,
    identityOf(faults.get('secret-workload') ? 'workload-chat' : 'secret-service'),
    now,
    faults.get('secret-expired-certificate'),
  );
}

/** Fisher and Yates: the coordinator lists its policies in random order (docs/protocol/attestation.md 2). */
function shuffled<T>(items: readonly T[]): T[] {
  const result = [...items];
  for (let last = result.length - 1; last > 0; last--) {
    const other = randomInt(last + 1);
    [result[last], result[other]] = [result[other] as T, result[last] as T];
  }
  return result;
}
