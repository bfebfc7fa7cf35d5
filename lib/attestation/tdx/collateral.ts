/**
 * What Intel publishes about a platform: TCB info, QE identity and the two revocation lists (docs/protocol/attestation.md 10). Asks the
 * given source for them and reads the answers; the checks decide whether any of it is believed.
 */
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attemptAsync, valueIn } from '../check.ts';
import type { CollateralSource, RevocationList, SignedCollateral } from '../collateral.ts';
import { type ReadList, readRevocationList } from '../collateral.ts';
import type { Certificate } from '../x509/certificate.ts';
import { contextTag, DerCursor, malformed, onlyChild, parseDer, TAG } from '../x509/der.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';
import {
  anchorDefects,
  INTEL_NAMES,
  linkDefects,
  profileDefects,
  readCertificates,
  validityDefects,
} from './chain.ts';
import { type JsonObject, readSignedJson, type SignedJson, unusable } from './signed-json.ts';
import { type QeIdentity, readQeIdentity, readTcbInfo, type TcbInfo } from './tcb-info.ts';

/** A signed JSON body with what it says and who signed it. */
interface SignedDocument<T> extends SignedJson {
  readonly value: T;
  readonly signer: Certificate;
  readonly root: Certificate;
}

export interface CollateralParts {
  readonly tcbInfo: SignedDocument<TcbInfo>;
  readonly qeIdentity: SignedDocument<QeIdentity>;
  readonly pckCrl: ReadList;
  readonly rootCrl: ReadList;
}

/** `rootCrl` is undefined where the root that names its address is not trusted. */
export type Collateral = { readonly [Part in keyof CollateralParts]: Attempt<CollateralParts[Part]> };

/** Asks for all collateral of a platform model. Rejects only with what is not a PrivatemodeError. */
export async function fetchCollateral(query: {
  /** Lower-case hex. */
  readonly fmspc: string;
  /** 0: whatever is current. */
  readonly evaluationDataNumber: number;
  readonly pinnedRoot: Certificate;
  readonly source: CollateralSource;
  readonly now: Date;
}): Promise<Collateral> {
  const { fmspc, evaluationDataNumber, pinnedRoot, source, now } = query;
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
  const identity = valueIn(qeIdentity);
  if (identity === undefined || (await signerDefects(identity, pinnedRoot, now)).length > 0) {
    return { tcbInfo, qeIdentity, pckCrl, rootCrl: undefined };
  }
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
): SignedDocument<T> {
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

/** What is wrong with the certificates that vouch for a document: names, profile, chain to the pinned root, dates. */
export async function signerDefects(
  { signer, root }: Pick<SignedDocument<unknown>, 'signer' | 'root'>,
  pinned: Certificate,
  now: Date,
): Promise<string[]> {
  return [
    ...profileDefects(signer, INTEL_NAMES.tcbSigning),
    ...profileDefects(root, INTEL_NAMES.root),
    ...anchorDefects(root, pinned),
    ...(await linkDefects(root, pinned, 0)),
    ...(await linkDefects(signer, pinned, 0)),
    ...validityDefects([signer, root], now),
  ];
}
