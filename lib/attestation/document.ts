/**
 * The attestation document: the coordinator's own answer to a nonce (attestation.md 2, 19.8). Nothing in it is
 * trusted by being in it; what matters is bound by the report data or compared with the manifest.
 */
import { JsonNumber, type JsonObject, type JsonValue, parseStrictJson } from './strict-json.ts';
import { malformed } from './x509/der.ts';

export interface AttestationDocument {
  /** Informative. */
  readonly version: string | undefined;
  /** The protobuf message of one of the evidence formats. */
  readonly rawAttestation: Uint8Array;
  /** Dotted object identifier; a hint that is not covered by the report data. Undefined where absent. */
  readonly attestationType: string | undefined;
  /** The whole history, oldest first. */
  readonly manifests: readonly Uint8Array[];
  /** Policy documents in random order. */
  readonly policies: readonly Uint8Array[];
  /** PEM bytes exactly as hashed into the report data. */
  readonly rootCa: Uint8Array;
  readonly meshCa: Uint8Array;
}

const KEYS = [
  'version',
  'raw_attestation_doc',
  'attestation_type',
  'manifests',
  'policies',
  'root_ca',
  'mesh_ca',
];
const MAX_DOCUMENT_BYTES = 16 * 1024 * 1024;
const MAX_LIST_ITEMS = 256;
const LIMITS = { depth: 8, values: 10_000 };

/**
 * Reads a document. Throws evidence_malformed: over 16 MiB, not JSON, a repeated member, a known member in another letter
 * case (decoders differ in what they make of it), a missing or mistyped member, base64 that is not canonical, a list
 * of more than 256. Unknown members are ignored, as upstream does.
 */
export function parseDocument(bytes: Uint8Array): AttestationDocument {
  if (bytes.length > MAX_DOCUMENT_BYTES) throw malformed('the attestation document is larger than 16 MiB');
  const json = parseStrictJson(bytes, LIMITS, (words) => malformed(`attestation document: ${words}`));
  if (!(json instanceof Map)) throw malformed('the attestation document is not an object');
  const members: JsonObject = json;
  for (const key of members.keys()) {
    if (!KEYS.includes(key) && KEYS.includes(key.toUpperCase().toLowerCase())) {
      throw malformed('a member of the attestation document has another letter case');
    }
  }
  const version = members.get('version');
  return {
    version: typeof version === 'string' ? version : undefined,
    rawAttestation: readBytes(members.get('raw_attestation_doc'), 'raw_attestation_doc'),
    attestationType: readObjectIdentifier(members.get('attestation_type')),
    manifests: readByteLists(members.get('manifests'), 'manifests'),
    policies: readByteLists(members.get('policies'), 'policies'),
    rootCa: readBytes(members.get('root_ca'), 'root_ca'),
    meshCa: readBytes(members.get('mesh_ca'), 'mesh_ca'),
  };
}

/** Standard base64 with padding and nothing else, at least one byte. */
function readBytes(value: JsonValue | undefined, name: string): Uint8Array {
  if (typeof value !== 'string') throw malformed(`${name} is missing or no string`);
  const bytes = Buffer.from(value, 'base64');
  if (bytes.length === 0 || bytes.toString('base64') !== value) throw malformed(`${name} is not base64`);
  return bytes;
}

/** Go writes an empty list as null. */
function readByteLists(value: JsonValue | undefined, name: string): readonly Uint8Array[] {
  const list = value ?? [];
  if (!Array.isArray(list)) throw malformed(`${name} is no list`);
  if (list.length > MAX_LIST_ITEMS) throw malformed(`${name} has more than ${MAX_LIST_ITEMS} items`);
  return list.map((item) => readBytes(item, name));
}

function readObjectIdentifier(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  const arcs = Array.isArray(value) ? value.map((arc) => (arc instanceof JsonNumber ? arc.text : '')) : [];
  if (arcs.length === 0 || arcs.length > 32 || arcs.some((arc) => !/^(?:0|[1-9][0-9]{0,9})$/.test(arc))) {
    throw malformed('attestation_type is no list of numbers');
  }
  return arcs.join('.');
}
