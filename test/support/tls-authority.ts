/** Certificate authorities and server certificates for tests, made when they are needed. */
import { generateKeyPairSync } from 'node:crypto';
import { issueCertificate, type Name, toPem } from '../../simulator/pki/certificate.ts';
import { basicConstraints, keyUsage, subjectAltName } from '../../simulator/pki/extensions.ts';

const DAY = 24 * 3600 * 1000;
const newKey = () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
}

export interface TestAuthority {
  /** PEM of the authority's own certificate. */
  readonly pem: string;
  /** A certificate for these host names and IP addresses; `notAfter` defaults to tomorrow. */
  issue(names: readonly string[], options?: { notAfter?: Date }): ServerCertificate;
}

export function createTestAuthority(commonName: string): TestAuthority {
  const name: Name = [['CN', commonName]];
  const issuer = { name, key: newKey() };
  const validity = { notBefore: new Date(Date.now() - 2 * DAY), notAfter: new Date(Date.now() + DAY) };
  const certificate = issueCertificate({
    issuer,
    subject: name,
    key: issuer.key,
    ...validity,
    extensions: [basicConstraints(true), keyUsage('keyCertSign')],
  });
  return {
    pem: toPem(certificate),
    issue(names, options = {}) {
      const key = newKey();
      const issued = issueCertificate({
        issuer,
        subject: [['CN', names[0] ?? 'localhost']],
        key,
        ...validity,
        ...options,
        extensions: [subjectAltName(names)],
      });
      return { cert: toPem(issued), key: key.export({ type: 'pkcs8', format: 'pem' }).toString() };
    },
  };
}
