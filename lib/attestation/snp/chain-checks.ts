/**
 * Checks the chain of AMD's certificates: from the pinned ARK over the ASK to the VCEK, the product that the
 * VCEK names, and revocation (docs/protocol/attestation.md 7).
 */

import { allValid, inForce, issuedBy, verified } from '../certificate-findings.ts';
import { demand, type Finding, finding, need, rowsFrom } from '../check.ts';
import { issued, obtained } from '../collateral.ts';
import { isCurrent } from '../crl.ts';
import {
  type Certificate,
  EXTENSION_OID,
  maySignCertificates,
  type Name,
  nameText,
  sameName,
  unhandledCritical,
  verifySignedBy,
} from '../x509.ts';
import { PRODUCTS, productOf } from './product.ts';
import { familyModelStepping } from './report.ts';
import type { SnpSubject } from './vcek.ts';

export const VCEK_ROWS = rowsFrom<SnpSubject>('attestation.md 7', {
  'snp.vcek.available': {
    title: 'Endorsement key certificate',
    expected: 'a VCEK certificate in the document, or one that can be fetched for this chip and TCB',
    judge: ({ vcek }) => finding(true, demand(vcek).origin),
  },
  'snp.vcek.form': {
    title: 'Form of the VCEK certificate',
    source: 'attestation.md 7 no. 1',
    expected: 'X.509 version 3, RSASSA-PSS with SHA-384 and a salt of 48 bytes, a P-384 key',
    judge: ({ vcek }) => {
      const { version, signatureAlgorithm, publicKey } = need(vcek).certificate;
      const holds = version === 3 && signatureAlgorithm.name === 'rsassa-pss' && publicKey.curve === 'P-384';
      const key = publicKey.curve ?? publicKey.algorithm;
      return finding(holds, `version ${version}, ${signatureAlgorithm.name}, ${key}`);
    },
  },
  'snp.vcek.names': {
    title: 'Names in the VCEK certificate',
    source: 'attestation.md 7 no. 2',
    expected: "AMD's names: CN=SEV-VCEK, issued by CN=SEV-Milan or SEV-Genoa as the manifest says",
    judge: ({ vcek, entry: { product } }) => {
      const { subject, issuer } = need(vcek).certificate;
      const holds = isAmdName(subject, 'SEV-VCEK') && isAmdName(issuer, `SEV-${product}`);
      return finding(holds, `${nameText(subject)} issued by ${nameText(issuer)}`);
    },
  },
  'snp.vcek.extensions': {
    title: 'Extensions of the VCEK certificate',
    source: 'attestation.md 7 no. 3',
    expected: "all of AMD's extensions, once each, and no others",
    judge: ({ vcekExtensions }) => finding(true, `product ${demand(vcekExtensions).productName}`),
  },
  'snp.product': {
    title: 'Processor product line',
    expected: 'the ProductName of the reference value',
    judge: (subject) => {
      const { report, entry } = subject;
      if (report.version < 3) return judgeProductByVcek(subject);
      const { family, model } = familyModelStepping(report.cpuid1EaxFms);
      const product = productOf(family, model);
      return finding(product === entry.product, product ?? 'unknown', entry.product);
    },
  },
});

/** A version 2 report does not name its product, so the VCEK decides it; a stated stepping must match too. */
function judgeProductByVcek({ vcekExtensions, product: stated, entry: { product } }: SnpSubject): Finding {
  const { productName } = need(vcekExtensions);
  const stepping = PRODUCTS[product].steppings.find((digit) => productName === `${product}-B${digit}`);
  const expected = stated?.machineStepping;
  return finding(
    stepping !== undefined && (expected === undefined || stepping === String(expected)),
    `${productName} by the VCEK${expected === undefined ? '' : `, stepping ${expected}`}`,
    PRODUCTS[product].steppings.map((digit) => `${product}-B${digit}`).join(' or '),
  );
}

const AMD_NAME = ['C=US', 'L=Santa Clara', 'ST=CA', 'O=Advanced Micro Devices', 'OU=Engineering'];

/**
 * Whether the name has the attributes of every name of AMD's chain, once each in any order, and this common
 * name.
 */
function isAmdName({ attributes }: Name, commonName: string): boolean {
  const expected = [...AMD_NAME, `CN=${commonName}`];
  const found = attributes.map(({ type, value }) => `${type}=${value}`);
  return found.length === expected.length && expected.every((attribute) => found.includes(attribute));
}

/** The first defect of an ARK or ASK, compared with those that AMD issues; undefined if there is none. */
function defectOf(certificate: Certificate, commonName: string): string | undefined {
  const { version, signatureAlgorithm, publicKey, subject } = certificate;
  if (!isAmdName(subject, commonName)) return `a root is named ${nameText(subject)}`;
  if (version !== 3) return `${commonName} is no version 3 certificate`;
  if (signatureAlgorithm.name !== 'rsassa-pss')
    return `${commonName} is signed with ${signatureAlgorithm.name}`;
  if (publicKey.rsa?.modulusBits !== 4096 || publicKey.rsa.exponent !== 65537n) {
    return `${commonName} has no RSA key of 4096 bits with exponent 65537`;
  }
  if (!maySignCertificates(certificate)) return `${commonName} may not sign certificates`;
  const [critical] = unhandledCritical(certificate, [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage]);
  return critical === undefined ? undefined : `${commonName} has the critical extension ${critical}`;
}

export const CHAIN_ROWS = rowsFrom<SnpSubject>('attestation.md 7 no. 4', {
  'snp.roots': {
    title: 'Trust roots of the product line',
    expected: 'a pinned, self-signed ARK and an ASK that it signed: CAs, RSA 4096, RSASSA-PSS SHA-384',
    judge: async ({ roots, entry: { product } }) => {
      const { ark, ask } = demand(roots);
      const defect = defectOf(ark, `ARK-${product}`) ?? defectOf(ask, `SEV-${product}`);
      if (defect !== undefined) return finding(false, defect);
      const named = [ark, ask].every(({ issuer }) => sameName(issuer, ark.subject));
      const chained = named && (await verifySignedBy(ark, ark)) && (await verifySignedBy(ask, ark));
      return finding(chained, chained ? `ARK-${product}, SEV-${product}` : 'they do not chain');
    },
  },
  'snp.chain.signature': {
    title: 'Signature on the VCEK certificate',
    expected: 'issued and signed by the pinned ASK',
    judge: ({ roots, vcek }) => issuedBy(need(vcek).certificate, need(roots).ask),
  },
  'snp.chain.validity': {
    title: 'Validity of the certificates',
    expected: 'ARK, ASK and VCEK are valid at this time',
    judge: ({ roots, vcek, context: { now } }) => {
      const { ark, ask } = need(roots);
      const { certificate } = need(vcek);
      return allValid([ark, ask, certificate], certificate, now);
    },
  },
});

export const REVOCATION_ROWS = rowsFrom<SnpSubject>('attestation.md 7', {
  'snp.crl.available': {
    title: 'Revocation list',
    about: 'collateral date',
    source: 'attestation.md 7 CRL no. 1',
    expected: 'a CRL of the ARK in the document, or one that can be fetched',
    judge: ({ arkCrl, context: { now } }) => {
      const list = demand(arkCrl);
      return obtained(list, list.origin, now);
    },
  },
  'snp.crl.signature': {
    title: 'Signature on the revocation list',
    about: 'collateral signature',
    source: 'attestation.md 7 CRL no. 2',
    expected: 'issued and signed by the pinned ARK',
    judge: ({ arkCrl, roots }) => {
      const { crl } = need(arkCrl);
      const { ark } = need(roots);
      const maySign = ark.keyUsage === undefined || ark.keyUsage.has('cRLSign');
      return maySign || !sameName(crl.issuer, ark.subject) ? issuedBy(crl, ark) : verified(false);
    },
  },
  'snp.crl.current': {
    title: 'Freshness of the revocation list',
    about: 'collateral date',
    source: 'attestation.md 7 CRL no. 4',
    expected: 'thisUpdate has passed, nextUpdate has not',
    judge: ({ arkCrl, context: { now } }) => {
      const { crl } = need(arkCrl);
      return inForce(isCurrent(crl, now), crl.thisUpdate, crl.nextUpdate, now);
    },
  },
  'snp.crl.age': {
    title: 'Age of the revocation list',
    source: 'attestation.md 7 CRL no. 5',
    expected: 'shown, with who chose the list; later revocations are unknown',
    judge: ({ arkCrl, context: { now } }) => {
      const { crl, embedded } = need(arkCrl);
      const whose = embedded ? 'chosen by whoever sent the evidence' : 'not from the evidence';
      return finding(true, `${issued(crl, now)}; ${whose}`);
    },
  },
  'snp.crl.ask': {
    title: 'The ASK is not revoked',
    source: 'attestation.md 7 CRL no. 3',
    expected: 'the serial number of the pinned ASK is not on the list',
    judge: ({ arkCrl, roots }) => {
      const { serial } = need(roots).ask;
      const revoked = need(arkCrl).crl.revoked.has(serial);
      return finding(!revoked, `${serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  },
});
