/**
 * The coordinator's own authorities: root CA, mesh CA, and the certificates they issue to workloads
 * (docs/protocol/attestation.md 12, "Profile issued by the coordinator").
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { type Issuer, issueCertificate, type Name, toPem } from './certificate.ts';
import { octetString } from './der.ts';
import {
  authorityKeyId,
  basicConstraints,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyId,
  vendorExtension,
} from './extensions.ts';

const HOUR = 3_600_000;
const YEAR = 365 * 24 * HOUR;
const WORKLOAD_SECRET_ID = '1.3.9901.3.1';

export type Mesh = ReturnType<typeof createMesh>;

/** The identity of a workload, as its manifest entry states it (docs/protocol/attestation.md 4.2). */
export interface WorkloadIdentity {
  readonly sans: readonly string[];
  readonly workloadSecretId: string;
}

/** A workload's key and its certificate, DER. */
export type WorkloadCertificate = { readonly key: KeyObject; readonly certificate: Uint8Array };

function issueAuthority(commonName: string, now: number): { issuer: Issuer; pem: string } {
  const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const name: Name = [['CN', commonName]];
  const certificate = issueCertificate({
    issuer: { name, key },
    subject: name,
    key,
    notBefore: new Date(now - HOUR),
    notAfter: new Date(now + 10 * YEAR),
    extensions: [keyUsage('digitalSignature', 'keyCertSign'), basicConstraints(true), subjectKeyId(key)],
  });
  return { issuer: { name, key }, pem: toPem(certificate) };
}

/** Makes new authorities, as a starting coordinator does. `now` in ms since 1970. */
export function createMesh(now: number) {
  const root = issueAuthority('system:coordinator:root', now);
  const mesh = issueAuthority('system:coordinator:intermediate', now);
  // PEM as in the attestation document, final newline included: the report data covers these bytes.
  return { rootCaPem: root.pem, meshCaPem: mesh.pem, issuer: mesh.issuer };
}

/** A workload certificate: P-256, CN from the first SAN, valid from an hour ago unless `expired`. */
export function issueWorkload(
  { issuer }: Mesh,
  { sans, workloadSecretId }: WorkloadIdentity,
  now: number,
  expired = false,
): WorkloadCertificate {
  const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueCertificate({
    issuer,
    subject: [['CN', sans[0] ?? '']],
    key,
    notBefore: new Date(now - HOUR),
    notAfter: new Date(expired ? now - HOUR / 2 : now + YEAR),
    extensions: [
      ...[keyUsage('digitalSignature'), basicConstraints(false)],
      ...[extendedKeyUsage('clientAuth', 'serverAuth'), authorityKeyId(issuer.key), subjectAltName(sans)],
      vendorExtension(WORKLOAD_SECRET_ID, octetString(Buffer.from(workloadSecretId, 'utf8'))),
    ],
  });
  return { key, certificate };
}
