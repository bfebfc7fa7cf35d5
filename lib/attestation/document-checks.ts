/** The checks before any hardware is involved: nonce, document, manifest, policies, kind of evidence. */
import { constantTimeEqual, sha256 } from '../crypto/digest.ts';
import { type Attempt, demand, valueIn } from './attempt.ts';
import { type CheckRow, finding, notApplicable } from './check.ts';
import type { AttestationDocument } from './document.ts';
import type { Manifest } from './manifest.ts';
import { judgeMeshCa } from './mesh-ca.ts';

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
    readonly referenceValues: number;
  }>;
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const sha256Hex = (bytes: Uint8Array): string => hex(sha256(bytes));

export const DOCUMENT_ROWS: readonly CheckRow<DocumentSubject>[] = [
  {
    id: 'nonce.length',
    title: 'Nonce',
    source: 'attestation.md 2 no. 1',
    expected: '32 bytes',
    judge: ({ nonce }) => finding(nonce.length === NONCE_BYTES, `${nonce.length} bytes`),
  },
  {
    id: 'document.form',
    title: 'Form of the attestation document',
    source: 'attestation.md 2, 19.8',
    expected: 'one JSON object with the members of an attestation document',
    code: 'evidence_malformed',
    judge: ({ document }) => {
      const read = demand(document);
      return (
        read && finding(true, `from coordinator ${JSON.stringify(read.version ?? 'of no stated version')}`)
      );
    },
  },
  {
    id: 'manifest.count',
    title: 'One manifest',
    source: 'attestation.md 2 no. 7',
    expected: 'a history of exactly one manifest',
    judge: ({ document }) => {
      const manifests = valueIn(document)?.manifests;
      return manifests && finding(manifests.length === 1, `${manifests.length} manifests`);
    },
  },
  {
    id: 'manifest.expected',
    title: 'The expected manifest',
    source: 'attestation.md 2 no. 7',
    expected: 'byte for byte the expected manifest',
    code: 'manifest_mismatch',
    judge: ({ document, expectedManifest }) => {
      const manifests = valueIn(document)?.manifests;
      return (
        manifests &&
        finding(
          manifests.length > 0 && manifests.every((each) => constantTimeEqual(each, expectedManifest)),
          `SHA-256 ${manifests.map(sha256Hex).join(', ') || 'of none'}`,
          `SHA-256 ${sha256Hex(expectedManifest)}`,
        )
      );
    },
  },
  {
    id: 'manifest.valid',
    title: 'Validity of the manifest',
    source: 'attestation.md 4, 19.12',
    expected: 'a manifest that this version understands completely',
    code: 'manifest_invalid',
    judge: ({ manifest }) => {
      const read = demand(manifest);
      return (
        read &&
        finding(
          true,
          `${read.policies.size} policies, ${read.snp.length} SNP and ${read.tdx.length} TDX entries`,
        )
      );
    },
  },
  {
    id: 'document.policies',
    title: 'Policy documents',
    source: 'attestation.md 13.6, 19.12 rule 14',
    expected: "documents whose SHA-256 are exactly the manifest's policies, once each",
    judge: ({ document, manifest }) => {
      const policies = valueIn(document)?.policies;
      const listed = valueIn(manifest)?.policies;
      if (policies === undefined || listed === undefined) return undefined;
      const hashes = new Set(policies.map(sha256Hex));
      const missing = [...listed.keys()].filter((hash) => !hashes.has(hash)).length;
      const extra = [...hashes].filter((hash) => !listed.has(hash)).length;
      const repeated = policies.length - hashes.size;
      return finding(
        missing + extra + repeated === 0,
        `${policies.length} documents, ${missing} missing, ${extra} extra, ${repeated} repeated`,
      );
    },
  },
  {
    id: 'document.mesh_ca',
    title: 'Mesh CA certificate',
    source: 'attestation.md 2 no. 7, 12, 13.9, 13.10',
    expected: 'exactly one CERTIFICATE block with a CA that is valid at this time',
    judge: ({ document, now }) => {
      const meshCa = valueIn(document)?.meshCa;
      return meshCa && judgeMeshCa(Buffer.from(meshCa).toString('latin1'), now);
    },
  },
  {
    id: 'evidence.form',
    title: 'Form of the evidence',
    source: 'attestation.md 2 no. 4, 6.1, 9.1, 19.9',
    expected: 'a SEV-SNP or TDX message; unsigned development evidence is neither',
    code: 'evidence_malformed',
    judge: ({ evidence }) => {
      const read = demand(evidence);
      return read && finding(true, read.name);
    },
  },
  {
    id: 'evidence.type',
    title: 'Stated type of the evidence',
    source: 'attestation.md 19.8',
    expected: 'absent, or the type of the message',
    conditional: true,
    judge: ({ document, evidence }) => {
      const read = valueIn(document);
      if (read === undefined) return undefined;
      if (read.attestationType === undefined) return notApplicable('absent');
      const type = valueIn(evidence)?.attestationType;
      return type === undefined
        ? undefined
        : finding(read.attestationType === type, read.attestationType, type);
    },
  },
  {
    id: 'evidence.reference_values',
    title: 'Reference values for this kind of evidence',
    source: 'attestation.md 2 no. 4',
    expected: 'at least one in the manifest',
    judge: ({ manifest, evidence }) => {
      const count = valueIn(evidence)?.referenceValues;
      if (count === undefined || valueIn(manifest) === undefined) return undefined;
      return finding(count > 0, String(count));
    },
  },
];
