/**
 * Verifies a saved exchange, and touches nothing but its files. They hold the JSON bodies as they cross the wire
 * (docs/protocol/attestation.md 1), and in each the nonce of the attempt.
 */
import { readFileSync } from 'node:fs';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { parseStrictJson } from '../attestation/strict-json.ts';
import { whyNoManifest } from '../config/files.ts';
import { readTrustRoots } from '../config/trust-roots.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { parseCollateral, storedCollateral } from './collateral-file.ts';
import type { OfflineRequest } from './flags.ts';
import { type Judgement, judge, notJudged, type SecretMessages, type Subject } from './judge.ts';

/**
 * Names the attempt in every saved message; it is no part of what crossed the wire. Nothing else ties a secret exchange
 * to the evidence before it, since all attempts with one deployment share its mesh CA.
 */
export const NONCE_MEMBER = 'Nonce';

const MAX_BYTES = 64 * 1024 * 1024;
/** The bodies are flat objects of a few strings. */
const SHAPE = { depth: 8, values: 256 };

/** Files that cannot be used are a judgement as well; rejects only for defects of our own. */
export async function verifyFiles(request: OfflineRequest, now: Date): Promise<Judgement> {
  const at = request.at ?? now;
  const rootsKind = request.roots === undefined ? 'vendor' : 'custom';
  let subject: Subject;
  try {
    const nonce = readMembers(request.nonce, [NONCE_MEMBER]).Nonce;
    const secret = request.secret && readSecretMessages(request.secret, nonce);
    subject = {
      document: readMembers(request.evidence, ['AttestationDoc'], nonce).AttestationDoc,
      nonce,
      manifest: readManifest(request.manifest),
      roots: request.roots === undefined ? PRODUCTION_ROOTS : rootsIn(request.roots),
      rootsKind,
      collateral: collateralIn(request.collateral),
      at,
      secret: secret && (async () => secret),
      live: false,
    };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    return notJudged(thrown, { at, roots: rootsKind, manifestSha256: undefined });
  }
  return judge(subject);
}

/** The content of a file. Throws verify_input_invalid, naming the file. */
export function readInput(path: string): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = new Uint8Array(readFileSync(path));
  } catch (cause) {
    const { code = 'unknown cause' } = cause as NodeJS.ErrnoException;
    throw new PrivatemodeError('verify_input_invalid', `${path} cannot be read (${code})`, { cause });
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

const unusable = (path: string, defect: string): PrivatemodeError =>
  new PrivatemodeError('verify_input_invalid', `${path} cannot be used: ${defect}`);

/**
 * The base64 members of the JSON object in a file; others are ignored, but a `Nonce` must be the given one, if one is
 * given. Throws verify_input_invalid.
 */
function readMembers<Name extends string>(
  path: string,
  names: readonly Name[],
  nonce?: Uint8Array,
): Record<Name, Uint8Array> {
  const json = parseStrictJson(readInput(path), SHAPE, (defect) => unusable(path, defect));
  if (!(json instanceof Map)) throw unusable(path, 'not a JSON object');
  const found: Partial<Record<Name, Uint8Array>> = {};
  for (const name of names) {
    const text: unknown = json.get(name);
    if (typeof text !== 'string') throw unusable(path, `it has no member "${name}" with base64 in it`);
    const bytes = Buffer.from(text, 'base64');
    if (bytes.toString('base64') !== text) throw unusable(path, `"${name}" is not base64 with padding`);
    found[name] = new Uint8Array(bytes);
  }
  const stated: unknown = json.get(NONCE_MEMBER);
  if (nonce !== undefined && stated !== undefined && stated !== Buffer.from(nonce).toString('base64')) {
    throw unusable(path, 'it belongs to another attempt: its "Nonce" is not the one that was given');
  }
  return found as Record<Name, Uint8Array>;
}

function readSecretMessages(
  { request, response }: NonNullable<OfflineRequest['secret']>,
  nonce: Uint8Array,
): SecretMessages {
  const { PublicKey } = readMembers(request, ['PublicKey'], nonce);
  const members = readMembers(response, ['EncapsulatedKey', 'Signature', 'MeshCert'], nonce);
  const { EncapsulatedKey: encapsulatedKey, Signature: signature, MeshCert: meshCert } = members;
  return { publicKey: PublicKey, encapsulatedKey, signature, meshCert };
}

function rootsIn(directory: string): Subject['roots'] {
  try {
    return readTrustRoots(directory, { flag: '--roots', others: 'ignored' });
  } catch (cause) {
    throw new PrivatemodeError('verify_input_invalid', asPrivatemodeError(cause).message, { cause });
  }
}

function collateralIn(path: string | undefined): Subject['collateral'] {
  if (path === undefined) return storedCollateral({}, 'there is no --collateral file: it');
  return storedCollateral(
    parseCollateral(readInput(path), (defect) => unusable(path, defect)),
    path,
  );
}
