/**
 * Verifies a saved exchange, and touches nothing but its files. They hold the JSON bodies as they cross the wire
 * (docs/protocol/attestation.md 1), and in each the nonce of the attempt.
 */
import { readFileSync } from 'node:fs';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { orRefuse, whyNoManifest } from '../config/files.ts';
import { readTrustRoots } from '../config/trust-roots.ts';
import { asPrivatemodeError, fileUnreadable, PrivatemodeError } from '../errors.ts';
import { canBeOpened } from '../session/secret-exchange.ts';
import { parseStrictJson } from '../strict-json.ts';
import { printable } from '../text.ts';
import { judge, notJudged, type Subject } from '../verdict/judge.ts';
import { foreignRoots, rootsFrom, type Verified } from '../verdict/text.ts';
import type { Judgement } from '../verdict/verdict.ts';
import { parseCollateral, type StoredCollateral, storedCollateral } from './collateral-file.ts';
import { outlivedAt } from './outlived-collateral.ts';
import type { OfflineRequest } from './verify-flags.ts';

/**
 * Names the attempt in every saved message; beyond the first, it is no part of what crossed the wire. Nothing else ties a
 * secret exchange to the evidence before it, since all attempts with one deployment share its mesh CA.
 */
export const NONCE = { nonce: 'Nonce' } as const;

/** The base64 members of each saved message, by our names for what is in them. */
export const MESSAGES = {
  nonce: NONCE,
  evidence: { document: 'AttestationDoc' },
  'secret-request': { publicKey: 'PublicKey' },
  'secret-response': { encapsulatedKey: 'EncapsulatedKey', signature: 'Signature', meshCert: 'MeshCert' },
} as const;

const MAX_BYTES = 64 * 1024 * 1024;
/** The bodies are flat objects of a few strings. */
const SHAPE = { depth: 8, values: 256 };

/** Files that cannot be used are a judgement as well; rejects only for defects of our own. */
export async function verifyFiles(request: OfflineRequest, now: Date): Promise<Verified> {
  const { evidence, manifest, roots, at } = request;
  const future =
    at !== undefined && at > now
      ? `Warning: --at ${at.toISOString()} lies in the future: what is in force then is not known yet.\n`
      : '';
  const report = {
    mode: 'offline',
    ...{ subject: `${evidence} (offline)`, manifestFrom: manifest, rootsFrom: rootsFrom(roots) },
    atGiven: at !== undefined,
  } as const;
  const unused: string[] = [];
  const judgement = await judgeFiles(request, at ?? now, unused);
  const warning = future + unused.join('') + foreignRoots('--roots', roots);
  return { judgement, report, warning };
}

/** `unused`: takes warnings about what the files hold and nothing reads. */
async function judgeFiles(request: OfflineRequest, at: Date, unused: string[]): Promise<Judgement> {
  const rootsKind = request.roots === undefined ? 'vendor' : 'custom';
  let subject: Subject;
  let stored: StoredCollateral;
  try {
    const { nonce } = readMessage(request.nonce, NONCE);
    const secret = request.secret && {
      ...readMessage(request.secret.request, MESSAGES['secret-request'], nonce),
      ...readMessage(request.secret.response, MESSAGES['secret-response'], nonce),
    };
    const { collateral } = request;
    stored = collateral === undefined ? {} : collateralIn(collateral, unused);
    subject = {
      ...readMessage(request.evidence, MESSAGES.evidence, nonce),
      nonce,
      manifest: readManifest(request.manifest),
      roots: rootsIn(request.roots),
      collateral: storedCollateral(stored, collateral ?? 'there is no --collateral file: it'),
      at,
      secret: secret && (async () => secret),
      canBeOpened,
      live: false,
    };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    return notJudged(thrown, { at, roots: rootsKind, manifestSha256: undefined });
  }
  const judgement = await judge(subject);
  return { ...judgement, outlived: await outlivedAt(subject, stored, judgement) };
}

/** The content of a file. Throws verify_input_invalid, naming the file. */
function readInput(path: string): Uint8Array {
  const bytes = orRefuse(
    () => new Uint8Array(readFileSync(path)),
    (cause) => invalidInput(fileUnreadable(JSON.stringify(path), path, cause).message, cause),
  );
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

const invalidInput = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('verify_input_invalid', message, { cause });

const unusable = (path: string, defect: string): PrivatemodeError =>
  invalidInput(`${path} cannot be used: ${defect}`);

/**
 * The base64 members of the JSON object in a file; others are ignored, but a `Nonce` must be the given one, if one is
 * given. Throws verify_input_invalid.
 */
function readMessage<Members extends Readonly<Record<string, string>>>(
  path: string,
  members: Members,
  nonce?: Uint8Array,
): Record<keyof Members, Uint8Array> {
  const json = parseStrictJson(readInput(path), SHAPE, (defect) => unusable(path, defect));
  if (!(json instanceof Map)) throw unusable(path, 'not a JSON object');
  const found = Object.entries(members).map(([ours, name]) => {
    const text: unknown = json.get(name);
    if (typeof text !== 'string') throw unusable(path, `it has no member "${name}" with base64 in it`);
    const bytes = Buffer.from(text, 'base64');
    if (bytes.toString('base64') !== text) throw unusable(path, `"${name}" is not base64 with padding`);
    return [ours, new Uint8Array(bytes)];
  });
  const stated: unknown = json.get(NONCE.nonce);
  if (nonce !== undefined && stated !== undefined && stated !== Buffer.from(nonce).toString('base64')) {
    throw unusable(path, 'it belongs to another exchange: its "Nonce" differs from the given one');
  }
  return Object.fromEntries(found);
}

function rootsIn(directory: string | undefined): Subject['roots'] {
  if (directory === undefined) return PRODUCTION_ROOTS;
  return orRefuse(
    () => readTrustRoots(directory, { flag: '--roots', others: 'ignored' }),
    (cause) => invalidInput(asPrivatemodeError(cause).message, cause),
  );
}

function collateralIn(path: string, unused: string[]): StoredCollateral {
  const { stored, unknown } = parseCollateral(readInput(path), (defect) => unusable(path, defect));
  const names = unknown.map((name) => JSON.stringify(name)).join(', ');
  if (unknown.length > 0) {
    unused.push(
      `Warning: ${printable(`--collateral ${path} has members that verify does not know and ignores: ${names}`)}\n`,
    );
  }
  return stored;
}
