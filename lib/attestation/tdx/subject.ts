/** What the TDX checks judge, and the findings that several of them make. */
import { type PublicKey, verifyEcdsa } from '#crypto/signature';
import { PrivatemodeError } from '../../errors.ts';
import { attempt, type CheckRow, type Finding, finding } from '../check.ts';
import type { EvidenceContext, TrustRoots } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, parseCertificate } from '../x509/certificate.ts';
import { extensionValue } from '../x509/extensions.ts';
import { readPckChain } from './chain.ts';
import type { Collateral } from './collateral.ts';
import type { QuoteV4 } from './quote.ts';
import { readSgxExtension, SGX_EXTENSION_OID } from './sgx-extension.ts';

/** Without collateral where a check of the evidence alone has failed. */
export type TdxSubject = Readonly<ReturnType<typeof readSubject>> & Partial<Collateral>;
export type TdxRow = CheckRow<TdxSubject>;

/** Reads the certificates in evidence and context; what cannot be read fails the check responsible for it. */
export function readSubject(quote: QuoteV4, entry: TdxReferenceValues, context: EvidenceContext) {
  const qe = quote.signedData.certificationData.qeReportCertificationData;
  const chain = attempt(() => readPckChain(qe.pckCertificateChainData.pckCertChain));
  const extensions = chain?.value?.leaf.extensions;
  return {
    quote,
    body: quote.tdQuoteBody,
    /** What vouches for the attestation key. */
    qe,
    entry,
    context,
    /** The one trust anchor. */
    pinnedRoot: attempt(() => readPinnedRoot(context.roots)),
    chain,
    /** From the PCK certificate. */
    sgx: extensions && attempt(() => readSgxExtension(extensionValue(extensions, SGX_EXTENSION_OID))),
  };
}

function readPinnedRoot({ tdx }: TrustRoots): Certificate {
  if (tdx === undefined) throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted');
  return parseCertificate(decodeOneCertificate(tdx.root));
}

/** Passes when there are no defects, else names them all. */
export function noDefects(defects: readonly string[], held: string): Finding {
  return finding(defects.length === 0, defects.length === 0 ? held : defects.join('; '));
}

/** Whether an ECDSA P-256 signature, r || s of 64 bytes, over the SHA-256 of `data` is valid. */
export async function signatureFinding(
  key: PublicKey['key'],
  data: Uint8Array,
  signature: Uint8Array,
): Promise<Finding> {
  const holds = await verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature });
  return finding(holds, holds ? 'valid' : 'not valid');
}
