import type { Faults } from '../faults.ts';
import type { Hardware } from '../hardware.ts';

/** What evidence of either kind is asked to prove. */
export interface EvidenceRequest {
  readonly hardware: Hardware;
  /** 64 bytes (docs/protocol/attestation.md 3). */
  readonly reportData: Uint8Array;
  /** 32 bytes: the policy hash of the coordinator. */
  readonly coordinatorHash: Uint8Array;
  readonly faults: Faults;
}
