/**
 * The reference values of the manifest, which the simulated machine therefore has. Measurements, guest policy
 * and TCB are the public ones of the live deployment (docs/protocol/attestation.md 19.2); the chip and
 * platform ids are our own.
 */
import type { Hardware } from './hardware.ts';
import type { Tcb } from './pki/amd.ts';

export const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'));

/** The SEV-SNP guest: launch digests, AP reset address, and values fixed at launch. Digests in hex. */
export const SNP_GUEST = {
  apEip: '0080b004',
  /** By the number of vCPUs (docs/protocol/attestation.md 19.13); the manifest names the first. */
  measurements: {
    1: '766d05930c6cb7c32fc375677b3bc9896b73a65f8f8e709b2a4885b033b7aee5789fce6aa0bab57d89cf7211d5fa327a',
    2: '7a8f57a9b9124cdfd0bad065e16b16cf535bac01d591fd563990083bed33fb5952b70abee4f604ddb84c9c24b0cbd63c',
  },
  /** ABI 1.58, single socket, AES-256-XTS, page swap disabled (docs/protocol/attestation.md 19.5). */
  policy: 0x252013an,
  tcb: { bootloader: 12, tee: 0, snp: 28, microcode: 88 } satisfies Tcb,
  mitigationVector: 0xfn,
  /** ECC_EN and ALIAS_CHECK_COMPLETE (docs/protocol/attestation.md 6.3). */
  platformInfo: 0x24n,
} as const;

/** The TDX guest: module, image and runtime measurements, in hex. */
export const TDX_GUEST = {
  mrTd: 'a7568bf0b3630aa33402bfec918a204c82cf92d44b09d9b1b0d8779323c6e7de5fb350d544c71c656a6d7b407e70069b',
  mrSeam: 'ab62561a173acbd18ee50ff37750db44184c6cf5e886df74247cc575e163b04c34b9e18374757c235affa614d4127f6b',
  rtmrs: [
    '3a57ae743d61d8431a9996cfeb262ee920de9072295e53352959b96c6dee54b46bf251291efb428de418a571d11a5244',
    '69314c5c4b80a1c2ddc916ab6050128411723b06e680795a3753b5d942c77c030d52d84b141c05953122b8118c8ca8c6',
    '8c0f7b7e20c9cc572dba32d26c9427a544a1e4d1be8b097f9cc425feca60ac0f65bfc7b0f0bc9db8a2a4c872df2d0648',
    '00'.repeat(48),
  ],
  xfam: 'e702060000000000',
  tcbEvaluationDataNumber: 21,
} as const;

/** Sixteen small numbers, the rest zero. */
const sixteen = (...first: number[]): readonly number[] =>
  Array.from({ length: 16 }, (_, index) => first[index] ?? 0);

/**
 * The simulated Intel platform: values in its PCK certificate and its quotes, which TCB info and QE identity
 * must therefore allow (docs/protocol/attestation.md 9, 10).
 */
export const TDX_PLATFORM = {
  fmspc: hex('a0b1c2d3e4f5'),
  pceId: hex('0000'),
  /** SVNs of the SGX components in the PCK certificate. */
  componentSvns: sixteen(3, 3, 2, 2, 4, 1, 0, 5),
  pceSvn: 13,
  /** TEE_TCB_SVN: TDX module 1, minor version 7. */
  teeTcbSvn: sixteen(7, 1, 3),
  /** A TDX module older than the only level that counts as up to date. */
  outdatedTeeTcbSvn: sixteen(3, 1, 3),
  cpuSvn: hex('03030202040100050000000000000000'),
} as const;

/** Intel's quoting enclave for TDX. Its own measurement is missing here, since nobody checks it. */
export const TD_QE = {
  vendorId: hex('939a7233f79c4ca9940a0db3957f0607'),
  attributes: hex('11000000000000000000000000000000'),
  mrSigner: hex('dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5'),
  isvProdId: 2,
  isvSvn: 4,
} as const;

/** `ReferenceValues` of the manifest, with the member names and order of the live one. */
export function referenceValues({ ids }: Pick<Hardware, 'ids'>): unknown {
  const { tcb } = SNP_GUEST;
  const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
  return {
    snp: [
      {
        Platform: 'Metal-QEMU-SNP-GPU',
        ProductName: 'Genoa',
        TrustedMeasurement: SNP_GUEST.measurements[1],
        APEIP: SNP_GUEST.apEip,
        MinimumTCB: {
          BootloaderVersion: tcb.bootloader,
          TEEVersion: tcb.tee,
          SNPVersion: tcb.snp,
          MicrocodeVersion: tcb.microcode,
        },
        GuestPolicy: {
          ...{ ABIMinor: 58, ABIMajor: 1, SMT: false, MigrateMA: false, Debug: false, SingleSocket: true },
          ...{ CXLAllowed: false, MemAES256XTS: true, RAPLDis: false, CipherTextHidingDRAM: false },
          PageSwapDisable: true,
        },
        PlatformInfo: { SMTEnabled: false, ECCEnabled: true, AliasCheckComplete: true },
        MinimumMitigationVector: Number(SNP_GUEST.mitigationVector),
        AllowedChipIDs: [hexOf(ids.chipId).toUpperCase()],
      },
    ],
    tdx: [
      {
        Platform: 'Metal-QEMU-TDX-GPU',
        MinTCBEvaluationDataNumber: TDX_GUEST.tcbEvaluationDataNumber,
        MrTd: TDX_GUEST.mrTd,
        MrSeam: TDX_GUEST.mrSeam,
        Rtmrs: TDX_GUEST.rtmrs,
        Xfam: TDX_GUEST.xfam,
        AllowedPIIDs: [hexOf(ids.piid)],
        MemoryIntegrity: false,
        SMTDisabled: false,
        StaticPlatform: false,
      },
    ],
  };
}
