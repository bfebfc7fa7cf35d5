/**
 * The subject of the TDX checks: the evidence with its certificates, and what Intel publishes about the
 * platform (docs/protocol/attestation.md 10). This file reads and fetches it; the checks decide whether to
 * believe any of it.
 */
import { type PublicKey, verifyEcdsa } from '../../crypto/signature.ts';
import { PrivatemodeError } from '../../errors.ts';
import { attempt, attemptAsync, type CheckRow, type Finding, finding, hex } from '../check.ts';
import { asCollateral, type ReadList, readFetchedList, type SignedCollateral } from '../collateral.ts';
import type { EvidenceContext, TrustRoots } from '../evidence.ts';
import type { JsonMembers } from '../json-members.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type Certificate, crlDistributionPoint, decodeOneCertificate, parseCertificate } from '../x509.ts';
import { readCertificates, readPckChain, signerDefects } from './chain.ts';
import type { QuoteV4 } from './quote.ts';
import { readSgxExtension, SGX_EXTENSION_OID } from './sgx-extension.ts';
import { readSignedJson } from './signed-json.ts';
import { type QeIdentity, readQeIdentity, readTcbInfo, type TcbInfo } from './tcb-info.ts';

/**
 * Collateral is absent if it was not fetched: a check of the evidence alone failed, or the nonce was another
 * one.
 */
export type TdxSubject = Evidence & Partial<Collateral>;
export type TdxRow = CheckRow<TdxSubject>;
type Evidence = Readonly<ReturnType<typeof readSubject>>;
type Collateral = NonNullable<Awaited<ReturnType<typeof fetchCollateral>>>;

/**
 * Reads the certificates in evidence and context. One that cannot be read fails the check responsible for it.
 */
export function readSubject(quote: QuoteV4, entry: TdxReferenceValues, context: EvidenceContext) {
  const qe = quote.signedData.certificationData.qeReportCertificationData;
  const chain = attempt(() => readPckChain(qe.pckCertificateChainData.pckCertChain));
  const extensions = chain?.value?.leaf.extensions;
  return {
    quote,
    body: quote.tdQuoteBody,
    /** The quoting enclave's report and certificates, which vouch for the attestation key. */
    qe,
    entry,
    context,
    /** The one trust anchor. */
    pinnedRoot: attempt(() => readPinnedRoot(context.roots)),
    chain,
    /** Intel's extension of the PCK certificate; undefined if the chain cannot be read. */
    sgx: extensions && attempt(() => readSgxExtension(extensions.get(SGX_EXTENSION_OID)?.value)),
  };
}

function readPinnedRoot({ tdx }: TrustRoots): Certificate {
  if (tdx === undefined) {
    const options = { detail: { missingRoot: 'tdx' } };
    throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted', options);
  }
  return parseCertificate(decodeOneCertificate(tdx.root));
}

/** Judges an ECDSA P-256 signature, r || s of 64 bytes, over the SHA-256 of `data`. */
export async function signatureFinding(
  key: PublicKey,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<Finding> {
  const holds = await verifyEcdsa({ key, hash: 'sha256', encoding: 'raw', data, signature });
  return finding(holds, holds ? 'valid' : 'not valid');
}

/** A signed JSON body: its bytes, what it says, and the certificates of its signer. */
export type SignedDocument<T = TcbInfo | QeIdentity> = Readonly<ReturnType<typeof readDocument<T>>>;

/**
 * Fetches all collateral of the platform; the evidence must have passed its own checks. Whatever cannot be
 * fetched or read is an Attempt with an error; the promise rejects only with errors other than
 * PrivatemodeError.
 */
export async function fetchCollateral({ sgx, pinnedRoot, entry, context }: Evidence) {
  const { collateral: source, now } = context;
  const [platform, pinned] = [sgx?.value, pinnedRoot?.value];
  if (platform === undefined || pinned === undefined) return undefined;
  const fmspc = hex(platform.fmspc);
  const evaluationDataNumber = entry.minTcbEvaluationDataNumber;
  // Without a number, Intel serves its default set.
  const ofNumber = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    attemptAsync(async () => readTcbDocument(await source.intelTcbInfo({ fmspc, ...ofNumber }))),
    attemptAsync(async () => readQeDocument(await source.intelQeIdentity(ofNumber))),
    attemptAsync(async () => readFetchedList(await source.intelPckCrl())),
  ]);
  const identity = qeIdentity?.value;
  const trusted = identity !== undefined && (await signerDefects(identity, pinned, now)).length === 0;
  const fetchRootCrl = async (root: Certificate): Promise<ReadList> => {
    const url = asCollateral('the root certificate', () => crlDistributionPoint(root));
    return readFetchedList(await source.intelRootCrl({ url }));
  };
  /** Undefined if the root certificate that names its address is not trusted. */
  const rootCrl = trusted ? await attemptAsync(() => fetchRootCrl(identity.root)) : undefined;
  return { tcbInfo, qeIdentity, pckCrl, rootCrl };
}

/** Reads a document whose value is at `name`. Throws collateral_unavailable. */
function readDocument<T>(
  { body, issuerChain, stored }: SignedCollateral,
  name: string,
  read: (content: JsonMembers) => T,
) {
  const signed = readSignedJson(body, name);
  const chain = asCollateral('its issuer chain', () => readCertificates(issuerChain, 2));
  const [signer, root] = chain as [Certificate, Certificate];
  return { ...signed, value: read(signed.content), signer, root, stored };
}

export const readTcbDocument = (fetched: SignedCollateral): SignedDocument<TcbInfo> =>
  readDocument(fetched, 'tcbInfo', readTcbInfo);

export const readQeDocument = (fetched: SignedCollateral): SignedDocument<QeIdentity> =>
  readDocument(fetched, 'enclaveIdentity', readQeIdentity);
