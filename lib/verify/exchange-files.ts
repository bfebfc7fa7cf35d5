/**
 * The files that an exchange with the service is kept in: the JSON bodies as they cross the wire (attestation.md 1), and
 * in each of them the nonce of the attempt.
 */
import { readFileSync } from 'node:fs';
import { parseStrictJson } from '../attestation/strict-json.ts';
import { whyNoManifest } from '../config/manifest-file.ts';
import { PrivatemodeError } from '../errors.ts';
import type { SecretMessages } from './secret-checks.ts';

/** Names in a saved directory. */
export const SAVED = {
  nonce: 'attest_request.json',
  evidence: 'attest_response.json',
  manifest: 'manifest.json',
  collateral: 'collateral.json',
  secretRequest: 'secret_request.json',
  secretResponse: 'secret_response.json',
} as const;

/**
 * Member of every saved message, beyond what crossed the wire: which attempt it belongs to. Nothing else ties a secret
 * exchange to the evidence before it, since all attempts with one deployment share its mesh CA.
 */
const ATTEMPT = 'Nonce';

const MAX_BYTES = 64 * 1024 * 1024;
/** The bodies are flat objects of a few strings. */
const SHAPE = { depth: 8, values: 256 };

/** Throws verify_input_invalid, naming the file. */
export function readInput(path: string): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = new Uint8Array(readFileSync(path));
  } catch (thrown) {
    const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown cause';
    throw new PrivatemodeError('verify_input_invalid', `${path} cannot be read (${code})`, { cause: thrown });
  }
  if (bytes.length === 0) throw unusable(path, 'it is empty');
  if (bytes.length > MAX_BYTES) throw unusable(path, 'it is larger than 64 MiB');
  return bytes;
}

/** The bytes of a manifest file. Throws verify_input_invalid, also for what is surely no manifest. */
export function readManifest(path: string): Uint8Array {
  const bytes = readInput(path);
  const what = whyNoManifest(bytes);
  if (what !== undefined) throw unusable(path, `it ${what}`);
  return bytes;
}

/** What is wrong with the content of a file. */
export function unusable(path: string, words: string): PrivatemodeError {
  return new PrivatemodeError('verify_input_invalid', `${path} cannot be used: ${words}`);
}

/**
 * The base64 members of the JSON object in a file; others are ignored, but for `Nonce`: where a file says to which
 * attempt it belongs, that must be the one of `nonce`. Throws verify_input_invalid.
 */
function readMembers<Name extends string>(
  path: string,
  names: readonly Name[],
  nonce?: Uint8Array,
): Record<Name, Uint8Array> {
  const json = parseStrictJson(readInput(path), SHAPE, (words) => unusable(path, words));
  if (!(json instanceof Map)) throw unusable(path, 'not a JSON object');
  const found: Partial<Record<Name, Uint8Array>> = {};
  for (const name of names) {
    const text: unknown = json.get(name);
    if (typeof text !== 'string') throw unusable(path, `it has no member "${name}" with base64 in it`);
    const bytes = Buffer.from(text, 'base64');
    if (bytes.toString('base64') !== text) throw unusable(path, `"${name}" is not base64 with padding`);
    found[name] = new Uint8Array(bytes);
  }
  if (nonce !== undefined && json.has(ATTEMPT) && json.get(ATTEMPT) !== base64(nonce)) {
    throw unusable(path, 'it belongs to another attempt: its "Nonce" is not the one that was given');
  }
  return found as Record<Name, Uint8Array>;
}

export const readNonce = (path: string): Uint8Array => readMembers(path, ['Nonce']).Nonce;
export const readDocument = (path: string, nonce: Uint8Array): Uint8Array =>
  readMembers(path, ['AttestationDoc'], nonce).AttestationDoc;

/** The secret exchange that followed the attestation with this nonce. Throws verify_input_invalid. */
export function readSecretMessages(
  requestPath: string,
  responsePath: string,
  nonce: Uint8Array,
): SecretMessages {
  const { PublicKey } = readMembers(requestPath, ['PublicKey'], nonce);
  const response = readMembers(responsePath, ['EncapsulatedKey', 'Signature', 'MeshCert'], nonce);
  return {
    publicKey: PublicKey,
    encapsulatedKey: response.EncapsulatedKey,
    signature: response.Signature,
    meshCert: response.MeshCert,
  };
}

/** Contents of the files, by their names in a saved directory; what there was no exchange of is left out. */
export function exchangeFiles(exchange: {
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly manifest: Uint8Array;
  readonly secret: SecretMessages | undefined;
}): Record<string, string | Uint8Array> {
  const { nonce, document, manifest, secret } = exchange;
  const attempt = { [ATTEMPT]: base64(nonce) };
  const attestation = {
    [SAVED.nonce]: json(attempt),
    [SAVED.evidence]: json({ AttestationDoc: base64(document), ...attempt }),
    [SAVED.manifest]: manifest,
  };
  if (secret === undefined) return attestation;
  const { publicKey, encapsulatedKey, signature, meshCert } = secret;
  return {
    ...attestation,
    [SAVED.secretRequest]: json({ PublicKey: base64(publicKey), ...attempt }),
    [SAVED.secretResponse]: json({
      EncapsulatedKey: base64(encapsulatedKey),
      Signature: base64(signature),
      MeshCert: base64(meshCert),
      ...attempt,
    }),
  };
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
export const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;
