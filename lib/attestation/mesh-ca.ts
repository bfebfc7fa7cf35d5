/** The mesh CA: trusted because the hardware vouches for its bytes, not for who issued it (attestation.md 12). */
import { type Finding, finding } from './check.ts';
import { period } from './period.ts';
import {
  type Certificate,
  isTimeValid,
  maySignCertificates,
  parseCertificate,
  unhandledCritical,
  verifySignedBy,
} from './x509/certificate.ts';
import { EXTENSION_OID } from './x509/extensions.ts';
import { nameText, sameName } from './x509/name.ts';
import { decodeOneCertificate } from './x509/pem.ts';

/** The certificate of a text with exactly one CERTIFICATE block. Throws evidence_malformed. */
export function readMeshCa(pem: string): Certificate {
  return parseCertificate(decodeOneCertificate(pem));
}

const HANDLED = [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage];

/**
 * Whether it can serve as a trust anchor: a CA that may sign certificates, valid now. A signature by its own key is
 * checked where it claims one. Throws evidence_malformed.
 */
export function judgeMeshCa(pem: string, now: Date): Finding {
  const meshCa = readMeshCa(pem);
  const name = nameText(meshCa.subject);
  if (meshCa.version !== 3) return finding(false, `${name} is no version 3 certificate`);
  if (!maySignCertificates(meshCa)) return finding(false, `${name} may not sign certificates`);
  if (meshCa.publicKey.curve === undefined) return finding(false, `${name} has no key on P-256 or P-384`);
  const [critical] = unhandledCritical(meshCa, HANDLED);
  if (critical !== undefined) return finding(false, `${name} has the critical extension ${critical}`);
  if (!isTimeValid(meshCa, now)) {
    return finding(false, `${name} is valid from ${period(meshCa.notBefore, meshCa.notAfter, now)}`);
  }
  const forged = sameName(meshCa.issuer, meshCa.subject) && !verifySignedBy(meshCa, meshCa);
  return finding(!forged, forged ? `${name} is not signed by its own key` : name);
}
