/**
 * Intel's certificate chains, and whether their paths are valid (docs/protocol/attestation.md 10, RFC 5280
 * 6.1). Each `…Defects` function names what is wrong; an empty list means that nothing is.
 */
import { malformed } from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import { type Finding, finding } from '../check.ts';
import type { TrustRoots } from '../roots/production.ts';
import { inForce } from '../validity.ts';
import {
  type Certificate,
  commonName,
  decodeCertificates,
  decodeOneCertificate,
  EXTENSION_OID,
  maySignCertificates,
  nameText,
  parseCertificate,
  sameName,
  unhandledCritical,
  verifySignedBy,
} from '../x509.ts';
import { SGX_EXTENSION_OID } from './sgx-extension.ts';

/** Common names. A chain through the processor CA is refused (docs/protocol/attestation.md 10). */
export const INTEL_NAMES = {
  root: 'Intel SGX Root CA',
  platformCa: 'Intel SGX PCK Platform CA',
  pck: 'Intel SGX PCK Certificate',
  tcbSigning: 'Intel SGX TCB Signing',
} as const;

const HANDLED_CRITICAL = [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage, SGX_EXTENSION_OID];
/** Real chains have under 4 KB. */
const MAX_CHAIN_BYTES = 32 * 1024;
const AFTER_LAST_BLOCK = /-----END CERTIFICATE-----(?:\r?\n)?\0?$/;

/** Reads PEM text of `count` certificates and nothing else. Throws evidence_malformed. */
export function readCertificates(text: string, count: number): Certificate[] {
  if (text.length > MAX_CHAIN_BYTES) throw malformed('a certificate chain is too large');
  const found = decodeCertificates(text);
  if (found.length !== count) throw malformed(`a chain of ${found.length} certificates instead of ${count}`);
  return found.map(parseCertificate);
}

/** Reads exactly three certificates, then at most one NUL byte. Throws evidence_malformed. */
export function readPckChain(pem: Uint8Array) {
  const text = Buffer.from(pem).toString('latin1');
  if (!AFTER_LAST_BLOCK.test(text)) throw malformed('something follows the PCK certificate chain');
  const certificates = readCertificates(text.replace(/\0$/, ''), 3);
  const [leaf, intermediate, root] = certificates as [Certificate, Certificate, Certificate];
  return { leaf, intermediate, root };
}

/** The one trust anchor. Throws attestation_failed if none is pinned. */
export function readPinnedRoot({ tdx }: TrustRoots): Certificate {
  if (tdx === undefined) {
    const options = { detail: { missingRoot: 'tdx' } };
    throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted', options);
  }
  return parseCertificate(decodeOneCertificate(tdx.root));
}

/** Keeps the defects: a candidate is false if its defect is absent. */
const found = (...candidates: readonly (string | false)[]): string[] =>
  candidates.filter((candidate) => candidate !== false);

/** X.509 v3, ECDSA with SHA-256 over P-256, the expected common name, no unknown critical extension. */
export function profileDefects(certificate: Certificate, expectedName: string): string[] {
  const { version, signatureAlgorithm, publicKey, subject } = certificate;
  return found(
    version !== 3 && `${expectedName}: X.509 version ${version}`,
    signatureAlgorithm.name !== 'ecdsa-with-SHA256' &&
      `${expectedName}: signed with ${signatureAlgorithm.name}`,
    publicKey.curve !== 'P-256' && `${expectedName}: the key is not on P-256`,
    commonName(subject) !== expectedName &&
      `the subject is "${nameText(subject)}" instead of CN=${expectedName}`,
    ...unhandledCritical(certificate, HANDLED_CRITICAL).map(
      (oid) => `${expectedName}: critical extension ${oid} is not understood`,
    ),
  );
}

const shortName = ({ subject }: Certificate): string => commonName(subject) ?? nameText(subject);

/** Whether `issuer` is a CA that may have `below` CAs under it. */
const mayIssue = (issuer: Certificate, below: number): boolean =>
  maySignCertificates(issuer) && (issuer.basicConstraints?.pathLength ?? below) >= below;

/** Whether `issuer` issued `child`, and may do so with the `below` CAs under it. */
export async function linkDefects(child: Certificate, issuer: Certificate, below: number): Promise<string[]> {
  const name = shortName(child);
  return found(
    !sameName(child.issuer, issuer.subject) && `${name}: the issuer is "${nameText(child.issuer)}"`,
    !(await verifySignedBy(child, issuer)) && `${name}: the issuer's key did not sign it`,
    !mayIssue(issuer, below) && `${name}: its issuer may not sign it`,
  );
}

/** Compares a received root with the pinned one by name and key: Intel reissued its root and kept both. */
export function anchorDefects(root: Certificate, pinned: Certificate, below: number): string[] {
  const same = sameName(root.subject, pinned.subject) && Buffer.compare(root.spki, pinned.spki) === 0;
  return found(
    !same && 'the root is not the trusted one',
    !mayIssue(root, below) && 'the root that came along may not sign certificates',
  );
}

/** Passes if the signer of collateral is Intel's, under the pinned root, and both certificates are valid. */
export async function judgeSigner(
  { signer, root }: { readonly signer: Certificate; readonly root: Certificate },
  pinned: Certificate,
  now: Date,
): Promise<Finding> {
  const defects = [
    ...profileDefects(signer, INTEL_NAMES.tcbSigning),
    ...profileDefects(root, INTEL_NAMES.root),
    ...anchorDefects(root, pinned, 0),
    ...(await linkDefects(root, pinned, 0)),
    ...(await linkDefects(signer, pinned, 0)),
  ];
  const validity = inForce(now, signer, root);
  return defects.length === 0 && validity.outcome === 'fail'
    ? validity
    : noDefects(defects, nameText(signer.subject));
}

/** Passes when there are no defects, else names them all. */
export function noDefects(defects: readonly string[], held: string): Finding {
  return finding(defects.length === 0, defects.length === 0 ? held : defects.join('; '));
}
