/** What the hardware signs on our behalf: nonce, manifest history and the two CA certificates in 64 bytes. */
import { sha256 } from '../crypto/digest.ts';
import { PrivatemodeError } from '../errors.ts';

/**
 * The digest over the manifest history, oldest first: T = H(H(m) || T_previous), starting from 32 zero bytes
 * (attestation.md 3.1). 32 bytes.
 */
export function transitionDigest(manifests: readonly Uint8Array[]): Uint8Array {
  return manifests.reduce<Uint8Array>(
    (previous, manifest) => sha256(sha256(manifest), previous),
    new Uint8Array(32),
  );
}

/**
 * The expected REPORT_DATA (attestation.md 3.2): H(nonce || transition || H(rootCa) || H(meshCa)) and 32 zero
 * bytes. `nonce` and `transition` are 32 bytes each, the CAs are PEM exactly as in the document.
 * Throws evidence_malformed for another nonce or digest length.
 */
export function reportData(input: {
  readonly nonce: Uint8Array;
  readonly transition: Uint8Array;
  readonly rootCa: Uint8Array;
  readonly meshCa: Uint8Array;
}): Uint8Array {
  const { nonce, transition, rootCa, meshCa } = input;
  if (nonce.length !== 32 || transition.length !== 32) {
    throw new PrivatemodeError('evidence_malformed', 'nonce and transition digest must have 32 bytes');
  }
  const data = new Uint8Array(64);
  data.set(sha256(nonce, transition, sha256(rootCa), sha256(meshCa)));
  return data;
}
