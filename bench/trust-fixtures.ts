/**
 * What the micro benches of the trust path work on: evidence of the test vectors, and both sides of a key
 * exchange.
 */
import type { Check, VerifyInput } from '../lib/attestation/verify-evidence.ts';
import type { Epoch } from '../lib/session/epoch.ts';
import { SUITE, startSecretExchange } from '../lib/session/secret-exchange.ts';
import { syntheticInput as snpInput } from '../test/support/evidence/attestation-vectors.ts';
import { syntheticInput as tdxInput } from '../test/support/evidence/tdx-vectors.ts';

/** Evidence that the verifier accepts, by hardware; all collateral is present. */
export const EVIDENCE: Readonly<Record<'snp' | 'tdx', VerifyInput>> = {
  snp: snpInput('synthetic_v158'),
  tdx: tdxInput(),
};

const MEGABYTE = 1 << 20;

/** What is no TDX message, as large as one may be: refusing it has to cost little. */
export const NO_QUOTE: Readonly<Record<string, Uint8Array>> = {
  zeros: new Uint8Array(MEGABYTE),
  'numbers of unknown fields': new Uint8Array(MEGABYTE).fill(0x78),
  noise: Uint8Array.from({ length: MEGABYTE }, (_, i) => (i * 2654435761) >>> 13),
};

/** ms in which no other work could run while `work` did: the longest such gap. */
export async function longestHold(work: () => Promise<unknown>): Promise<number> {
  let held = 0;
  let last = performance.now();
  let running = true;
  const tick = (): void => {
    const now = performance.now();
    held = Math.max(held, now - last);
    last = now;
    if (running) setImmediate(tick);
  };
  tick();
  await work();
  running = false;
  tick();
  return held;
}

const SECRET_BYTES = 32;

/** Who signed the answer is part of the verdict; here only the key agreement counts. */
const ACCEPTED: readonly Check[] = [
  { id: 'bench', outcome: 'pass', expected: 'anybody', found: 'anybody', source: 'none' },
];

export interface AnsweredExchange {
  /** What the service has. */
  readonly theirs: Uint8Array;
  /** Our side of it, from the answer to the secret; works again and again. */
  complete(): Promise<Pick<Epoch, 'key'>>;
}

/** A key pair of ours to which a service has answered. */
export async function answeredExchange(): Promise<AnsweredExchange> {
  const keys = await SUITE.GenerateKeyPair(false);
  const sent = await SUITE.SendExport(keys.publicKey, new Uint8Array(0), SECRET_BYTES);
  return {
    theirs: sent.exportedSecret,
    complete: async () => (await startSecretExchange(keys)).complete(sent.encapsulatedSecret, ACCEPTED),
  };
}
