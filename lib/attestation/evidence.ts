/** The evidence in a document, and what its verification is given besides. */
import { malformed } from '../crypto/der.ts';
import { attempt } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import type { TrustRoots } from './roots/production.ts';
import { decodeSnpAttestation } from './snp/report.ts';
import { decodeQuoteV4 } from './tdx/quote.ts';

/** What the verification of the evidence is given, whichever kind it is of. */
export interface EvidenceContext {
  /** 64 bytes, over the document's own manifests (docs/protocol/attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /**
   * 32 bytes each: the policy hashes of the coordinator entries of the expected manifest
   * (docs/protocol/attestation.md 4.3, 19.12 rule 11).
   */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}

/** The attestation_type that a document may state for each kind of evidence. */
export const ATTESTATION_TYPE = { snp: '1.3.9901.2.1', tdx: '1.3.9901.2.2' } as const;

export type Evidence = ReturnType<typeof readEvidence>;

/**
 * Finds the kind of evidence by the shape of the message alone; a later check compares the type that the
 * document states. Throws evidence_malformed if the message has the shape of neither kind, or of both.
 */
export function readEvidence(raw: Uint8Array) {
  const snp = attempt(() => decodeSnpAttestation(raw));
  const tdx = attempt(() => decodeQuoteV4(raw));
  if (snp.value && tdx.value) throw malformed('the message can be read as SEV-SNP and as TDX');
  if (snp.value) return { tee: 'snp', message: snp.value } as const;
  if (tdx.value) return { tee: 'tdx', message: tdx.value } as const;
  const [noSnp, noTdx] = [snp.error?.message, tdx.error?.message];
  throw malformed(`no SEV-SNP message (${noSnp}) and no TDX message (${noTdx})`);
}
