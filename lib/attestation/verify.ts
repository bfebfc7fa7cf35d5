import type { Check } from './check.ts';

export type { Check } from './check.ts';

export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

export interface Verdict {
  readonly outcome: Outcome;
  readonly tee: 'snp' | 'tdx' | undefined;
  readonly manifestSha256: string;
  /** Every check, in order. The first failure decides; the rest is still reported where it could be evaluated. */
  readonly checks: readonly Check[];
  /** The first failed check; its `code` is the error to report. */
  readonly failure: Check | undefined;
  /** PEM text of the mesh CA certificate, bound by the report data; only for an accepted verdict. */
  readonly meshCaPem: string | undefined;
}

/** Hardware roots to trust, by product line; PEM. Production roots are embedded in ./roots. */
export interface TrustRoots {
  readonly snp: Readonly<Partial<Record<'Milan' | 'Genoa', { readonly ark: string; readonly ask: string }>>>;
  readonly tdx: { readonly root: string } | undefined;
}

/** Where evidence that the document does not carry comes from. Each call rejects with collateral_unavailable. */
export interface CollateralSource {
  /** DER. TCB parts are the decimal SPL values of REPORTED_TCB; chipId is lower-case hex. */
  amdVcek(query: {
    product: 'Milan' | 'Genoa';
    chipId: string;
    bootloader: number;
    tee: number;
    snp: number;
    microcode: number;
  }): Promise<Uint8Array>;
  /** DER. */
  amdCrl(query: { product: 'Milan' | 'Genoa' }): Promise<Uint8Array>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelQeIdentity(): Promise<SignedCollateral>;
  intelPckCrl(): Promise<{ readonly crl: Uint8Array; readonly issuerChain: string }>;
  /** `url` is the distribution point of the root certificate. */
  intelRootCrl(query: { url: string }): Promise<Uint8Array>;
}

/** A JSON body exactly as received, and the PEM chain of the certificate that signed it. */
export interface SignedCollateral {
  readonly body: string;
  readonly issuerChain: string;
}

export interface VerifyInput {
  /** The decoded AttestationDoc: the coordinator's own JSON (attestation.md section 2). */
  readonly document: Uint8Array;
  /** The 32 bytes that were sent. */
  readonly nonce: Uint8Array;
  /** The expected manifest, byte for byte. */
  readonly manifest: Uint8Array;
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}
