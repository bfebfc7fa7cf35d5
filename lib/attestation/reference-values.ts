/** The reference values of a manifest (attestation.md 4.4, 4.5), validated and decoded (19.12). */
import type { TcbParts } from './snp/tcb.ts';

export interface SnpReferenceValues {
  readonly platform: string | undefined;
  readonly product: 'Milan' | 'Genoa';
  /** 48 bytes; the launch digest of a guest with one vCPU where `apeip` is set. */
  readonly trustedMeasurement: Uint8Array;
  /** The AP reset address; undefined = compare the measurement exactly. */
  readonly apeip: number | undefined;
  readonly minimumTcb: Pick<TcbParts, 'bootloader' | 'tee' | 'snp' | 'microcode'>;
  readonly guestPolicy: GuestPolicy;
  readonly platformInfo: PlatformInfo;
  readonly minimumMitigationVector: bigint;
  /** 64 bytes each; empty = any chip. */
  readonly allowedChipIds: readonly Uint8Array[];
}

export interface GuestPolicy {
  readonly abiMinor: number;
  readonly abiMajor: number;
  readonly smt: boolean;
  readonly migrateMa: boolean;
  readonly debug: boolean;
  readonly singleSocket: boolean;
  readonly cxlAllowed: boolean;
  readonly memAes256Xts: boolean;
  readonly raplDis: boolean;
  readonly cipherTextHidingDram: boolean;
  readonly pageSwapDisable: boolean;
}

export interface PlatformInfo {
  readonly smtEnabled: boolean;
  readonly tsmeEnabled: boolean;
  readonly eccEnabled: boolean;
  readonly raplDisabled: boolean;
  readonly ciphertextHidingDramEnabled: boolean;
  readonly aliasCheckComplete: boolean;
  readonly tioEnabled: boolean;
}

export interface TdxReferenceValues {
  readonly platform: string | undefined;
  /** 0 = no requirement. */
  readonly minTcbEvaluationDataNumber: number;
  /** 48 bytes. */
  readonly mrTd: Uint8Array;
  /** 48 bytes. */
  readonly mrSeam: Uint8Array;
  /** RTMR0 to RTMR3, 48 bytes each. */
  readonly rtmrs: readonly [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
  /** Further values allowed for RTMR0, 48 bytes each (attestation.md 19.10). */
  readonly rtmr0Alternatives: readonly Uint8Array[];
  /** 8 bytes, in quote order. */
  readonly xfam: Uint8Array;
  /** 16 bytes each; empty = any. */
  readonly allowedPiids: readonly Uint8Array[];
  readonly memoryIntegrity: boolean;
  readonly smtDisabled: boolean;
  readonly staticPlatform: boolean;
}
