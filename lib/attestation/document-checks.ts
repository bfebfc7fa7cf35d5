/**
 * The checks that run before those of the hardware: nonce, document, manifest, policies, kind of evidence.
 */
import { constantTimeEqual, sha256 } from '#crypto';
import { plural } from '../text.ts';
import { demand, finding, need, notApplicable, rowsFrom, type Settled } from './check.ts';
import type { AttestationDocument } from './document.ts';
import type { Manifest } from './manifest.ts';
import { judgeMeshCa } from './mesh.ts';

export const NONCE_BYTES = 32;

export interface DocumentSubject {
  readonly nonce: Uint8Array;
  readonly expectedManifest: Uint8Array;
  readonly now: Date;
  readonly document: Settled<AttestationDocument>;
  readonly manifest: Settled<Manifest>;
  /** The evidence format that the document's message belongs to. */
  readonly evidence: Settled<{
    readonly name: string;
    readonly attestationType: string;
    /** One per reference value. */
    readonly judgements: readonly unknown[];
  }>;
}

const sha256Hex = (bytes: Uint8Array): string => Buffer.from(sha256(bytes)).toString('hex');

export const DOCUMENT_ROWS = rowsFrom<DocumentSubject>('attestation.md 2 no. 7', {
  'nonce.length': {
    title: 'Nonce',
    source: 'attestation.md 2 no. 1',
    expected: '32 bytes',
    judge: ({ nonce }) => finding(nonce.length === NONCE_BYTES, `${nonce.length} bytes`),
  },
  'document.form': {
    title: 'Form of the attestation document',
    source: 'attestation.md 2, 19.8',
    expected: 'one JSON object with the members of an attestation document',
    code: 'evidence_malformed',
    judge: ({ document }) => {
      const { version = 'of no stated version' } = demand(document);
      return finding(true, `from coordinator ${JSON.stringify(version)}`);
    },
  },
  'manifest.count': {
    title: 'One manifest',
    expected: 'a history of exactly one manifest',
    judge: ({ document }) =>
      finding(need(document).manifests.length === 1, plural(need(document).manifests.length, 'manifest')),
  },
  'manifest.expected': {
    title: 'The expected manifest',
    expected: 'byte for byte the expected manifest',
    code: 'manifest_mismatch',
    judge: ({ document, expectedManifest }) => {
      const { manifests } = need(document);
      return finding(
        manifests.length > 0 && manifests.every((each) => constantTimeEqual(each, expectedManifest)),
        `SHA-256 ${manifests.map(sha256Hex).join(', ') || 'of none'}`,
        `SHA-256 ${sha256Hex(expectedManifest)}`,
      );
    },
  },
  'manifest.valid': {
    title: 'Validity of the manifest',
    source: 'attestation.md 4, 19.11, 19.12',
    expected: 'a manifest that this version understands completely',
    code: 'manifest_invalid',
    judge: ({ manifest }) => {
      const { policies, snp, tdx } = demand(manifest);
      return finding(true, `${policies.size} policies, ${snp.length} SNP and ${tdx.length} TDX entries`);
    },
  },
  'document.policies': {
    title: 'Policy documents',
    source: 'attestation.md 13.6, 19.12 rule 14',
    expected: "documents whose SHA-256 are exactly the manifest's policies, once each",
    judge: ({ document, manifest }) => {
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
  },
  'document.mesh_ca': {
    title: 'Mesh CA certificate',
    source: 'attestation.md 2 no. 7, 12, 13.9, 13.10',
    expected: 'exactly one CERTIFICATE block with a CA that is valid at this time',
    judge: ({ document, now }) => judgeMeshCa(Buffer.from(need(document).meshCa).toString('latin1'), now),
  },
  'evidence.form': {
    title: 'Form of the evidence',
    source: 'attestation.md 2 no. 4, 6.1, 9.1, 19.9',
    expected: 'a SEV-SNP or TDX message; unsigned development evidence is neither',
    code: 'evidence_malformed',
    judge: ({ evidence }) => finding(true, demand(evidence).name),
  },
  'evidence.type': {
    title: 'Stated type of the evidence',
    source: 'attestation.md 19.8',
    expected: 'absent, or the type of the message',
    conditional: true,
    judge: ({ document, evidence }) => {
      const stated = need(document).attestationType;
      if (stated === undefined) return notApplicable('absent');
      const { attestationType } = need(evidence);
      return finding(stated === attestationType, stated, attestationType);
    },
  },
  'evidence.reference_values': {
    title: 'Reference values for this kind of evidence',
    source: 'attestation.md 2 no. 4',
    expected: 'at least one in the manifest',
    judge: ({ manifest, evidence }) => {
      const { length } = need(evidence).judgements;
      return manifest?.value && finding(length > 0, String(length));
    },
  },
});
