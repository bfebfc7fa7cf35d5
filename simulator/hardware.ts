/**
 * The keys that act as the simulated chips, and the roots that vouch for them. They are kept in the
 * directory: after a restart with the same hardware, clients see the same machine.
 */
import { createPrivateKey, generateKeyPair, type KeyObject, randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { decodeOneCertificate } from '../lib/crypto/der.ts';
import { PrivatemodeError } from '../lib/errors.ts';
import { issueArk, issueAsk } from './pki/amd.ts';
import { toPem } from './pki/certificate.ts';
import { issueIntelRoot } from './pki/intel.ts';
import { issueTlsCa } from './pki/tls.ts';

const rsa = (modulusLength: number) => ({ type: 'rsa', modulusLength }) as const;
const ec = (namedCurve: 'P-256' | 'P-384') => ({ type: 'ec', namedCurve }) as const;

/**
 * Every long-lived private key. AMD's two are RSA 4096 (docs/protocol/attestation.md 7); making them takes
 * most of the time.
 */
const KEYS = {
  ark: rsa(4096),
  ask: rsa(4096),
  vcek: ec('P-384'),
  intelRoot: ec('P-256'),
  intelPlatformCa: ec('P-256'),
  intelTcbSigning: ec('P-256'),
  pck: ec('P-256'),
  quotingEnclave: ec('P-256'),
  /**
   * These belong to no chip, but must also survive a restart: the TLS CA, and a key that the manifest names.
   */
  tlsCa: ec('P-256'),
  seedshareOwner: rsa(2048),
} as const;

/** The identifiers of the chips, and their lengths in bytes (docs/protocol/attestation.md 7, 10). */
const IDENTIFIERS = { chipId: 64, ppid: 16, piid: 16 } as const;

/**
 * Certificates that clients pin. They are issued once and kept, because signatures are randomised and a new
 * certificate would differ.
 */
const ROOTS = {
  ark: (keys: HardwareKeys) => issueArk(keys),
  ask: (keys: HardwareKeys) => issueAsk(keys),
  intelRoot: (keys: HardwareKeys) => issueIntelRoot(keys),
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

/**
 * Makes new hardware. This takes about a second, mostly for the primes of the RSA keys that `known` lacks.
 */
export async function createHardware(known: Partial<HardwareKeys> = {}): Promise<Hardware> {
  const pending = mapTable(KEYS, async (name) => known[name] ?? generateKey(KEYS[name]));
  await Promise.all(Object.values(pending));
  const entries = await Promise.all(
    Object.entries(pending).map(async ([name, key]) => [name, await key] as const),
  );
  const keys = Object.fromEntries(entries) as unknown as HardwareKeys;
  return {
    keys,
    ids: mapTable(IDENTIFIERS, (name) => new Uint8Array(randomBytes(IDENTIFIERS[name]))),
    roots: mapTable(ROOTS, (name) => ROOTS[name](keys)),
  };
}

/** Writes hardware to a file that only its owner can read. */
export async function saveHardware(path: string, { keys, ids, roots }: Hardware): Promise<void> {
  const text = JSON.stringify(
    {
      keys: mapTable(KEYS, (name) => keys[name].export({ type: 'pkcs8', format: 'pem' })),
      ids: mapTable(IDENTIFIERS, (name) => Buffer.from(ids[name]).toString('hex')),
      roots: mapTable(ROOTS, (name) => toPem(roots[name])),
    },
    undefined,
    2,
  );
  await writeFile(path, text, { mode: 0o600, flag: 'wx' });
}

/**
 * Reads a file that `saveHardware` wrote; undefined if there is no such file. Throws config_invalid if the
 * file holds something else.
 */
export async function loadHardware(path: string): Promise<Hardware | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const stored = JSON.parse(text) as Record<keyof Hardware, Record<string, string>>;
    return {
      keys: mapTable(KEYS, (name) => createPrivateKey(stored.keys[name] as string)),
      ids: mapTable(IDENTIFIERS, (name) => new Uint8Array(Buffer.from(stored.ids[name] as string, 'hex'))),
      roots: mapTable(ROOTS, (name) => decodeOneCertificate(stored.roots[name] as string)),
    };
  } catch (cause) {
    throw new PrivatemodeError('config_invalid', `${path} does not hold simulator hardware; remove it`, {
      cause,
    });
  }
}
