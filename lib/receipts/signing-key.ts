/** The key of a workspace that signs receipts: `key.pem`, and `public.pem` beside it. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { openToRead, publish, replace } from '../files/durable-file.ts';

/**
 * The private key (Ed25519); makes one if there is none. Two processes that begin at once agree on one.
 * Stores the public key beside it. Throws receipts_unavailable.
 */
export async function readOrMakeKey(directory: string): Promise<KeyObject> {
  const path = join(directory, 'key.pem');
  const { privateKey } = generateKeyPairSync('ed25519');
  await publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
  const pem = await readOwnKey(path);
  let key: KeyObject | undefined;
  try {
    key = createPrivateKey(pem);
  } catch {} // is reported below
  if (key?.asymmetricKeyType !== 'ed25519')
    throw new PrivatemodeError('receipts_unavailable', `${path} is no Ed25519 private key in PEM`, {
      remedy: 'Put the right key back, or move this one away: the next start then makes a new one.',
    });
  const publicPem = createPublicKey(key).export({ type: 'spki', format: 'pem' });
  await replace(join(directory, 'public.pem'), publicPem, 0o644);
  return key;
}

const SETGID = 0o2000;

/**
 * Reads a private key (PEM). Throws receipts_unavailable if anybody else has a permission for it, but for the
 * group of a setgid directory: the fsGroup of a Kubernetes pod shares files in this way.
 */
async function readOwnKey(path: string): Promise<Buffer> {
  await using file = await openToRead(path);
  const { mode } = await file.stat();
  const others = (await stat(dirname(path))).mode & SETGID ? 0o007 : 0o077;
  if (process.platform === 'win32' || (mode & others) === 0) return await file.readFile();
  const message = `${path} can be read or written to by others (mode ${(mode & 0o7777).toString(8)})`;
  const remedy = 'Run chmod 600 on it. Whoever could read it may have a copy: make a new key.';
  throw new PrivatemodeError('receipts_unavailable', message, { remedy });
}
