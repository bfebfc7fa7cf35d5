/**
 * Verifies a saved exchange, and reads nothing but its files. They hold the JSON bodies as sent on the wire
 * (docs/protocol/attestation.md 1), and each may state the nonce of the exchange.
 */
import { basename, resolve } from 'node:path';
import { NONCE_BYTES } from '../attestation/document-checks.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { orRefuse, whyNoManifestFile } from '../config/files.ts';
import { readTrustRoots } from '../config/trust-roots.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { readTree } from '../files/directories.ts';
import { readNamed, reasonOf } from '../files/path-refusal.ts';
import { canBeOpened } from '../session/secret-exchange.ts';
import { parseStrictJson } from '../strict-json.ts';
import { printable } from '../text.ts';
import { parseCollateral, type StoredCollateral, storedCollateral } from '../verdict/collateral-file.ts';
import { judge, notJudged, type Subject } from '../verdict/judge.ts';
import { exchangeDigest, MESSAGES, NONCE } from '../verdict/saved-exchange.ts';
import { foreignRoots, rootsFrom, type Verified } from '../verdict/text.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { outlivedAt } from './outlived-collateral.ts';
import type { OfflineRequest } from './verify-flags.ts';

const MAX_BYTES = 64 * 1024 * 1024;
/** The bodies are flat objects of a few strings. */
const SHAPE = { depth: 8, values: 256 };

/**
 * Verifies the files of a saved exchange. Unusable files give a verdict too; rejects only for bugs of this
 * program.
 */
export async function verifyFiles(request: OfflineRequest, now: Date): Promise<Verified> {
  const { evidence, manifest, roots, at } = request;
  const future =
    at !== undefined && at > now
      ? `Warning: --at ${at.toISOString()} lies in the future: what is in force then is not known yet.\n`
      : '';
  const report = {
    mode: 'offline',
    subject: `${evidence} (offline)`,
    manifestFrom: manifest,
    rootsFrom: rootsFrom(roots),
    atGiven: at !== undefined,
  } as const;
  const unused: string[] = [];
  const { verdict, exchange } = await judgeFiles(request, at ?? now, unused);
  const warning = future + unused.join('') + foreignRoots('--roots', roots);
  return { verdict, report: { ...report, exchange }, warning };
}

/**
 * The digest that names a saved exchange. Throws verify_input_invalid if the directory's name is another
 * digest: --receipts names each directory by the digest of its exchange.
 */
async function digestOf(directory: string): Promise<string> {
  const files = await readTree(directory, MAX_BYTES).catch((cause: unknown) => {
    throw invalidInput(`${directory} cannot be read: ${reasonOf(cause)}`, cause);
  });
  const digest = exchangeDigest(files);
  const name = basename(resolve(directory));
  if (/^[0-9a-f]{64}$/.test(name) && name !== digest)
    throw invalidInput(`${directory} holds other files than the receipts name: their SHA-256 is ${digest}`);
  return digest;
}

/** The nonce in the file, for the live service. Throws verify_input_invalid. */
export function readNonce(path: string): Uint8Array {
  const { nonce } = readMessage(path, NONCE);
  if (nonce.length !== NONCE_BYTES)
    throw unusable(path, `its nonce has ${nonce.length} bytes, not ${NONCE_BYTES}`);
  return nonce;
}

/** `exchange`: the digest that names the saved exchange. */
interface JudgedFiles {
  readonly verdict: Verdict;
  readonly exchange: string | undefined;
}

/** `unused`: gets warnings about members of the files that nothing reads. */
async function judgeFiles(request: OfflineRequest, at: Date, unused: string[]): Promise<JudgedFiles> {
  const rootsKind = request.roots === undefined ? 'vendor' : 'custom';
  let subject: Subject;
  let exchange: string | undefined;
  let stored: StoredCollateral;
  try {
    exchange = request.saved === undefined ? undefined : await digestOf(request.saved);
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
      secret,
      canBeOpened,
    };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    const verdict = notJudged(thrown, { at, roots: rootsKind, manifestSha256: undefined });
    return { verdict, exchange };
  }
  const verdict = await judge(subject);
  return { verdict: { ...verdict, outlived: await outlivedAt(subject, stored, verdict) }, exchange };
}

/** The content of a file. Throws verify_input_invalid, naming the file. */
function readInput(path: string): Uint8Array {
  const bytes = orRefuse(
    () => new Uint8Array(readNamed(JSON.stringify(path), path)),
    (cause) => invalidInput((cause as Error).message, cause),
  );
  if (bytes.length === 0) throw unusable(path, 'it is empty');
  if (bytes.length > MAX_BYTES) throw unusable(path, 'it is larger than 64 MiB');
  return bytes;
}

/** The bytes of a manifest file. Throws verify_input_invalid, also if the file cannot be a manifest. */
export function readManifest(path: string): Uint8Array {
  const bytes = readInput(path);
  const what = whyNoManifestFile(bytes);
  if (what !== undefined) throw unusable(path, `it ${what}`);
  return bytes;
}

const invalidInput = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('verify_input_invalid', message, { cause });

const unusable = (path: string, defect: string): PrivatemodeError =>
  invalidInput(`${path} cannot be used: ${defect}`);

/**
 * The decoded base64 members of the JSON object in a file. Other members are ignored, except `Nonce`: it must
 * equal `nonce` if both are there. Throws verify_input_invalid.
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
