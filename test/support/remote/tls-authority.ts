/** Certificate authorities for tests: those of the simulator, under any name, with keys of their own. */
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { issueServerCertificate, issueTlsCa, type ServerCertificate } from '../../../simulator/pki/tls.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';

export type { ServerCertificate };

export interface TestAuthority {
  /** PEM of the authority's own certificate. */
  readonly pem: string;
  /** A certificate for these host names and IP addresses; `notAfter` defaults to a year from now. */
  issue(names: readonly string[], options?: { notAfter?: Date }): ServerCertificate;
}

export function createTestAuthority(commonName: string): TestAuthority {
  const keys = { tlsCa: generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey };
  return {
    pem: toPem(issueTlsCa(keys, commonName)),
    issue: (names, options = {}) => issueServerCertificate(keys, names, { commonName, ...options }),
  };
}

/** The path of a file with these certificates, and text between them. */
export function caFile(...pems: readonly string[]): string {
  const path = join(temporaryDirectory(), 'ca.pem');
  writeFileSync(path, `# a comment\n${pems.join('text between\n')}`);
  return path;
}
