/**
 * Path validation for the short chains that Intel issues (attestation.md 10, RFC 5280 6.1). Each function names what is
 * wrong; an empty list means nothing is.
 */
import { period } from '../period.ts';
import {
  type Certificate,
  isTimeValid,
  maySignCertificates,
  unhandledCritical,
  verifySignedBy,
} from '../x509/certificate.ts';
import { EXTENSION_OID } from '../x509/extensions.ts';
import { commonName, nameText, sameName } from '../x509/name.ts';
import { SGX_EXTENSION_OID } from './sgx-extension.ts';

const HANDLED_CRITICAL = [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage, SGX_EXTENSION_OID];

/** X.509 v3, ECDSA with SHA-256 over P-256, the expected common name, no critical extension that is not understood. */
export function profileDefects(certificate: Certificate, expectedName: string): string[] {
  const { version, signatureAlgorithm, publicKey, subject } = certificate;
  const defects: string[] = [];
  if (version !== 3) defects.push(`${expectedName}: X.509 version ${version}`);
  if (signatureAlgorithm.name !== 'ecdsa-with-SHA256') {
    defects.push(`${expectedName}: signed with ${signatureAlgorithm.name}`);
  }
  if (publicKey.curve !== 'P-256') defects.push(`${expectedName}: the key is not on P-256`);
  if (commonName(subject) !== expectedName) {
    defects.push(`the subject is "${nameText(subject)}" instead of CN=${expectedName}`);
  }
  for (const oid of unhandledCritical(certificate, HANDLED_CRITICAL)) {
    defects.push(`${expectedName}: critical extension ${oid} is not understood`);
  }
  return defects;
}

/** Names, signature, CA flag and path length between a certificate and its issuer, `below` CAs under the issuer. */
export function linkDefects(child: Certificate, issuer: Certificate, below: number): string[] {
  const name = commonName(child.subject) ?? nameText(child.subject);
  const defects: string[] = [];
  if (!sameName(child.issuer, issuer.subject))
    defects.push(`${name}: the issuer is "${nameText(child.issuer)}"`);
  if (!verifySignedBy(child, issuer)) defects.push(`${name}: the issuer's key did not sign it`);
  const pathLength = issuer.basicConstraints?.pathLength;
  if (!maySignCertificates(issuer) || (pathLength !== undefined && pathLength < below)) {
    defects.push(`${name}: its issuer may not sign it`);
  }
  return defects;
}

/** Whether a root that came with the evidence is the pinned one: its name and its key (Intel reissued it with both kept). */
export function anchorDefects(root: Certificate, pinned: Certificate): string[] {
  const same = sameName(root.subject, pinned.subject) && Buffer.compare(root.spki, pinned.spki) === 0;
  return same ? [] : ['the root is not the trusted one'];
}

/** Certificates that are not valid yet, or no longer. */
export function validityDefects(certificates: readonly Certificate[], now: Date): string[] {
  return certificates
    .filter((certificate) => !isTimeValid(certificate, now))
    .map(({ subject, notBefore, notAfter }) => {
      const range = period(notBefore, notAfter, now);
      return `${commonName(subject) ?? nameText(subject)} is valid from ${range}`;
    });
}
