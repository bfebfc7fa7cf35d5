/**
 * What the TDX checks judge: the evidence with its certificates, and what Intel publishes about the platform
 * (docs/protocol/attestation.md 10). Reads and fetches it; the checks decide whether any of it is believed.
 */
import { type PublicKey, verifyEcdsa } from '#crypto/signature';
import {
  contextTag,
  expectTag,
  malformed,
  onlyChild,
  parseDer,
  readSequence,
  TAG,
} from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import { attempt, attemptAsync, type CheckRow, type Finding, finding } from '../check.ts';
import {
  type ReadList,
  type RevocationList,
  readRevocationList,
  type SignedCollateral,
} from '../collateral.ts';
import type { EvidenceContext, TrustRoots } from '../evidence.ts';
import { hex } from '../findings.ts';
import type { JsonMembers } from '../json-members.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, parseCertificate } from '../x509/certificate.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';
import { readCertificates, readPckChain, signerDefects } from './chain.ts';
import type { QuoteV4 } from './quote.ts';
import { readSgxExtension, SGX_EXTENSION_OID } from './sgx-extension.ts';
import { readSignedJson, unusable } from './signed-json.ts';
import { type QeIdentity, readQeIdentity, readTcbInfo, type TcbInfo } from './tcb-info.ts';

/** Without collateral where a check of the evidence alone has failed. */
export type TdxSubject = Evidence & Partial<Collateral>;
export type TdxRow = CheckRow<TdxSubject>;
type Evidence = Readonly<ReturnType<typeof readSubject>>;
type Collateral = NonNullable<Awaited<ReturnType<typeof fetchCollateral>>>;

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
  if (tdx === undefined) {
    const options = { detail: { missingRoot: 'tdx' } };
    throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted', options);
  }
  return parseCertificate(decodeOneCertificate(tdx.root));
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

/** A signed JSON body with what it says and who signed it. */
export type SignedDocument<T = TcbInfo | QeIdentity> = Readonly<Awaited<ReturnType<typeof readDocument<T>>>>;

/** Asks for all collateral of the platform in evidence that holds. Rejects only with what is not a PrivatemodeError. */
export async function fetchCollateral({ sgx, pinnedRoot, entry, context }: Evidence) {
  const { collateral: source, now } = context;
  const [platform, pinned] = [sgx?.value, pinnedRoot?.value];
  if (platform === undefined || pinned === undefined) return undefined;
  const fmspc = hex(platform.fmspc);
  const evaluationDataNumber = entry.minTcbEvaluationDataNumber;
  // Without a number, Intel answers with whatever is current.
  const ofNumber = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    attemptAsync(() => readDocument(source.intelTcbInfo({ fmspc, ...ofNumber }), 'tcbInfo', readTcbInfo)),
    attemptAsync(() => readDocument(source.intelQeIdentity(ofNumber), 'enclaveIdentity', readQeIdentity)),
    attemptAsync(() => readCrl(source.intelPckCrl())),
  ]);
  const identity = qeIdentity?.value;
  const trusted = identity !== undefined && (await signerDefects(identity, pinned, now)).length === 0;
  const fetchRootCrl = async (root: Certificate): Promise<ReadList> => {
    const url = asCollateral('the root certificate', () => distributionPoint(root));
    return readCrl(source.intelRootCrl({ url }));
  };
  /** Undefined where the root that names its address is not trusted. */
  const rootCrl = trusted ? await attemptAsync(() => fetchRootCrl(identity.root)) : undefined;
  return { tcbInfo, qeIdentity, pckCrl, rootCrl };
}

async function readDocument<T>(
  answer: Promise<SignedCollateral>,
  name: string,
  read: (content: JsonMembers) => T,
) {
  const { body, issuerChain } = await answer;
  const signed = readSignedJson(body, name);
  const chain = asCollateral('its issuer chain', () => readCertificates(issuerChain, 2));
  const [signer, root] = chain as [Certificate, Certificate];
  return { ...signed, value: read(signed.content), signer, root };
}

async function readCrl(answer: Promise<RevocationList>): Promise<ReadList> {
  const list = await answer;
  return asCollateral('the CRL', () => readRevocationList(list));
}

/** Turns the readers' evidence_malformed into collateral_unavailable: what they read here was fetched. */
function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw unusable(`${what} cannot be read: ${error.message}`);
  }
}

const CONTEXT_0 = contextTag(0, true);
const URI = contextTag(6, false);

/** Where the CRL of a root is published: the one URI of its one distribution point (RFC 5280 4.2.1.13). */
function distributionPoint({ extensions }: Certificate): string {
  const value = extensionValue(extensions, EXTENSION_OID.crlDistributionPoints);
  if (value === undefined) throw malformed('the root names no distribution point for its CRL');
  const point = onlyChild(parseDer(value, TAG.sequence));
  const fullName = onlyChild(readSequence(point, (cursor) => cursor.take(CONTEXT_0)));
  const { content } = expectTag(onlyChild(expectTag(fullName, CONTEXT_0)), URI);
  return Buffer.from(content).toString('latin1');
}
