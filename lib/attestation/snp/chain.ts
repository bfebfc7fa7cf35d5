/** From the pinned ARK over the ASK to the VCEK (attestation.md 7). ASK and ARK in the document are ignored. */
import { type Attempt, demand, valueIn } from '../attempt.ts';
import { type CheckRow, finding } from '../check.ts';
import { period } from '../period.ts';
import type { TrustRoots } from '../trust-roots.ts';
import {
  type Certificate,
  isTimeValid,
  maySignCertificates,
  parseCertificate,
  unhandledCritical,
  verifySignedBy,
} from '../x509/certificate.ts';
import { malformed } from '../x509/der.ts';
import { EXTENSION_OID } from '../x509/extensions.ts';
import { nameText, sameName } from '../x509/name.ts';
import { decodeOneCertificate } from '../x509/pem.ts';
import { isPssSha384 } from '../x509/signed.ts';
import { isAmdName } from './vcek.ts';

export interface SnpRoots {
  readonly ark: Certificate;
  readonly ask: Certificate;
}

/** The two pinned certificates of a product line. Throws evidence_malformed. */
export function readRoots(roots: TrustRoots, line: 'Milan' | 'Genoa'): SnpRoots {
  const pair = roots.snp[line];
  if (pair === undefined) throw malformed(`no trust root for ${line} is configured`);
  return {
    ark: parseCertificate(decodeOneCertificate(pair.ark)),
    ask: parseCertificate(decodeOneCertificate(pair.ask)),
  };
}

export interface ChainSubject {
  readonly line: 'Milan' | 'Genoa';
  readonly now: Date;
  readonly roots: Attempt<SnpRoots>;
  readonly vcek: Attempt<Certificate>;
}

const HANDLED = [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage];

/** Why an ARK or ASK is not what AMD issues; undefined if it is. */
function defectOf(certificate: Certificate, commonName: string): string | undefined {
  const { version, signatureAlgorithm, publicKey, subject } = certificate;
  if (!isAmdName(subject, commonName)) return `a root is named ${nameText(subject)}`;
  if (version !== 3) return `${commonName} is no version 3 certificate`;
  if (!isPssSha384(signatureAlgorithm)) return `${commonName} is signed with ${signatureAlgorithm.name}`;
  if (publicKey.rsa?.modulusBits !== 4096 || publicKey.rsa.exponent !== 65537n) {
    return `${commonName} has no RSA key of 4096 bits with exponent 65537`;
  }
  if (!maySignCertificates(certificate)) return `${commonName} may not sign certificates`;
  const [critical] = unhandledCritical(certificate, HANDLED);
  return critical === undefined ? undefined : `${commonName} has the critical extension ${critical}`;
}

export const CHAIN_ROWS: readonly CheckRow<ChainSubject>[] = [
  {
    id: 'snp.roots',
    title: 'Trust roots of the product line',
    source: 'attestation.md 7 no. 4',
    expected: 'a pinned, self-signed ARK and an ASK that it signed: CAs, RSA 4096, RSASSA-PSS SHA-384',
    judge: ({ roots, line }) => {
      const pair = demand(roots);
      if (pair === undefined) return undefined;
      const { ark, ask } = pair;
      const defect = defectOf(ark, `ARK-${line}`) ?? defectOf(ask, `SEV-${line}`);
      if (defect !== undefined) return finding(false, defect);
      const chained = sameName(ark.issuer, ark.subject) && sameName(ask.issuer, ark.subject);
      const signed = verifySignedBy(ark, ark) && verifySignedBy(ask, ark);
      const holds = chained && signed;
      return finding(holds, holds ? `ARK-${line}, SEV-${line}` : 'they do not chain');
    },
  },
  {
    id: 'snp.chain.signature',
    title: 'Signature on the VCEK certificate',
    source: 'attestation.md 7 no. 4',
    expected: 'issued and signed by the pinned ASK',
    judge: ({ roots, vcek }) => {
      const ask = valueIn(roots)?.ask;
      const certificate = valueIn(vcek);
      if (ask === undefined || certificate === undefined) return undefined;
      if (!sameName(certificate.issuer, ask.subject)) return finding(false, 'another issuer');
      const signed = verifySignedBy(certificate, ask);
      return finding(signed, signed ? 'valid' : 'the signature does not verify');
    },
  },
  {
    id: 'snp.chain.validity',
    title: 'Validity of the certificates',
    source: 'attestation.md 7 no. 4',
    expected: 'ARK, ASK and VCEK are valid at this time',
    judge: ({ roots, vcek, now }) => {
      const pair = valueIn(roots);
      const certificate = valueIn(vcek);
      if (pair === undefined || certificate === undefined) return undefined;
      const invalid = [pair.ark, pair.ask, certificate].filter((each) => !isTimeValid(each, now));
      const { notBefore, notAfter } = invalid[0] ?? certificate;
      return finding(invalid.length === 0, period(notBefore, notAfter, now));
    },
  },
];
