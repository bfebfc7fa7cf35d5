/** Secret-exchange responses of test/vectors/attestation as inputs of the mesh checks. */
import type { SecretResponseInput } from '../../../lib/attestation/mesh.ts';
import {
  SYNTHETIC_NOW,
  type SyntheticSet,
  vectorBytes,
  vectorJson,
  vectorText,
} from './attestation-vectors.ts';

const decode = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, 'base64'));

/** The good response of a set, or one of `negative/`. */
export function secretInput(set: SyntheticSet, file = 'secret_response.json'): SecretResponseInput {
  const request = vectorJson<{ PublicKey: string }>(`${set}/secret_request.json`);
  const response = vectorJson<{ EncapsulatedKey: string; Signature: string; MeshCert: string }>(
    `${set}/${file}`,
  );
  return {
    manifest: vectorBytes(`${set}/manifest.json`),
    meshCaPem: vectorText(`${set}/mesh_ca.pem`),
    publicKey: decode(request.PublicKey),
    encapsulatedKey: decode(response.EncapsulatedKey),
    signature: decode(response.Signature),
    meshCert: decode(response.MeshCert),
    now: SYNTHETIC_NOW,
  };
}
