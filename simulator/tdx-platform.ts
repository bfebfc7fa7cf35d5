/**
 * The simulated Intel platform: values in its PCK certificate and its quotes, which TCB info and QE identity
 * must therefore allow (docs/protocol/attestation.md 9, 10).
 */
const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'));
/** Sixteen small numbers, the rest zero. */
const sixteen = (...first: number[]): readonly number[] =>
  Array.from({ length: 16 }, (_, index) => first[index] ?? 0);

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
