/**
 * Reads the attestation document, the coordinator's response to a nonce (docs/protocol/attestation.md 2,
 * 19.8). Computes the 64 bytes of report data by which the hardware vouches for the document (3). A value in
 * the document is trusted only if the report data cover it or a check compares it with the manifest.
 */
import { sha256 } from '#crypto';
import { malformed } from '../crypto/der.ts';
import { JsonNumber, type JsonValue } from '../strict-json.ts';
import { attempt } from './check.ts';
import { base64, type JsonMembers, readMembers } from './json-members.ts';
import { decodeSnpAttestation } from './snp/report.ts';
import { decodeQuoteV4 } from './tdx/quote.ts';

export type AttestationDocument = Readonly<ReturnType<typeof parseDocument>>;

const KEYS = 'version raw_attestation_doc attestation_type manifests policies root_ca mesh_ca'.split(' ');
const MAX_DOCUMENT_BYTES = 1024 * 1024;
const MAX_LIST_ITEMS = 256;
const LIMITS = { depth: 8, values: 10_000 };
const BYTES = base64(1);

/**
 * Reads an attestation document. Like the reference proxy, ignores unknown members. Throws evidence_malformed
 * for more than 1 MiB, 8 nesting levels, 10,000 values, or 256 items in a list. The same error is thrown for
 * a missing, mistyped or repeated member, for base64 that is empty or not canonical, and for a known member
 * in another letter case, because JSON decoders disagree about letter case.
 */
export function parseDocument(bytes: Uint8Array) {
  if (bytes.length > MAX_DOCUMENT_BYTES) throw malformed('the attestation document is larger than 1 MiB');
  const document = readMembers(bytes, LIMITS, (defect) => malformed(`attestation document: ${defect}`));
  for (const key of document.members.keys())
    if (!KEYS.includes(key) && KEYS.includes(key.toUpperCase().toLowerCase()))
      throw malformed('a member of the attestation document has another letter case');
  const version = document.members.get('version');
  return {
    /** The version of the coordinator, which is only used in messages for people. */
    version: typeof version === 'string' ? version : undefined,
    /** The protobuf message that holds the SEV-SNP or TDX evidence. */
    rawAttestation: document.get('raw_attestation_doc', BYTES),
    /** The stated kind of evidence as a dotted OID, or undefined. The report data do not cover this OID. */
    attestationType: readObjectIdentifier(document.members.get('attestation_type')),
    /** The complete manifest history, from the oldest manifest to the newest. */
    manifests: readList(document, 'manifests'),
    /** The policy documents, in random order. */
    policies: readList(document, 'policies'),
    /** The CA certificates in PEM, in exactly the bytes that are hashed for the report data. */
    rootCa: document.get('root_ca', BYTES),
    meshCa: document.get('mesh_ca', BYTES),
  };
}

function readList(document: JsonMembers, name: string): readonly Uint8Array[] {
  const list = document.list(name, BYTES, []);
  if (list.length <= MAX_LIST_ITEMS) return list;
  throw malformed(`${name} has more than ${MAX_LIST_ITEMS} items`);
}

function readObjectIdentifier(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  const arcs = Array.isArray(value) ? value.map((arc) => (arc instanceof JsonNumber ? arc.text : '')) : [];
  if (arcs.length === 0 || arcs.length > 32 || arcs.some((arc) => !/^(?:0|[1-9][0-9]{0,9})$/.test(arc)))
    throw malformed('attestation_type is no list of numbers');
  return arcs.join('.');
}

export type Evidence = ReturnType<typeof readEvidence>;

/**
 * Determines the kind of evidence only from the form of the message. A separate check compares the message's
 * kind with the kind that the document states. Throws evidence_malformed unless exactly one form matches.
 */
export function readEvidence(raw: Uint8Array) {
  const snp = attempt(() => decodeSnpAttestation(raw));
  const tdx = attempt(() => decodeQuoteV4(raw));
  if (snp.value && tdx.value) throw malformed('the message can be read as SEV-SNP and as TDX');
  if (snp.value) return { tee: 'snp', message: snp.value, reportData: snp.value.report.reportData } as const;
  if (tdx.value)
    return { tee: 'tdx', message: tdx.value, reportData: tdx.value.tdQuoteBody.reportData } as const;
  throw malformed(`no SEV-SNP message (${snp.error?.message}) and no TDX message (${tdx.error?.message})`);
}

/**
 * The 32-byte digest over the manifest history. From the oldest manifest to the newest, each manifest m gives
 * T = H(H(m) || T_previous), and the first T_previous is 32 zero bytes (docs/protocol/attestation.md 3.1).
 */
export const transitionDigest = (manifests: readonly Uint8Array[]): Uint8Array =>
  manifests.reduce((previous, manifest) => sha256(sha256(manifest), previous), new Uint8Array(32));

/**
 * The expected REPORT_DATA: H(nonce || transition || H(rootCa) || H(meshCa)), then 32 zero bytes
 * (docs/protocol/attestation.md 3.2). The CAs are PEM exactly as in the document. Throws evidence_malformed
 * unless `nonce` and `transition` have 32 bytes, because the hash input has no separators between its parts.
 */
export function reportData(input: Record<'nonce' | 'transition' | 'rootCa' | 'meshCa', Uint8Array>) {
  const { nonce, transition, rootCa, meshCa } = input;
  if (nonce.length !== 32 || transition.length !== 32)
    throw malformed('nonce and transition digest must have 32 bytes');
  const data = new Uint8Array(64);
  data.set(sha256(nonce, transition, sha256(rootCa), sha256(meshCa)));
  return data;
}
