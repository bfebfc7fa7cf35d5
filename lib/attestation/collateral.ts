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
  amdCrl(query: { product: 'Milan' | 'Genoa' }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Without a number, Intel answers from its default set, which may be older than the one that a manifest demands:
   * both calls must name the same.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the distribution point of the root certificate. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** A revocation list, and whether it is the newest. */
export interface RevocationList {
  /** DER. */
  readonly crl: Uint8Array;
  /** Of a stored list that stands in for one that should have been fetched now; absent: it was fetched. */
  readonly stored?: {
    /** Wall clock, ms since 1970. */
    readonly fetchedAt: number;
    /** Why asking failed. */
    readonly because: string;
  };
}

/** A JSON body exactly as received, and the PEM chain of the certificate that signed it. */
export interface SignedCollateral {
  readonly body: string;
  readonly issuerChain: string;
}
