/** Certificate authorities for tests: those of the simulator, under any name, with keys of their own. */
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { issueServerCertificate, issueTlsCa, type ServerCertificate } from '../../../simulator/pki/tls.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';

export type { ServerCertificate };

export function createTestAuthority(commonName: string) {
  const keys = { tlsCa: generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey };
  return {
    /** PEM of the authority's own certificate. */
    pem: toPem(issueTlsCa(keys, commonName)),
    /** A certificate for these host names and IP addresses; `notAfter` defaults to a year from now. */
    issue: (names: readonly string[], options: { notAfter?: Date } = {}): ServerCertificate =>
      issueServerCertificate(keys, names, { commonName, ...options }),
  };
}

export type TestAuthority = ReturnType<typeof createTestAuthority>;

/** The path of a file with these certificates, and text between them. */
export function caFile(...pems: readonly string[]): string {
  const path = join(temporaryDirectory(), 'ca.pem');
  writeFileSync(path, `# a comment\n${pems.join('text between\n')}`);
  return path;
}
