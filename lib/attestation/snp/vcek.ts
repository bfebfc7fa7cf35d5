/** The VCEK, the key of one chip at one TCB, and AMD's extensions in its certificate (attestation.md 7). */

import { type Attempt, demand, valueIn } from '../attempt.ts';
import { type CheckRow, finding } from '../check.ts';
import { type Certificate, parseCertificate } from '../x509/certificate.ts';
import { type Der, malformed, parseDer, TAG } from '../x509/der.ts';
import { readOctetString, readSmallInteger, readText } from '../x509/der-values.ts';
import { type Name, nameText } from '../x509/name.ts';
import { decodeOneCertificate } from '../x509/pem.ts';
import { isPssSha384 } from '../x509/signed.ts';
import type { TcbParts } from './tcb.ts';

export interface VcekExtensions {
  /** E.g. `Milan-B0`, `Genoa`. */
  readonly productName: string;
  readonly tcb: TcbParts;
  /** 64 bytes: the chip. */
  readonly hwid: Uint8Array;
}

const AMD = '1.3.6.1.4.1.3704.1';
const OID = {
  structVersion: `${AMD}.1`,
  productName: `${AMD}.2`,
  hwid: `${AMD}.4`,
} as const;
const TCB_OID: Readonly<Record<keyof TcbParts, string>> = {
  bootloader: `${AMD}.3.1`,
  tee: `${AMD}.3.2`,
  snp: `${AMD}.3.3`,
  spl4: `${AMD}.3.4`,
  spl5: `${AMD}.3.5`,
  spl6: `${AMD}.3.6`,
  spl7: `${AMD}.3.7`,
  microcode: `${AMD}.3.8`,
};
const AUTHORITY_KEY_IDENTIFIER = '2.5.29.35';
const MANDATORY: readonly string[] = [...Object.values(OID), ...Object.values(TCB_OID)];
const HWID_BYTES = 64;
const PEM_START = '-----BEGIN';

/** DER, or PEM with one certificate, which upstream tolerates. Throws evidence_malformed. */
export function readVcek(bytes: Uint8Array): Certificate {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isPem = buffer.subarray(0, PEM_START.length).toString('latin1') === PEM_START;
  return parseCertificate(isPem ? decodeOneCertificate(buffer.toString('latin1')) : bytes);
}

/** AMD's extensions: all of them, no others. Throws evidence_malformed. */
export function readVcekExtensions({ extensions }: Certificate): VcekExtensions {
  for (const { oid } of extensions) {
    if (!MANDATORY.includes(oid) && oid !== AUTHORITY_KEY_IDENTIFIER) {
      throw malformed(`the VCEK has the extension ${oid}, which does not belong there`);
    }
  }
  const value = (oid: string): Uint8Array => {
    const found = extensions.find((extension) => extension.oid === oid);
    if (found === undefined) throw malformed(`the VCEK lacks the extension ${oid}`);
    return found.value;
  };
  const element = (oid: string): Der => parseDer(value(oid));
  if (readSmallInteger(element(OID.structVersion), 255) !== 0) throw malformed('a VCEK of another structure');
  const productName = element(OID.productName);
  if (productName.tag !== TAG.ia5String) throw malformed('the product name of the VCEK is no IA5String');
  const tcb = Object.fromEntries(
    Object.entries(TCB_OID).map(([part, oid]) => [part, readSmallInteger(element(oid), 255)]),
  );
  return {
    productName: readText(productName),
    tcb: tcb as unknown as TcbParts,
    hwid: readHwid(value(OID.hwid)),
  };
}

/** 64 raw bytes, or an OCTET STRING of them. */
function readHwid(value: Uint8Array): Uint8Array {
  const hwid = value.length === HWID_BYTES ? value : readOctetString(parseDer(value));
  if (hwid.length !== HWID_BYTES) throw malformed(`the VCEK names a chip of ${hwid.length} bytes`);
  return hwid;
}

/** The attributes of every name of AMD's chain, in any order, with this common name. */
export function isAmdName(name: Name, commonName: string): boolean {
  const expected: Readonly<Record<string, string>> = {
    C: 'US',
    L: 'Santa Clara',
    ST: 'CA',
    O: 'Advanced Micro Devices',
    OU: 'Engineering',
    CN: commonName,
  };
  const types = new Set(name.attributes.map(({ type }) => type));
  return (
    name.attributes.length === Object.keys(expected).length &&
    types.size === name.attributes.length &&
    name.attributes.every(({ type, value }) => expected[type] === value)
  );
}

export interface VcekSubject {
  readonly line: 'Milan' | 'Genoa';
  readonly vcekOrigin: string;
  readonly vcek: Attempt<Certificate>;
  readonly vcekExtensions: Attempt<VcekExtensions>;
}

export const VCEK_ROWS: readonly CheckRow<VcekSubject>[] = [
  {
    id: 'snp.vcek.available',
    title: 'Endorsement key certificate',
    source: 'attestation.md 7',
    expected: 'a VCEK certificate in the document, or one that can be fetched for this chip and TCB',
    judge: ({ vcek, vcekOrigin }) => (demand(vcek) === undefined ? undefined : finding(true, vcekOrigin)),
  },
  {
    id: 'snp.vcek.form',
    title: 'Form of the VCEK certificate',
    source: 'attestation.md 7 no. 1',
    expected: 'X.509 version 3, RSASSA-PSS with SHA-384 and a salt of 48 bytes, a P-384 key',
    judge: ({ vcek }) => {
      const certificate = valueIn(vcek);
      if (certificate === undefined) return undefined;
      const { version, signatureAlgorithm, publicKey } = certificate;
      return finding(
        version === 3 && isPssSha384(signatureAlgorithm) && publicKey.curve === 'P-384',
        `version ${version}, ${signatureAlgorithm.name}, ${publicKey.curve ?? publicKey.algorithm}`,
      );
    },
  },
  {
    id: 'snp.vcek.names',
    title: 'Names in the VCEK certificate',
    source: 'attestation.md 7 no. 2',
    expected: "AMD's names: CN=SEV-VCEK, issued by CN=SEV-Milan or SEV-Genoa as the manifest says",
    judge: ({ vcek, line }) => {
      const certificate = valueIn(vcek);
      if (certificate === undefined) return undefined;
      const { subject, issuer } = certificate;
      return finding(
        isAmdName(subject, 'SEV-VCEK') && isAmdName(issuer, `SEV-${line}`),
        `${nameText(subject)} issued by ${nameText(issuer)}`,
      );
    },
  },
  {
    id: 'snp.vcek.extensions',
    title: 'Extensions of the VCEK certificate',
    source: 'attestation.md 7 no. 3',
    expected: "all of AMD's extensions, once each, and no others",
    judge: ({ vcekExtensions }) => {
      const extensions = demand(vcekExtensions);
      return extensions === undefined ? undefined : finding(true, `product ${extensions.productName}`);
    },
  },
];
