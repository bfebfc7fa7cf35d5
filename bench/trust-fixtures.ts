/** What the micro benches of the trust path work on: evidence of the test vectors, and both sides of a key exchange. */
import type { Check, VerifyInput } from '../lib/attestation/verify.ts';
import type { SecretResponse } from '../lib/session/control-api.ts';
import { createExchange, type SharedSecret, SUITE } from '../lib/session/secret-exchange.ts';
import { syntheticInput as snpInput } from '../test/support/attestation-vectors.ts';
import { syntheticInput as tdxInput } from '../test/support/tdx-vectors.ts';

/** Evidence that the verifier accepts, by hardware; all collateral is at hand. */
export const EVIDENCE: Readonly<Record<'snp' | 'tdx', VerifyInput>> = {
  snp: snpInput('synthetic_v158'),
  tdx: tdxInput(),
};

const SECRET_BYTES = 32;

/** Who signed the answer is part of the verdict; here only the key agreement counts. */
const accepted = (): readonly Check[] => [
  { id: 'bench', outcome: 'pass', expected: 'anybody', found: 'anybody', source: 'none' },
];

export interface AnsweredExchange {
  /** What the service has. */
  readonly theirs: Uint8Array;
  /** Our side of it, from the answer to the secret; works again and again. */
  complete(): Promise<SharedSecret>;
}

/** A key pair of ours to which a service has answered. */
export async function answeredExchange(): Promise<AnsweredExchange> {
  const keys = await SUITE.GenerateKeyPair(false);
  const sent = await SUITE.SendExport(keys.publicKey, new Uint8Array(0), SECRET_BYTES);
  const response: SecretResponse = {
    encapsulatedKey: sent.encapsulatedSecret,
    signature: new Uint8Array(70),
    meshCert: new Uint8Array(500),
  };
  return {
    theirs: sent.exportedSecret,
    complete: async () => (await createExchange(keys)).complete(response, accepted),
  };
}
