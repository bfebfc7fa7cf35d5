/**
 * What Intel publishes about a platform: TCB info, QE identity and the two revocation lists (docs/protocol/attestation.md 10).
 * Fetches and reads them; the checks decide whether any of it is believed.
 */
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attemptAsync } from '../check.ts';
import type { RevocationList, SignedCollateral } from '../collateral.ts';
import type { EvidenceContext } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { type ReadList, readRevocationList } from '../revocation-list.ts';
import type { Certificate } from '../x509/certificate.ts';
import { contextTag, DerCursor, malformed, onlyChild, parseDer, TAG } from '../x509/der.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';
import { readCertificates, signerDefects } from './chain.ts';
import type { SgxExtension } from './sgx-extension.ts';
import { type JsonObject, readSignedJson, unusable } from './signed-json.ts';
import { type QeIdentity, readQeIdentity, readTcbInfo, type TcbInfo } from './tcb-info.ts';

/** A signed JSON body with what it says and who signed it. */
export type SignedDocument<T> = Readonly<ReturnType<typeof readDocument<T>>>;

export interface Collateral {
  readonly tcbInfo: Attempt<SignedDocument<TcbInfo>>;
  readonly qeIdentity: Attempt<SignedDocument<QeIdentity>>;
  readonly pckCrl: Attempt<ReadList>;
  /** Undefined where the root that names its address is not trusted. */
  readonly rootCrl: Attempt<ReadList>;
}

/** Asks for all collateral of the platform in evidence that holds. Rejects only with what is not a PrivatemodeError. */
export async function fetchCollateral({
  sgx,
  pinnedRoot,
  entry: { minTcbEvaluationDataNumber: evaluationDataNumber },
  context: { collateral: source, now },
}: {
  readonly sgx: Attempt<SgxExtension>;
  readonly pinnedRoot: Attempt<Certificate>;
  readonly entry: TdxReferenceValues;
  readonly context: EvidenceContext;
}): Promise<Partial<Collateral>> {
  const [platform, pinned] = [sgx?.value, pinnedRoot?.value];
  if (platform === undefined || pinned === undefined) return {};
  const fmspc = Buffer.from(platform.fmspc).toString('hex');
  // Without a number, Intel answers with whatever is current.
  const ofNumber = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    attemptAsync(async () =>
      readDocument(await source.intelTcbInfo({ fmspc, ...ofNumber }), 'tcbInfo', readTcbInfo),
    ),
    attemptAsync(async () =>
      readDocument(await source.intelQeIdentity(ofNumber), 'enclaveIdentity', readQeIdentity),
    ),
    attemptAsync(async () => readCrl(await source.intelPckCrl())),
  ]);
  const identity = qeIdentity?.value;
  const trusted = identity !== undefined && (await signerDefects(identity, pinned, now)).length === 0;
  if (!trusted) return { tcbInfo, qeIdentity, pckCrl };
  const rootCrl = await attemptAsync(async () => {
    const url = asCollateral('the root certificate', () => distributionPoint(identity.root));
    return readCrl(await source.intelRootCrl({ url }));
  });
  return { tcbInfo, qeIdentity, pckCrl, rootCrl };
}

function readDocument<T>(
  { body, issuerChain }: SignedCollateral,
  name: string,
  read: (content: JsonObject) => T,
) {
  const signed = readSignedJson(body, name);
  const chain = asCollateral('its issuer chain', () => readCertificates(issuerChain, 2));
  const [signer, root] = chain as [Certificate, Certificate];
  return { ...signed, value: read(signed.content), signer, root };
}

function readCrl(list: RevocationList): ReadList {
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
  const point = new DerCursor(onlyChild(parseDer(value, TAG.sequence)));
  const fullName = onlyChild(point.take(CONTEXT_0));
  point.end();
  const names = new DerCursor(fullName, CONTEXT_0);
  const { content } = names.take(URI);
  names.end();
  return Buffer.from(content).toString('latin1');
}
