/**
 * Checks the mesh certificates (docs/protocol/attestation.md 12, 13.1, 19.11). The mesh CA is trusted because
 * the hardware vouches for its bytes. Only the secret service may sign the response of the secret exchange.
 */
import { parseDer, readOctetString } from '../crypto/der.ts';
import { verifyEcdsa } from '../crypto/signature.ts';
import { type Check, Checks, finding, type Rows, row } from './check.ts';
import { type PolicyEntry, parseManifest, secretServiceEntry } from './manifest.ts';
import { inForce, issuedBy, verified } from './validity.ts';
import * as x509 from './x509.ts';

/** The request and the response of a secret exchange. */
export interface SecretMessages {
  /** The HPKE public key that was sent (1216 bytes), and the encapsulated key received (1120 bytes). */
  readonly publicKey: Uint8Array;
  readonly encapsulatedKey: Uint8Array;
  /** The ECDSA signature in ASN.1 DER, and the DER certificate of the key that made the signature. */
  readonly signature: Uint8Array;
  readonly meshCert: Uint8Array;
}

/** The messages of a secret exchange, and the other inputs that the checks of a secret exchange need. */
export interface SecretResponseInput extends SecretMessages {
  /** The mesh CA from an accepted verdict, in PEM. */
  readonly meshCaPem: string;
  /** The exact bytes of the expected manifest. */
  readonly manifest: Uint8Array;
  readonly now: Date;
}

interface SecretSubject extends SecretResponseInput {
  readonly meshCa: x509.Certificate;
  readonly certificate: x509.Certificate;
  /** The manifest's entry for the secret service. The certificate must agree with the entry's values. */
  readonly service: PolicyEntry;
}

const { basicConstraints, keyUsage, extendedKeyUsage, subjectAltName, nameConstraints } = x509.EXTENSION_OID;
const LEAF_EXTENSIONS = [basicConstraints, keyUsage, extendedKeyUsage, subjectAltName];
/** The OIDs of serverAuth and anyExtendedKeyUsage. */
const SERVER_PURPOSES = ['1.3.6.1.5.5.7.3.1', '2.5.29.37.0'];
const mayServe = (purposes: readonly string[] | undefined): boolean =>
  purposes === undefined || purposes.some((oid) => SERVER_PURPOSES.includes(oid));
const WORKLOAD_SECRET_ID = '1.3.9901.3.1';

/**
 * Judges whether the mesh CA can be a trust anchor. A self-issued mesh CA must be signed by its own key. The
 * signature of a mesh CA with another issuer is not checked. Throws evidence_malformed for unreadable input.
 */
export async function judgeMeshCa(pem: string, now: Date) {
  const meshCa = x509.certificateIn(pem);
  const name = x509.nameText(meshCa.subject);
  if (meshCa.version !== 3) return finding(false, `${name} is no version 3 certificate`);
  if (!x509.maySignCertificates(meshCa)) return finding(false, `${name} may not sign certificates`);
  if (meshCa.publicKey.curve === undefined) return finding(false, `${name} has no key on P-256 or P-384`);
  const critical = x509.unhandledCritical(meshCa.extensions, basicConstraints, keyUsage);
  if (critical !== undefined) return finding(false, `${name} has the critical extension ${critical}`);
  // Refuse a CA that is limited to some purposes or names, because these limits are not evaluated.
  if (!mayServe(meshCa.extendedKeyUsage)) return finding(false, `${name} may not issue for servers`);
  if (meshCa.extensions.has(nameConstraints)) return finding(false, `${name} is limited to some names`);
  const validity = inForce(now, meshCa);
  if (validity.outcome === 'fail') return { ...validity, found: `${name} is valid from ${validity.found}` };
  const forged = x509.sameName(meshCa.issuer, meshCa.subject) && !(await x509.verifySignedBy(meshCa, meshCa));
  return finding(!forged, forged ? `${name} is not signed by its own key` : name);
}

const same = (found: string | undefined, expected: string) =>
  finding(found === expected, found ?? 'none', expected);

export const MESH_ROWS: Rows<SecretSubject> = [
  row('mesh.certificate.form', 'Form of the mesh certificate', '12', {
    expected: 'one X.509 version 3 certificate in DER',
    code: 'evidence_malformed',
    judge: ({ certificate: { version } }) => finding(version === 3, `version ${version}`),
  }),
  row('mesh.certificate.signature', 'Issuer of the mesh certificate', '12', {
    expected: 'issued and signed by the attested mesh CA',
    judge: ({ certificate, meshCa }) =>
      x509.maySignCertificates(meshCa)
        ? issuedBy(certificate, meshCa)
        : finding(false, 'the mesh CA may not sign certificates'),
  }),
  row('mesh.certificate.validity', 'Validity of the mesh certificate', '12', {
    expected: 'mesh certificate and mesh CA are valid at this time',
    judge: ({ certificate, meshCa, now }) => inForce(now, certificate, meshCa),
  }),
  row('mesh.certificate.usage', 'Purpose of the mesh certificate', '12', {
    expected: 'may sign, for a server, and has no critical extension that is not understood',
    judge: ({ certificate: leaf }) => {
      const critical = x509.unhandledCritical(leaf.extensions, ...LEAF_EXTENSIONS);
      if (critical !== undefined) return finding(false, `the critical extension ${critical}`);
      const { keyUsage: uses, extendedKeyUsage: purposes } = leaf;
      const signs = uses === undefined || uses.has('digitalSignature');
      const named = uses?.size === 0 ? ['no use'] : (uses ?? ['any use']);
      return finding(mayServe(purposes) && signs, `${[...named, ...(purposes ?? ['any purpose'])]}`);
    },
  }),
  row('mesh.certificate.key', 'Key of the mesh certificate', '12', {
    expected: 'ECDSA on P-256 or P-384',
    judge: ({ certificate: { publicKey } }) =>
      finding(publicKey.curve !== undefined, publicKey.curve ?? publicKey.algorithm),
  }),
  row('mesh.identity.workload_secret_id', 'Identity of the secret service', '13.1, 19.11', {
    expected: 'the WorkloadSecretID of the secret service in the manifest',
    judge: ({ certificate, service: { workloadSecretId: expected } }) => {
      const value = certificate.extensions.get(WORKLOAD_SECRET_ID)?.value;
      const found = value && Buffer.from(readOctetString(parseDer(value))).toString('utf8');
      return same(found, expected);
    },
  }),
  row('mesh.identity.common_name', 'Common name of the secret service', '19.11', {
    expected: "the first SAN of the secret service's entry in the manifest",
    judge: ({ certificate, service }) => same(x509.commonName(certificate.subject), service.sans[0] ?? ''),
  }),
];

export const SECRET_ROWS: Rows<SecretSubject> = [
  row('secret.form', 'Lengths in the secret exchange', '12', {
    expected: 'a public key of 1216 and an encapsulated key of 1120 bytes',
    code: 'evidence_malformed',
    judge: ({ publicKey, encapsulatedKey }) =>
      finding(
        publicKey.length === 1216 && encapsulatedKey.length === 1120,
        `${publicKey.length} and ${encapsulatedKey.length} bytes`,
      ),
  }),
  row('secret.signature', 'Signature on the secret exchange', '12', {
    expected: 'ECDSA with SHA-256, in DER, by the mesh certificate over public key and encapsulated key',
    judge: async ({ certificate: { publicKey: key }, publicKey, encapsulatedKey, signature }) => {
      const data = Buffer.concat([publicKey, encapsulatedKey]);
      return verified(await verifyEcdsa({ key, hash: 'sha256', encoding: 'der', data, signature }));
    },
  }),
];

/**
 * Returns one check for each row of MESH_ROWS and SECRET_ROWS. All returned checks must pass. HPKE decides
 * later whether the encapsulated key can be opened. Rejects only for defects of this program.
 */
export async function verifySecretResponse(input: SecretResponseInput): Promise<readonly Check[]> {
  const rows = [...MESH_ROWS, ...SECRET_ROWS];
  const checks = new Checks(rows);
  const certificate = await checks.read('mesh.certificate.form', () => x509.parseCertificate(input.meshCert));
  const meshCa = await checks.read('mesh.certificate.signature', () => x509.certificateIn(input.meshCaPem));
  const service = await checks.read('mesh.identity.workload_secret_id', () =>
    secretServiceEntry(parseManifest(input.manifest)),
  );
  if (certificate && meshCa && service) await checks.run(rows, { ...input, certificate, meshCa, service });
  return checks.of(rows);
}
