/** The one product of P-384 that the verifier needs, on public data only (FIPS 186-5, SP 800-186 3.2.1.4). */
import { createECDH } from 'node:crypto';

/**
 * `scalar` times the base point as 0x04 || x || y (SEC 1 2.3.3), 97 bytes. OpenSSL takes a tenth of the time that the first
 * product takes in JavaScript (1 against 12 ms). Throws for a scalar outside 0 < scalar < order.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(96, '0'), 'hex');
  return ecdh.getPublicKey();
}
