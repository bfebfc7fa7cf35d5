/**
 * The keys that act as the simulated chips, and the roots that vouch for them. They are kept in the
 * directory: after a restart with the same hardware, clients see the same machine.
 */
import { createPrivateKey, generateKeyPair, type KeyObject, randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { decodeOneCertificate } from '../lib/crypto/der.ts';
import { PrivatemodeError } from '../lib/errors.ts';
import { arkRequest, askRequest } from './pki/amd.ts';
import { issueCertificate, toPem } from './pki/certificate.ts';
import { intelRootRequest } from './pki/intel.ts';
import { issueTlsCa } from './pki/tls.ts';

const rsa = (modulusLength: number) => ({ type: 'rsa', modulusLength }) as const;
const ec = (namedCurve: 'P-256' | 'P-384') => ({ type: 'ec', namedCurve }) as const;

/** Every long-lived private key. AMD's two are RSA 4096 (docs/protocol/attestation.md 7) and take longest. */
const KEYS = {
  ark: rsa(4096),
  ask: rsa(4096),
  vcek: ec('P-384'),
  intelRoot: ec('P-256'),
  intelPlatformCa: ec('P-256'),
  intelTcbSigning: ec('P-256'),
  pck: ec('P-256'),
  quotingEnclave: ec('P-256'),
  /** These belong to no chip, but must survive a restart: the TLS CA, and a key that the manifest names. */
  tlsCa: ec('P-256'),
  seedshareOwner: rsa(2048),
} as const;

/** The identifiers of the chips, and their lengths in bytes (docs/protocol/attestation.md 7, 10). */
const IDENTIFIERS = { chipId: 64, ppid: 16, piid: 16 } as const;

/** Certificates that clients pin. They are kept: signatures are random, and new certificates would differ. */
const ROOTS = {
  ark: (keys: HardwareKeys) => issueCertificate(arkRequest(keys)),
  ask: (keys: HardwareKeys) => issueCertificate(askRequest(keys)),
  intelRoot: (keys: HardwareKeys) => issueCertificate(intelRootRequest(keys)),
  tlsCa: (keys: HardwareKeys) => issueTlsCa(keys),
} as const;

export type HardwareKeys = Readonly<Record<keyof typeof KEYS, KeyObject>>;

export interface Hardware {
  readonly keys: HardwareKeys;
  readonly ids: Readonly<Record<keyof typeof IDENTIFIERS, Uint8Array>>;
  /** DER. */
  readonly roots: Readonly<Record<keyof typeof ROOTS, Uint8Array>>;
}

function mapTable<Table extends object, Value>(
  table: Table,
  value: (name: keyof Table & string) => Value,
): Record<keyof Table, Value> {
  const names = Object.keys(table) as (keyof Table & string)[];
  return Object.fromEntries(names.map((name) => [name, value(name)])) as Record<keyof Table, Value>;
}

const generate = promisify(generateKeyPair);

async function generateKey(spec: (typeof KEYS)[keyof typeof KEYS]): Promise<KeyObject> {
  const pair = spec.type === 'rsa' ? await generate('rsa', spec) : await generate('ec', spec);
  return pair.privateKey;
}

/** Makes new hardware, in about a second, mostly for the primes of the RSA keys that `known` lacks. */
export async function createHardware(known: Partial<HardwareKeys> = {}): Promise<Hardware> {
  const made = Object.entries(KEYS).map(async ([name, spec]) => {
    return [name, known[name as keyof HardwareKeys] ?? (await generateKey(spec))] as const;
  });
  const keys = Object.fromEntries(await Promise.all(made)) as HardwareKeys;
  return {
    keys,
    ids: mapTable(IDENTIFIERS, (name) => new Uint8Array(randomBytes(IDENTIFIERS[name]))),
    roots: mapTable(ROOTS, (name) => ROOTS[name](keys)),
  };
}

/** Writes hardware to a file that only its owner can read. */
export async function saveHardware(path: string, { keys, ids, roots }: Hardware): Promise<void> {
  const stored = {
    keys: mapTable(KEYS, (name) => keys[name].export({ type: 'pkcs8', format: 'pem' })),
    ids: mapTable(IDENTIFIERS, (name) => Buffer.from(ids[name]).toString('hex')),
    roots: mapTable(ROOTS, (name) => toPem(roots[name])),
  };
  await writeFile(path, JSON.stringify(stored, undefined, 2), { mode: 0o600, flag: 'wx' });
}

/** Reads a file of `saveHardware`; undefined if there is none. Throws config_invalid for other content. */
export async function loadHardware(path: string): Promise<Hardware | undefined> {
  const text = await readIfThere(path);
  if (text === undefined) return undefined;
  try {
    const stored = JSON.parse(text) as Record<keyof Hardware, Record<string, string>>;
    return {
      keys: mapTable(KEYS, (name) => createPrivateKey(stored.keys[name] as string)),
      ids: mapTable(IDENTIFIERS, (name) => new Uint8Array(Buffer.from(stored.ids[name] as string, 'hex'))),
      roots: mapTable(ROOTS, (name) => decodeOneCertificate(stored.roots[name] as string)),
    };
  } catch (cause) {
    const words = `${path} does not hold simulator hardware; remove it`;
    throw new PrivatemodeError('config_invalid', words, { cause });
  }
}

/** The text of a file; undefined if there is none. */
export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
