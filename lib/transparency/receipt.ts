/** The parts of an epoch that a response names, so that a person can audit what protected it. */
export interface ReceiptSource {
  readonly secretId: string;
  /** Lower-case hex. */
  readonly manifestSha256: string;
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
}

export const RECEIPT_HEADERS = {
  secretId: 'Privatemode-Proxy-Secret-Id',
  manifestSha256: 'Privatemode-Proxy-Manifest-Sha256',
  attestedAt: 'Privatemode-Proxy-Attested-At',
  requestId: 'Privatemode-Proxy-Request-Id',
} as const;

/** The names of all receipt headers, for Access-Control-Expose-Headers. */
export const RECEIPT_HEADER_NAMES: readonly string[] = Object.values(RECEIPT_HEADERS);

/**
 * The receipt of one response, as headers by name. `source` is the epoch of the attempt that led to it, not of the first
 * one; the time is RFC 3339 in UTC.
 */
export function receiptHeaders(source: ReceiptSource, requestId: string): Record<string, string> {
  return {
    [RECEIPT_HEADERS.secretId]: source.secretId,
    [RECEIPT_HEADERS.manifestSha256]: source.manifestSha256,
    [RECEIPT_HEADERS.attestedAt]: new Date(source.attestedAt).toISOString(),
    [RECEIPT_HEADERS.requestId]: requestId,
  };
}
