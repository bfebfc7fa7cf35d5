/** What the TDX checks judge, and the findings that several of them make. */
import type { KeyObject } from 'node:crypto';
import { verifyEcdsa } from '../../crypto/signature.ts';
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attempt, type CheckRow, demand, type Finding, finding, valueIn } from '../check.ts';
import type { EvidenceContext } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, parseCertificate } from '../x509/certificate.ts';
import { extensionValue } from '../x509/extensions.ts';
import { type PckChain, readPckChain } from './chain.ts';
import type { Collateral, CollateralParts } from './collateral.ts';
import type { QuoteV4 } from './quote.ts';
import { readSgxExtension, SGX_EXTENSION_OID, type SgxExtension } from './sgx-extension.ts';

export interface TdxSubject {
  readonly quote: QuoteV4;
  readonly entry: TdxReferenceValues;
  readonly context: EvidenceContext;
  /** The one trust anchor. */
  readonly pinnedRoot: Attempt<Certificate>;
  readonly chain: Attempt<PckChain>;
  /** From the PCK certificate. */
  readonly sgx: Attempt<SgxExtension>;
  /** Undefined where a check of the evidence alone has failed. */
  readonly collateral: Collateral | undefined;
}

export type TdxRow = CheckRow<TdxSubject>;

/** A table of checks whose rule comes from this section, unless a row names another. */
export const rowsFrom = (
  source: string,
  rows: readonly (Omit<TdxRow, 'source'> & { readonly source?: string })[],
): readonly TdxRow[] => rows.map((row) => ({ source, ...row }));

/** Reads the certificates in evidence and context; what cannot be read fails the check responsible for it. */
export function readSubject(quote: QuoteV4, entry: TdxReferenceValues, context: EvidenceContext): TdxSubject {
  const { pckCertificateChainData } = quote.signedData.certificationData.qeReportCertificationData;
  const chain = attempt(() => readPckChain(pckCertificateChainData.pckCertChain));
  const leaf = valueIn(chain)?.leaf;
  return {
    quote,
    entry,
    context,
    chain,
    pinnedRoot: attempt(() => readPinnedRoot(context.roots.tdx?.root)),
    sgx: leaf === undefined ? undefined : attempt(() => readSgx(leaf)),
    collateral: undefined,
  };
}

function readPinnedRoot(pem: string | undefined): Certificate {
  if (pem === undefined) throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted');
  return parseCertificate(decodeOneCertificate(pem));
}

function readSgx({ extensions }: Certificate): SgxExtension {
  const value = extensionValue(extensions, SGX_EXTENSION_OID);
  if (value === undefined) {
    throw new PrivatemodeError('evidence_malformed', `the PCK certificate has no ${SGX_EXTENSION_OID}`);
  }
  return readSgxExtension(value);
}

/** Judges a part of the collateral; undefined where that part could not be had. */
export const judging =
  <Part extends keyof CollateralParts>(
    name: Part,
    judge: (part: CollateralParts[Part], subject: TdxSubject) => ReturnType<TdxRow['judge']>,
  ): TdxRow['judge'] =>
  (subject) => {
    const part = subject.collateral && valueIn(subject.collateral[name]);
    return part && judge(part, subject);
  };

/** Passes when there are no defects, else names them all. */
export function noDefects(defects: readonly string[], held: string): Finding {
  return finding(defects.length === 0, defects.length === 0 ? held : defects.join('; '));
}

/** Passes when the part was read; undefined where that was not tried. Throws the error of the reading. */
export function wasRead(part: Attempt<unknown>, found: string): Finding | undefined {
  return demand(part) === undefined ? undefined : finding(true, found);
}

/** Whether an ECDSA P-256 signature, r || s of 64 bytes, over the SHA-256 of `data` is valid. */
export async function signatureFinding(
  key: KeyObject,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<Finding> {
  const holds = await verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature });
  return finding(holds, holds ? 'valid' : 'not valid');
}

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
