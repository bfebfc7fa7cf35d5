/** The simulated deployment as clients see it: one manifest, one mesh, a coordinator and a secret service. */
import { randomBytes, randomInt, sign } from 'node:crypto';
import { KEM_MLKEM768_X25519 } from '@panva/hpke-noble';
import { AEAD_EXPORT_ONLY, CipherSuite, KDF_HKDF_SHA256 } from 'hpke';
import { sha256 } from '#crypto';
import { reportData, transitionDigest } from '../lib/attestation/document.ts';
import { snpEvidence } from './evidence/snp.ts';
import { tdxEvidence } from './evidence/tdx.ts';
import type { Faults } from './faults.ts';
import type { Hardware } from './hardware.ts';
import { buildManifest, identityOf, type Manifest } from './manifest.ts';
import { createMesh, issueWorkload, type Mesh, type WorkloadCertificate } from './pki/mesh.ts';

export type Tee = 'snp' | 'tdx';

/** For each kind of hardware, the object identifier of its evidence, and the function that makes it. */
const EVIDENCE = {
  snp: { type: [1, 3, 9901, 2, 1], make: snpEvidence },
  tdx: { type: [1, 3, 9901, 2, 2], make: tdxEvidence },
} as const;

const COORDINATOR_VERSION = 'v1.24.1';

interface Platform {
  readonly hardware: Hardware;
  readonly tee: Tee;
  /** vCPUs of the SEV-SNP guest; its launch digest depends on their number. Default: 2. */
  readonly vcpus?: 1 | 2;
  readonly faults: Faults;
}

export type Deployment = ReturnType<typeof createDeployment>;

/** `revision`: the number of the first manifest, by default 0. `now`: in ms since 1970. */
export function createDeployment(
  options: Platform & { readonly revision?: number; readonly now: () => number },
) {
  const { hardware, faults, now } = options;
  let { revision = 0 } = options;
  let manifest = buildManifest(hardware, revision);
  let mesh = createMesh(now());
  return {
    /** The active manifest, and its number. */
    manifest: (): Manifest => manifest,
    revision: () => revision,
    /** The attestation document for a nonce of 32 bytes (docs/protocol/attestation.md 2, 19.8). */
    attest: (nonce: Uint8Array) => attestationDocument(options, manifest, mesh, nonce),
    /** The secret service's response to an HPKE public key; rejects if the bytes are no such key. */
    exchange: (publicKey: Uint8Array) =>
      exchangeSecret(publicKey, secretService(mesh, faults, now()), faults),
    /** A new deployment takes over: new manifest, new mesh. */
    rotateManifest() {
      revision += 1;
      manifest = buildManifest(hardware, revision);
      mesh = createMesh(now());
    },
    /** The coordinator restarts: same manifest, new mesh. */
    rotateMesh() {
      mesh = createMesh(now());
    },
  };
}

function attestationDocument(
  { hardware, tee, vcpus = 2, faults }: Platform,
  manifest: Manifest,
  mesh: Mesh,
  asked: Uint8Array,
): Uint8Array {
  const manifests = [manifest.bytes];
  if (faults.get('evidence-history')) manifests.unshift(buildManifest(hardware, -1).bytes);
  const nonce = faults.get('evidence-stale-nonce') ? new Uint8Array(randomBytes(32)) : asked;
  const [rootCa, meshCa] = [Buffer.from(mesh.rootCaPem), Buffer.from(mesh.meshCaPem)];
  const { type, make } = EVIDENCE[tee];
  const bound = reportData({ nonce, transition: transitionDigest(manifests), rootCa, meshCa });
  const { coordinatorHash } = manifest;
  const evidence = make({ hardware, reportData: bound, coordinatorHash, vcpus, faults });
  const otherMesh = faults.get('evidence-mesh-ca') ? createMesh(Date.now()).meshCaPem : undefined;
  const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
  const document = {
    version: COORDINATOR_VERSION,
    raw_attestation_doc: base64(evidence),
    attestation_type: type,
    manifests: manifests.map(base64),
    policies: shuffled(manifest.policies).map(base64),
    root_ca: base64(rootCa),
    mesh_ca: base64(otherMesh === undefined ? meshCa : Buffer.from(otherMesh)),
  };
  return Buffer.from(`${JSON.stringify(document)}\n`, 'utf8');
}

/** Who responds to a secret exchange. Its certificate is new each time, by the clock and the faults. */
function secretService(mesh: Mesh, faults: Faults, now: number): WorkloadCertificate {
  return issueWorkload(
    faults.get('secret-foreign-ca') ? createMesh(now) : mesh,
    identityOf(faults.get('secret-workload') ? 'workload-chat' : 'secret-service'),
    now,
    faults.get('secret-expired-certificate'),
  );
}

/** The coordinator lists its policies in an order of its own (docs/protocol/attestation.md 2). */
function shuffled<T>(items: readonly T[]): T[] {
  const first = randomInt(items.length);
  return [...items.slice(first), ...items.slice(0, first)];
}

/** Uses the KEM of noble: Node's built-in one would raise an ExperimentalWarning for ML-KEM in WebCrypto. */
const SUITE = new CipherSuite(KEM_MLKEM768_X25519, KDF_HKDF_SHA256, AEAD_EXPORT_ONLY);

export const HPKE_PUBLIC_KEY_BYTES = 1216;
const SECRET_BYTES = 32;

/**
 * The secret service's half of the exchange (docs/protocol/attestation.md 12, docs/protocol/inference.md 10):
 * encapsulates a secret to the client's public key, exports it, and signs the public key and the encapsulated
 * key together. Rejects for bytes that are no public key of this KEM.
 */
async function exchangeSecret(publicKey: Uint8Array, service: WorkloadCertificate, faults: Faults) {
  const recipient = await SUITE.DeserializePublicKey(publicKey);
  const { encapsulatedSecret: encapsulatedKey, exportedSecret: secret } = await SUITE.SendExport(
    recipient,
    new Uint8Array(0),
    SECRET_BYTES,
  );
  const signed = [publicKey, encapsulatedKey];
  if (faults.get('secret-signature')) signed.reverse();
  return {
    /** base64(SHA-256(public key)). */
    id: Buffer.from(sha256(publicKey)).toString('base64'),
    secret,
    encapsulatedKey,
    /** ASN.1 DER ECDSA. */
    signature: sign('sha256', Buffer.concat(signed), service.key),
    /** DER. */
    meshCert: service.certificate,
  };
}
