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
