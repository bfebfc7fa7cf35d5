/**
 * What Intel publishes about a platform: TCB info, QE identity and the two revocation lists (attestation.md 10). Fetched
 * from the source that was handed in, and read; whether any of it may be believed is for the checks.
 */
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attemptAsync, valueIn } from '../attempt.ts';
import type { RevocationList, SignedCollateral } from '../collateral.ts';
import type { EvidenceContext } from '../evidence.ts';
import { type ReadList, readRevocationList } from '../revocation-list.ts';
import type { Certificate } from '../x509/certificate.ts';
import { anchorDefects, linkDefects, profileDefects, validityDefects } from './chain.ts';
import { distributionPoint } from './distribution-point.ts';
import { type JsonObject, unusable } from './json-object.ts';
import { INTEL_NAMES, readCertificates } from './pck.ts';
import { type QeIdentity, readQeIdentity } from './qe-identity.ts';
import { readSignedJson, type SignedJson } from './signed-json.ts';
import { hex } from './subject.ts';
import { readTcbInfo, type TcbInfo } from './tcb-info.ts';

/** A signed JSON body with what it says and who signed it. */
export interface SignedDocument<T> extends SignedJson {
  readonly value: T;
  readonly signer: Certificate;
  readonly root: Certificate;
}

export interface Collateral {
  readonly tcbInfo: Attempt<SignedDocument<TcbInfo>>;
  readonly qeIdentity: Attempt<SignedDocument<QeIdentity>>;
  readonly pckCrl: Attempt<ReadList>;
  /** Undefined where the chain that says where to fetch it from is not trusted. */
  readonly rootCrl: Attempt<ReadList>;
}

/** Asks for everything that a platform of this FMSPC needs. Rejects only with what is not a PrivatemodeError. */
export async function fetchCollateral(input: {
  readonly fmspc: Uint8Array;
  /** 0 = whatever is current. */
  readonly evaluationDataNumber: number;
  readonly pinnedRoot: Certificate;
  readonly context: EvidenceContext;
}): Promise<Collateral> {
  const { evaluationDataNumber, pinnedRoot } = input;
  const { collateral: source, now } = input.context;
  const ofNumber = evaluationDataNumber > 0 ? { evaluationDataNumber } : {};
  const query = { fmspc: hex(input.fmspc), ...ofNumber };
  const [tcbInfo, qeIdentity, pckCrl] = await Promise.all([
    attemptAsync(async () => readDocument(await source.intelTcbInfo(query), 'tcbInfo', readTcbInfo)),
    attemptAsync(async () => {
      const answer = await source.intelQeIdentity(ofNumber);
      return readDocument(answer, 'enclaveIdentity', readQeIdentity);
    }),
    attemptAsync(async () => readCrl(await source.intelPckCrl())),
  ]);
  const vouched = valueIn(qeIdentity);
  if (vouched === undefined || signerDefects(vouched, pinnedRoot, now).length > 0) {
    return { tcbInfo, qeIdentity, pckCrl, rootCrl: undefined };
  }
  const rootCrl = await attemptAsync(async () => {
    const url = asCollateral('the root certificate', () => distributionPoint(vouched.root));
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

/** The readers call what they cannot read evidence; this was fetched, and is not. */
function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw unusable(`${what} cannot be read: ${error.message}`);
  }
}

/** What is wrong with the certificates that vouch for a document: names, profile, chain to the pinned root, dates. */
export function signerDefects(
  { signer, root }: Pick<SignedDocument<unknown>, 'signer' | 'root'>,
  pinned: Certificate,
  now: Date,
): string[] {
  return [
    ...profileDefects(signer, INTEL_NAMES.tcbSigning),
    ...profileDefects(root, INTEL_NAMES.root),
    ...anchorDefects(root, pinned),
    ...linkDefects(root, pinned, 0),
    ...linkDefects(signer, pinned, 0),
    ...validityDefects([signer, root], now),
  ];
}
