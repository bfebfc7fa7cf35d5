/**
 * Who signed the secret exchange: a certificate of the mesh CA, and of the secret service, not of just any workload
 * (attestation.md 12, 13.1, 19.11).
 */
import { verifyEcdsa } from '../crypto/signature.ts';
import { type Attempt, attempt, demand, valueIn } from './attempt.ts';
import { type Check, type CheckRow, finding, runChecks } from './check.ts';
import { parseManifest, secretServiceEntry } from './manifest.ts';
import { readMeshCa } from './mesh-ca.ts';
import { period } from './period.ts';
import {
  type Certificate,
  isTimeValid,
  maySignCertificates,
  parseCertificate,
  unhandledCritical,
  verifySignedBy,
} from './x509/certificate.ts';
import { malformed, parseDer } from './x509/der.ts';
import { readOctetString } from './x509/der-values.ts';
import { EXTENSION_OID, extensionValue } from './x509/extensions.ts';
import { commonName, sameName } from './x509/name.ts';

export interface MeshCertificateInput {
  /** The mesh CA of an accepted verdict. */
  readonly meshCaPem: string;
  /** One DER certificate. */
  readonly meshCert: Uint8Array;
  /** The expected manifest, byte for byte. */
  readonly manifest: Uint8Array;
  readonly now: Date;
}

export interface SecretResponseInput extends MeshCertificateInput {
  /** The HPKE public key that was sent, 1216 bytes. */
  readonly publicKey: Uint8Array;
  /** 1120 bytes. */
  readonly encapsulatedKey: Uint8Array;
  /** ASN.1 DER ECDSA signature. */
  readonly signature: Uint8Array;
}

interface MeshSubject {
  readonly now: Date;
  readonly meshCa: Attempt<Certificate>;
  readonly certificate: Attempt<Certificate>;
  /** What the certificate must carry to be the secret service's. */
  readonly identity: Attempt<{ readonly workloadSecretId: string; readonly commonName: string }>;
}

const WORKLOAD_SECRET_ID = '1.3.9901.3.1';
const HANDLED = [
  EXTENSION_OID.basicConstraints,
  EXTENSION_OID.keyUsage,
  EXTENSION_OID.extendedKeyUsage,
  EXTENSION_OID.subjectAltName,
];
const SERVER_PURPOSES = ['1.3.6.1.5.5.7.3.1', '2.5.29.37.0'];

/** The WorkloadSecretID in a certificate; undefined where there is none. Throws evidence_malformed. */
function workloadSecretId({ extensions }: Certificate): string | undefined {
  const value = extensionValue(extensions, WORKLOAD_SECRET_ID);
  return value === undefined ? undefined : Buffer.from(readOctetString(parseDer(value))).toString('utf8');
}

export const MESH_ROWS: readonly CheckRow<MeshSubject>[] = [
  {
    id: 'mesh.certificate.form',
    title: 'Form of the mesh certificate',
    source: 'attestation.md 12',
    expected: 'one X.509 version 3 certificate in DER',
    code: 'evidence_malformed',
    judge: ({ certificate }) => {
      const read = demand(certificate);
      return read && finding(read.version === 3, `version ${read.version}`);
    },
  },
  {
    id: 'mesh.certificate.signature',
    title: 'Issuer of the mesh certificate',
    source: 'attestation.md 12',
    expected: 'issued and signed by the attested mesh CA',
    judge: ({ certificate, meshCa }) => {
      const [leaf, issuer] = [valueIn(certificate), demand(meshCa)];
      if (leaf === undefined || issuer === undefined) return undefined;
      if (!sameName(leaf.issuer, issuer.subject)) return finding(false, 'another issuer');
      if (!maySignCertificates(issuer)) return finding(false, 'the mesh CA may not sign certificates');
      const signed = verifySignedBy(leaf, issuer);
      return finding(signed, signed ? 'valid' : 'the signature does not verify');
    },
  },
  {
    id: 'mesh.certificate.validity',
    title: 'Validity of the mesh certificate',
    source: 'attestation.md 12',
    expected: 'mesh certificate and mesh CA are valid at this time',
    judge: ({ certificate, meshCa, now }) => {
      const [leaf, issuer] = [valueIn(certificate), valueIn(meshCa)];
      if (leaf === undefined || issuer === undefined) return undefined;
      const invalid = [leaf, issuer].filter((each) => !isTimeValid(each, now));
      const { notBefore, notAfter } = invalid[0] ?? leaf;
      return finding(invalid.length === 0, period(notBefore, notAfter, now));
    },
  },
  {
    id: 'mesh.certificate.usage',
    title: 'Purpose of the mesh certificate',
    source: 'attestation.md 12',
    expected: 'may sign, for a server, and has no critical extension that is not understood',
    judge: ({ certificate }) => {
      const leaf = valueIn(certificate);
      if (leaf === undefined) return undefined;
      const [critical] = unhandledCritical(leaf, HANDLED);
      if (critical !== undefined) return finding(false, `the critical extension ${critical}`);
      const purposes = leaf.extendedKeyUsage;
      const server = purposes === undefined || purposes.some((oid) => SERVER_PURPOSES.includes(oid));
      const signs = leaf.keyUsage === undefined || leaf.keyUsage.has('digitalSignature');
      return finding(
        server && signs,
        `${[...(leaf.keyUsage ?? ['any use']), ...(purposes ?? ['any purpose'])]}`,
      );
    },
  },
  {
    id: 'mesh.certificate.key',
    title: 'Key of the mesh certificate',
    source: 'attestation.md 12',
    expected: 'ECDSA on P-256 or P-384',
    judge: ({ certificate }) => {
      const key = valueIn(certificate)?.publicKey;
      return key && finding(key.curve !== undefined, key.curve ?? key.algorithm);
    },
  },
  {
    id: 'mesh.identity.workload_secret_id',
    title: 'Identity of the secret service',
    source: 'attestation.md 13.1, 19.11',
    expected: 'the WorkloadSecretID of the secret service in the manifest',
    judge: ({ certificate, identity }) => {
      const [leaf, expected] = [valueIn(certificate), demand(identity)];
      if (leaf === undefined || expected === undefined) return undefined;
      const found = workloadSecretId(leaf);
      return finding(found === expected.workloadSecretId, found ?? 'none', expected.workloadSecretId);
    },
  },
  {
    id: 'mesh.identity.common_name',
    title: 'Common name of the secret service',
    source: 'attestation.md 19.11',
    expected: "the first SAN of the secret service's entry in the manifest",
    judge: ({ certificate, identity }) => {
      const [leaf, expected] = [valueIn(certificate), valueIn(identity)];
      if (leaf === undefined || expected === undefined) return undefined;
      const found = commonName(leaf.subject);
      return finding(found === expected.commonName, found ?? 'none', expected.commonName);
    },
  },
];

interface SecretSubject extends MeshSubject {
  readonly publicKey: Uint8Array;
  readonly encapsulatedKey: Uint8Array;
  readonly signature: Uint8Array;
}

const PUBLIC_KEY_BYTES = 1216;
const ENCAPSULATED_KEY_BYTES = 1120;

export const SECRET_ROWS: readonly CheckRow<SecretSubject>[] = [
  {
    id: 'secret.form',
    title: 'Lengths in the secret exchange',
    source: 'attestation.md 12',
    expected: 'a public key of 1216 and an encapsulated key of 1120 bytes',
    code: 'evidence_malformed',
    judge: ({ publicKey, encapsulatedKey }) =>
      finding(
        publicKey.length === PUBLIC_KEY_BYTES && encapsulatedKey.length === ENCAPSULATED_KEY_BYTES,
        `${publicKey.length} and ${encapsulatedKey.length} bytes`,
      ),
  },
  {
    id: 'secret.signature',
    title: 'Signature on the secret exchange',
    source: 'attestation.md 12',
    expected: 'ECDSA with SHA-256, in DER, by the mesh certificate over public key and encapsulated key',
    judge: ({ certificate, publicKey, encapsulatedKey, signature }) => {
      const key = valueIn(certificate)?.publicKey.key;
      if (key === undefined) return undefined;
      const data = Buffer.concat([publicKey, encapsulatedKey]);
      const valid = verifyEcdsa({ key, hash: 'sha256', encoding: 'der', data, signature });
      return finding(valid, valid ? 'valid' : 'the signature does not verify');
    },
  },
];

function meshSubject({ meshCaPem, meshCert, manifest, now }: MeshCertificateInput): MeshSubject {
  return {
    now,
    meshCa: attempt(() => readMeshCa(meshCaPem)),
    certificate: attempt(() => parseCertificate(meshCert)),
    identity: attempt(() => {
      const entry = secretServiceEntry(parseManifest(manifest));
      if (entry === undefined) throw malformed('the manifest does not name exactly one secret service');
      return { workloadSecretId: entry.workloadSecretId, commonName: entry.sans[0] ?? '' };
    }),
  };
}

/** Judges a mesh certificate: one check per row of MESH_ROWS. It is good if every one of them passes. Never throws. */
export function verifyMeshCertificate(input: MeshCertificateInput): Check[] {
  return runChecks(MESH_ROWS, meshSubject(input));
}

/**
 * Judges the answer of the secret exchange: MESH_ROWS, then SECRET_ROWS. It is good if every check passes; whether
 * the encapsulated key opens is for HPKE to say. Never throws.
 */
export function verifySecretResponse(input: SecretResponseInput): readonly Check[] {
  const { publicKey, encapsulatedKey, signature } = input;
  const subject = { ...meshSubject(input), publicKey, encapsulatedKey, signature };
  return [...runChecks(MESH_ROWS, subject), ...runChecks(SECRET_ROWS, subject)];
}
