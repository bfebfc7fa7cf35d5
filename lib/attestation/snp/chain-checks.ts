/** From the pinned ARK over the ASK to the VCEK, the product it names, and revocation (docs/protocol/attestation.md 7). */
import { demand, type Finding, finding, need, row } from '../check.ts';
import { obtained } from '../collateral.ts';
import { allValid, issuedBy, period, verified } from '../findings.ts';
import {
  type Certificate,
  maySignCertificates,
  unhandledCritical,
  verifySignedBy,
} from '../x509/certificate.ts';
import { isCurrent } from '../x509/crl.ts';
import { EXTENSION_OID } from '../x509/extensions.ts';
import { type Name, nameText, sameName } from '../x509/name.ts';
import { isPssSha384 } from '../x509/signed.ts';
import { PRODUCTS, productOf } from './product.ts';
import { familyModelStepping } from './report.ts';
import type { SnpRow, SnpSubject } from './subject.ts';

export const VCEK_ROWS: readonly SnpRow[] = [
  row(
    'snp.vcek.available',
    'Endorsement key certificate',
    'attestation.md 7',
    'a VCEK certificate in the document, or one that can be fetched for this chip and TCB',
    ({ vcek }) => finding(true, demand(vcek).origin),
  ),
  row(
    'snp.vcek.form',
    'Form of the VCEK certificate',
    'attestation.md 7 no. 1',
    'X.509 version 3, RSASSA-PSS with SHA-384 and a salt of 48 bytes, a P-384 key',
    ({ vcek }) => {
      const { version, signatureAlgorithm, publicKey } = need(vcek).certificate;
      return finding(
        version === 3 && isPssSha384(signatureAlgorithm) && publicKey.curve === 'P-384',
        `version ${version}, ${signatureAlgorithm.name}, ${publicKey.curve ?? publicKey.algorithm}`,
      );
    },
  ),
  row(
    'snp.vcek.names',
    'Names in the VCEK certificate',
    'attestation.md 7 no. 2',
    "AMD's names: CN=SEV-VCEK, issued by CN=SEV-Milan or SEV-Genoa as the manifest says",
    ({ vcek, entry: { product } }) => {
      const { subject, issuer } = need(vcek).certificate;
      return finding(
        isAmdName(subject, 'SEV-VCEK') && isAmdName(issuer, `SEV-${product}`),
        `${nameText(subject)} issued by ${nameText(issuer)}`,
      );
    },
  ),
  row(
    'snp.vcek.extensions',
    'Extensions of the VCEK certificate',
    'attestation.md 7 no. 3',
    "all of AMD's extensions, once each, and no others",
    ({ vcekExtensions }) => finding(true, `product ${demand(vcekExtensions).productName}`),
  ),
  row(
    'snp.product',
    'Processor product line',
    'attestation.md 7',
    'the ProductName of the reference value',
    (subject) => {
      const { report, entry } = subject;
      if (report.version < 3) return judgeProductByVcek(subject);
      const { family, model } = familyModelStepping(report.cpuid1EaxFms);
      const product = productOf(family, model);
      return finding(product === entry.product, product ?? 'unknown', entry.product);
    },
  ),
];

/** A version 2 report does not name its product: then the VCEK does, stepping included. */
function judgeProductByVcek({ vcekExtensions, product: stated, entry: { product } }: SnpSubject): Finding {
  const { productName } = need(vcekExtensions);
  const stepping = PRODUCTS[product].steppings.find((digit) => productName === `${product}-B${digit}`);
  const expected = stated?.machineStepping;
  return finding(
    stepping !== undefined && (expected === undefined || stepping === String(expected)),
    `${productName} by the VCEK${expected === undefined ? '' : `, stepping ${expected}`}`,
  );
}

/** Whether the name has the attributes of every name of AMD's chain, once each in any order, and this common name. */
function isAmdName({ attributes }: Name, commonName: string): boolean {
  const expected = [
    'C=US',
    'L=Santa Clara',
    'ST=CA',
    'O=Advanced Micro Devices',
    'OU=Engineering',
    `CN=${commonName}`,
  ];
  const found = attributes.map(({ type, value }) => `${type}=${value}`);
  return found.length === expected.length && expected.every((attribute) => found.includes(attribute));
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

export const CHAIN_ROWS: readonly SnpRow[] = [
  row(
    'snp.roots',
    'Trust roots of the product line',
    'attestation.md 7 no. 4',
    'a pinned, self-signed ARK and an ASK that it signed: CAs, RSA 4096, RSASSA-PSS SHA-384',
    async ({ roots, entry: { product } }) => {
      const { ark, ask } = demand(roots);
      const defect = defectOf(ark, `ARK-${product}`) ?? defectOf(ask, `SEV-${product}`);
      if (defect !== undefined) return finding(false, defect);
      const named = [ark, ask].every(({ issuer }) => sameName(issuer, ark.subject));
      const chained = named && (await verifySignedBy(ark, ark)) && (await verifySignedBy(ask, ark));
      return finding(chained, chained ? `ARK-${product}, SEV-${product}` : 'they do not chain');
    },
  ),
  row(
    'snp.chain.signature',
    'Signature on the VCEK certificate',
    'attestation.md 7 no. 4',
    'issued and signed by the pinned ASK',
    ({ roots, vcek }) => issuedBy(need(vcek).certificate, need(roots).ask),
  ),
  row(
    'snp.chain.validity',
    'Validity of the certificates',
    'attestation.md 7 no. 4',
    'ARK, ASK and VCEK are valid at this time',
    ({ roots, vcek, context: { now } }) => {
      const { ark, ask } = need(roots);
      const { certificate } = need(vcek);
      return allValid([ark, ask, certificate], certificate, now);
    },
  ),
];

export const REVOCATION_ROWS: readonly SnpRow[] = [
  row(
    'snp.crl.available',
    'Revocation list',
    'attestation.md 7 CRL no. 1',
    'a CRL of the ARK in the document, or one that can be fetched',
    ({ arkCrl, context: { now } }) => {
      const list = demand(arkCrl);
      return obtained(list, list.origin, now);
    },
  ),
  row(
    'snp.crl.signature',
    'Signature on the revocation list',
    'attestation.md 7 CRL no. 2',
    'issued and signed by the pinned ARK',
    ({ arkCrl, roots }) => {
      const { crl } = need(arkCrl);
      const { ark } = need(roots);
      const maySign = ark.keyUsage === undefined || ark.keyUsage.has('cRLSign');
      return maySign || !sameName(crl.issuer, ark.subject) ? issuedBy(crl, ark) : verified(false);
    },
  ),
  row(
    'snp.crl.current',
    'Freshness of the revocation list',
    'attestation.md 7 CRL no. 4',
    'thisUpdate has passed, nextUpdate has not',
    ({ arkCrl, context: { now } }) => {
      const { crl } = need(arkCrl);
      return finding(isCurrent(crl, now), period(crl.thisUpdate, crl.nextUpdate, now));
    },
  ),
  row(
    'snp.crl.ask',
    'The ASK is not revoked',
    'attestation.md 7 CRL no. 3',
    'the serial number of the pinned ASK is not on the list',
    ({ arkCrl, roots }) => {
      const { serial } = need(roots).ask;
      const revoked = need(arkCrl).crl.revoked.has(serial);
      return finding(!revoked, `${serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  ),
];
