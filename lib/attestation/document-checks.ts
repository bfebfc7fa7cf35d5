/** The checks before any hardware is involved: nonce, document, manifest, policies, kind of evidence. */
import { constantTimeEqual, sha256 } from '#crypto/digest';
import { type Attempt, type CheckRow, demand, finding, need, notApplicable, row } from './check.ts';
import type { AttestationDocument } from './document.ts';
import type { Manifest } from './manifest.ts';
import { judgeMeshCa } from './mesh.ts';

export const NONCE_BYTES = 32;

export interface DocumentSubject {
  readonly nonce: Uint8Array;
  readonly expectedManifest: Uint8Array;
  readonly now: Date;
  readonly document: Attempt<AttestationDocument>;
  readonly manifest: Attempt<Manifest>;
  /** The evidence format whose message this is. */
  readonly evidence: Attempt<{
    readonly name: string;
    readonly attestationType: string;
    /** One per reference value. */
    readonly judgements: readonly unknown[];
  }>;
}

const sha256Hex = (bytes: Uint8Array): string => Buffer.from(sha256(bytes)).toString('hex');

export const DOCUMENT_ROWS: readonly CheckRow<DocumentSubject>[] = [
  row('nonce.length', 'Nonce', 'attestation.md 2 no. 1', '32 bytes', ({ nonce }) =>
    finding(nonce.length === NONCE_BYTES, `${nonce.length} bytes`),
  ),
  row(
    'document.form',
    'Form of the attestation document',
    'attestation.md 2, 19.8',
    'one JSON object with the members of an attestation document',
    ({ document }) => {
      const { version = 'of no stated version' } = demand(document);
      return finding(true, `from coordinator ${JSON.stringify(version)}`);
    },
    { code: 'evidence_malformed' },
  ),
  row(
    'manifest.count',
    'One manifest',
    'attestation.md 2 no. 7',
    'a history of exactly one manifest',
    ({ document }) =>
      finding(need(document).manifests.length === 1, `${need(document).manifests.length} manifests`),
  ),
  row(
    'manifest.expected',
    'The expected manifest',
    'attestation.md 2 no. 7',
    'byte for byte the expected manifest',
    ({ document, expectedManifest }) => {
      const { manifests } = need(document);
      return finding(
        manifests.length > 0 && manifests.every((each) => constantTimeEqual(each, expectedManifest)),
        `SHA-256 ${manifests.map(sha256Hex).join(', ') || 'of none'}`,
        `SHA-256 ${sha256Hex(expectedManifest)}`,
      );
    },
    { code: 'manifest_mismatch' },
  ),
  row(
    'manifest.valid',
    'Validity of the manifest',
    'attestation.md 4, 19.12',
    'a manifest that this version understands completely',
    ({ manifest }) => {
      const { policies, snp, tdx } = demand(manifest);
      return finding(true, `${policies.size} policies, ${snp.length} SNP and ${tdx.length} TDX entries`);
    },
    { code: 'manifest_invalid' },
  ),
  row(
    'document.policies',
    'Policy documents',
    'attestation.md 13.6, 19.12 rule 14',
    "documents whose SHA-256 are exactly the manifest's policies, once each",
    ({ document, manifest }) => {
      const { policies } = need(document);
      const listed = need(manifest).policies;
      const hashes = new Set(policies.map(sha256Hex));
      const missing = [...listed.keys()].filter((hash) => !hashes.has(hash)).length;
      const extra = [...hashes].filter((hash) => !listed.has(hash)).length;
      const repeated = policies.length - hashes.size;
      return finding(
        missing + extra + repeated === 0,
        `${policies.length} documents, ${missing} missing, ${extra} extra, ${repeated} repeated`,
      );
    },
  ),
  row(
    'document.mesh_ca',
    'Mesh CA certificate',
    'attestation.md 2 no. 7, 12, 13.9, 13.10',
    'exactly one CERTIFICATE block with a CA that is valid at this time',
    ({ document, now }) => judgeMeshCa(Buffer.from(need(document).meshCa).toString('latin1'), now),
  ),
  row(
    'evidence.form',
    'Form of the evidence',
    'attestation.md 2 no. 4, 6.1, 9.1, 19.9',
    'a SEV-SNP or TDX message; unsigned development evidence is neither',
    ({ evidence }) => finding(true, demand(evidence).name),
    { code: 'evidence_malformed' },
  ),
  row(
    'evidence.type',
    'Stated type of the evidence',
    'attestation.md 19.8',
    'absent, or the type of the message',
    ({ document, evidence }) => {
      const stated = need(document).attestationType;
      if (stated === undefined) return notApplicable('absent');
      const { attestationType } = need(evidence);
      return finding(stated === attestationType, stated, attestationType);
    },
    { conditional: true },
  ),
  row(
    'evidence.reference_values',
    'Reference values for this kind of evidence',
    'attestation.md 2 no. 4',
    'at least one in the manifest',
    ({ manifest, evidence }) => {
      const { length } = need(evidence).judgements;
      return manifest?.value && finding(length > 0, String(length));
    },
  ),
];
