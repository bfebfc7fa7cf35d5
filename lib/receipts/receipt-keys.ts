/**
 * The keys that sign receipts: the current key of the workspace, its earlier keys, and how a new key takes
 * over.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
} from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { publish, replace, unless, withLock } from '../files/durable-file.ts';
import { ifThere, LONGEST_PEM, readOwnKey, readRegular, requireOwnDirectory } from '../files/own-files.ts';
import { beforeWriting, type KeyRing } from './receipt-files.ts';

/**
 * Names in the directory of the receipts. `private`: PKCS #8, `public`: SubjectPublicKeyInfo, both PEM;
 * `all`: the directory of every public key that has signed here, `<SHA-256>.pem` each.
 */
export const KEY_FILES = { private: 'key.pem', public: 'public.pem', all: 'keys' } as const;

/** The name of a key: lower-case hex SHA-256 of its SubjectPublicKeyInfo (DER). */
export const keySha256 = (key: KeyObject): string =>
  createHash('sha256')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest('hex');

const pemOf = (key: KeyObject): string => key.export({ type: 'spki', format: 'pem' }).toString();

/**
 * How many keys are tried at most on a line that names none. A key that a chain names is found by its name
 * (`keyNamed`), however many there are.
 */
const MOST_KEYS = 64;
const KEY_NAME = /^([0-9a-f]{64})\.pem$/;

/**
 * The private key of the workspace; makes one if there is none. Two processes that begin at once agree on one
 * key. `isNew`: the directory did not hold this key; `isChanged`: it named another public key until now;
 * `former`: the name of that key. Only a chain says whether a rotation brought this one (docs/receipts.md,
 * "The key"). Throws receipts_unavailable.
 */
export async function readOrMakeKey(directory: string): Promise<{
  readonly key: KeyObject;
  readonly isNew: boolean;
  readonly isChanged: boolean;
  readonly former: string | undefined;
}> {
  await requireOwnDirectory(directory);
  const path = join(directory, KEY_FILES.private);
  let key = await readKey(directory);
  while (key === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519');
    await publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
    key = await readKey(directory);
  }
  const publicKey = createPublicKey(key);
  const publicPem = pemOf(publicKey);
  const publicFile = readRegular(join(directory, KEY_FILES.public), LONGEST_PEM);
  const stored = (await beforeWriting(directory, unless('ENOENT', publicFile)))?.toString();
  const isNew = await keepPublicKey(directory, publicKey);
  const isOther = stored !== undefined && stored !== publicPem;
  const before = isOther ? publicKeyIn(Buffer.from(stored)) : undefined;
  // A version that kept no keys may have written this file. The earlier lines need its key.
  if (before !== undefined) await keepPublicKey(directory, before);
  if (stored !== publicPem) await replace(join(directory, KEY_FILES.public), publicPem, 0o644);
  const others = (await namesOfKeys(directory)).length > 1;
  const isChanged = stored === undefined ? isNew && others : isOther;
  return { key, isNew, isChanged, former: before && keySha256(before) };
}

/** The private key of the workspace; undefined if there is none. Throws receipts_unavailable. */
async function readKey(directory: string): Promise<KeyObject | undefined> {
  const path = join(directory, KEY_FILES.private);
  const pem = await beforeWriting(directory, unless('ENOENT', readOwnKey(path)));
  const key = pem && keyIn(pem, createPrivateKey);
  if (pem === undefined || key?.asymmetricKeyType === 'ed25519') return key;
  throw new PrivatemodeError('receipts_unavailable', `${path} is no Ed25519 private key in PEM`, {
    remedy: WRONG_KEY_REMEDY,
  });
}

/**
 * Puts the key of a running proxy back into the directory of its receipts, if its public key is missing there
 * because somebody moved the directory away or emptied it. Resolves with whether it was missing. Leaves a
 * key.pem that lies there. Throws receipts_unavailable.
 */
export async function putKeyBack(directory: string, key: KeyObject): Promise<boolean> {
  await requireOwnDirectory(directory);
  const publicKey = createPublicKey(key);
  if ((await keyNamed(directory, keySha256(publicKey))) !== undefined) return false;
  await publish(join(directory, KEY_FILES.private), key.export({ type: 'pkcs8', format: 'pem' }), 0o600);
  await publish(join(directory, KEY_FILES.public), pemOf(publicKey), 0o644);
  return keepPublicKey(directory, publicKey); // last, so that a failure before leaves it missing
}

/** Stores a public key under its name. Resolves with false if it is there already. */
async function keepPublicKey(directory: string, key: KeyObject): Promise<boolean> {
  const keys = join(directory, KEY_FILES.all);
  await requireOwnDirectory(keys);
  return publish(join(keys, `${keySha256(key)}.pem`), pemOf(key), 0o644);
}

/**
 * Replaces the key of the workspace with a new one. A lock admits one caller after the other. `announce`
 * writes, signed by the old key, that the new one follows; the old key stays until `announce` resolves. A
 * crash in between leaves the name of a key that signs nothing. Resolves with the names of both keys. Throws
 * receipts_unavailable, config_invalid if others keep the lock, and what `announce` throws.
 */
export async function replaceKey(
  directory: string,
  announce: (next: string) => Promise<void>,
): Promise<{ readonly before: string; readonly next: string }> {
  const path = join(directory, KEY_FILES.private);
  return withLock(path, async () => {
    if ((await readKey(directory)) === undefined)
      throw new PrivatemodeError('receipts_unavailable', `${path} is missing`, { remedy: NO_KEY_REMEDY });
    const { key } = await readOrMakeKey(directory);
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const next = keySha256(publicKey);
    await keepPublicKey(directory, publicKey);
    await announce(next);
    await replace(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
    await replace(join(directory, KEY_FILES.public), pemOf(publicKey), 0o644);
    return { before: keySha256(createPublicKey(key)), next };
  });
}

const NO_KEY_REMEDY =
  'Put it back, or start the proxy, which then makes a new key that no earlier key has announced.';
const WRONG_KEY_REMEDY =
  'Put the right key back, or remove this one; the next start then makes a new key that no earlier key has announced.';

/**
 * Keys that lie in the directory, to be tried on lines that name none: the current one, then the first in the
 * order of names. A file in `keys` whose name is not that of its key is left out.
 */
export async function keysOf(directory: string): Promise<KeyRing> {
  const current = await readRegular(join(directory, KEY_FILES.public), LONGEST_PEM);
  const key = readPublicKey(current, KEY_FILES.public);
  const ring = new Map([[keySha256(key), key]]);
  for (const name of await namesOfKeys(directory)) {
    const kept = ring.has(name) ? undefined : await keyNamed(directory, name);
    if (kept !== undefined) ring.set(name, kept);
  }
  return ring;
}

async function namesOfKeys(directory: string): Promise<readonly string[]> {
  const names = (await ifThere(readdir(join(directory, KEY_FILES.all)))) ?? [];
  const keys = names.flatMap((name) => KEY_NAME.exec(name)?.[1] ?? []);
  return keys.toSorted().slice(0, MOST_KEYS);
}

/**
 * The key of that name in the directory; undefined if there is no such file, or if it holds another key.
 * Throws what keeps this process from reading it.
 */
export async function keyNamed(directory: string, name: string): Promise<KeyObject | undefined> {
  if (!/^[0-9a-f]{64}$/.test(name)) return undefined;
  const path = join(directory, KEY_FILES.all, `${name}.pem`);
  const pem = await ifThere(readRegular(path, LONGEST_PEM));
  const key = pem && publicKeyIn(pem);
  return key !== undefined && keySha256(key) === name ? key : undefined;
}

const publicKeyIn = (pem: Buffer) => keyIn(pem, (bytes) => readPublicKey(bytes, ''));

function keyIn(pem: Buffer, read: (pem: Buffer) => KeyObject): KeyObject | undefined {
  try {
    return read(pem);
  } catch {
    return undefined;
  }
}

/**
 * Reads a PEM file that holds one Ed25519 public key and nothing else. Node alone would also take the key out
 * of a certificate, a private key, or the first of several keys. Throws receipts_unreadable.
 */
export function readPublicKey(pem: Buffer, name: string): KeyObject {
  const labels = [...pem.toString('latin1').matchAll(/^-----BEGIN ([^\n-]+)-----/gm)].map(
    ([, label]) => label,
  );
  const found = labels.length === 0 ? 'nothing in PEM' : labels.join(', ');
  const isOne = labels.length === 1 && labels[0] === 'PUBLIC KEY';
  const key = isOne ? createPublicKey(pem) : undefined;
  if (key?.asymmetricKeyType === 'ed25519') return key;
  const type = key === undefined ? found : `a key of type ${key.asymmetricKeyType}`;
  const isPrivate = labels.some((label) => label === 'PRIVATE KEY');
  throw new PrivatemodeError(
    'receipts_unreadable',
    `${name} must hold one Ed25519 PUBLIC KEY, and holds ${type}${isPrivate ? ': name the public.pem beside it' : ''}`,
  );
}
