/**
 * Checks the attestation document. READING_ROWS come first and check that all inputs can be read.
 * MANIFEST_ROWS come after the checks of the signer and check the manifest, the policies and the mesh CA.
 */
import { constantTimeEqual } from '#crypto';
import { plural } from '../text.ts';
import { finding, notApplicable, type Rows, row, sha256Hex } from './check.ts';
import type { AttestationDocument, Evidence } from './document.ts';
import type { Manifest } from './manifest.ts';
import { judgeMeshCa } from './mesh.ts';

export const NONCE_BYTES = 32;

const ATTESTATION_TYPE = { snp: '1.3.9901.2.1', tdx: '1.3.9901.2.2' } as const;

/** The manifest, attestation document and evidence after parsing, together with the nonce. */
export interface ReadSubject {
  readonly manifest: Manifest;
  readonly nonce: Uint8Array;
  readonly document: AttestationDocument;
  readonly evidence: Evidence;
}

/** Checks that manifest, document and evidence can be read, beginning with the expected manifest. */
export const READING_ROWS: Rows<ReadSubject> = [
  row('manifest.valid', 'Validity of the manifest', '4, 19.11, 19.12', {
    expected: 'a manifest that this version understands completely',
    code: 'manifest_invalid',
    judge: ({ manifest: { policies, snp, tdx } }) =>
      finding(true, `${policies.size} policies, ${snp.length} SNP and ${tdx.length} TDX entries`),
  }),
  row('nonce.length', 'Nonce', '2 no. 1', {
    expected: '32 bytes',
    judge: ({ nonce }) => finding(nonce.length === NONCE_BYTES, `${nonce.length} bytes`),
  }),
  row('document.form', 'Form of the attestation document', '2, 19.8', {
    expected: 'one JSON object with the members of an attestation document',
    code: 'evidence_malformed',
    judge: ({ document: { version = 'of no stated version' } }) =>
      finding(true, `from coordinator ${JSON.stringify(version)}`),
  }),
  row('evidence.form', 'Form of the evidence', '2 no. 4, 6.1, 9.1, 19.9', {
    expected: 'a SEV-SNP or TDX message; unsigned development evidence is neither',
    code: 'evidence_malformed',
    judge: ({ evidence }) => finding(true, { snp: 'SEV-SNP', tdx: 'TDX' }[evidence.tee]),
  }),
];

interface ManifestSubject extends ReadSubject {
  /** The exact bytes of the expected manifest. */
  readonly expectedManifest: Uint8Array;
  readonly now: Date;
}

/** Checks the document. The document's manifests are compared with the expected one, but never parsed. */
export const MANIFEST_ROWS: Rows<ManifestSubject> = [
  row('manifest.count', 'One manifest', '2 no. 7', {
    expected: 'a history of exactly one manifest',
    judge: ({ document: { manifests } }) =>
      finding(manifests.length === 1, plural(manifests.length, 'manifest')),
  }),
  row('manifest.expected', 'The expected manifest', '2 no. 7', {
    expected: 'byte for byte the expected manifest',
    code: 'manifest_mismatch',
    judge: ({ document: { manifests }, expectedManifest }) =>
      finding(
        manifests.length > 0 && manifests.every((each) => constantTimeEqual(each, expectedManifest)),
        `SHA-256 ${manifests.map(sha256Hex).join(', ') || 'of none'}`,
        `SHA-256 ${sha256Hex(expectedManifest)}`,
      ),
  }),
  row('document.policies', 'Policy documents', '13.6, 19.12 rule 14', {
    expected: "documents whose SHA-256 are exactly the manifest's policies, once each",
    judge: ({ document: { policies }, manifest: { policies: listed } }) => {
      const hashes = new Set(policies.map(sha256Hex));
      const missing = [...listed.keys()].filter((hash) => !hashes.has(hash)).length;
      const extra = [...hashes].filter((hash) => !listed.has(hash)).length;
      const repeated = policies.length - hashes.size;
      const counted = `${missing} missing, ${extra} extra, ${repeated} repeated`;
      return finding(missing + extra + repeated === 0, `${policies.length} documents, ${counted}`);
    },
  }),
  row('document.mesh_ca', 'Mesh CA certificate', '2 no. 7, 12, 13.9, 13.10', {
    expected: 'exactly one CERTIFICATE block with a CA that is valid at this time',
    judge: ({ document, now }) => judgeMeshCa(Buffer.from(document.meshCa).toString('latin1'), now),
  }),
  row('evidence.type', 'Stated type of the evidence', '19.8', {
    expected: 'absent, or the type of the message',
    conditional: true,
    judge: ({ document: { attestationType: stated }, evidence: { tee } }) =>
      stated === undefined
        ? notApplicable('absent')
        : finding(stated === ATTESTATION_TYPE[tee], stated, ATTESTATION_TYPE[tee]),
  }),
  row('evidence.reference_values', 'Reference values for this kind of evidence', '2 no. 4', {
    expected: 'at least one in the manifest',
    judge: ({ manifest, evidence: { tee } }) => finding(manifest[tee].length > 0, `${manifest[tee].length}`),
  }),
];
