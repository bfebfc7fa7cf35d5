/**
 * Hardware for simulated deployments and forged platforms. Finding the primes of its RSA keys takes 1.5 s of
 * CPU, in each of fifty test processes, so these keys are kept; all else is made anew. They protect nothing.
 */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createHardware, type Hardware } from '../../../simulator/hardware.ts';

type RsaKey = 'ark' | 'ask' | 'exponent3' | 'small';

/** `small` has 2048 bits, the others 4096; `exponent3` has that public exponent, the others 65537. */
export const RSA_KEYS = Object.fromEntries(
  Object.entries(
    JSON.parse(readFileSync(join(import.meta.dirname, '../../vectors/rsa/keys.json'), 'utf8')) as object,
  ).map(([name, der]) => [
    name,
    createPrivateKey({ key: Buffer.from(der, 'base64'), format: 'der', type: 'pkcs8' }),
  ]),
) as Readonly<Record<RsaKey, KeyObject>>;

let hardware: Promise<Hardware> | undefined;

/** One machine for all the tests of a process. */
export function sharedHardware(): Promise<Hardware> {
  const { ark, ask, small } = RSA_KEYS;
  hardware ??= createHardware({ ark, ask, seedshareOwner: small });
  return hardware;
}
