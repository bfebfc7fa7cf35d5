/** What both kinds of simulated evidence, SEV-SNP and TDX, are made from. */
import type { Faults } from '../faults.ts';
import type { Hardware } from '../hardware.ts';

/** The input for evidence of either kind. */
export interface EvidenceRequest {
  readonly hardware: Hardware;
  /** 64 bytes (docs/protocol/attestation.md 3). */
  readonly reportData: Uint8Array;
  /** 32 bytes: the policy hash of the coordinator. */
  readonly coordinatorHash: Uint8Array;
  /** vCPUs of an SEV-SNP guest; its launch digest depends on their number. */
  readonly vcpus: 1 | 2;
  readonly faults: Faults;
}
