import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import {
  type Certificate,
  maySignCertificates,
  parseCertificate,
  verifySignedBy,
} from '../../lib/attestation/x509.ts';
import {
  children,
  contextTag,
  type Der,
  decodeCertificates,
  decodeOneCertificate,
  parseDer,
} from '../../lib/crypto/der.ts';
import { publicKeyFromSpki } from '../../lib/crypto/signature.ts';
import { type CertificateRequest, issueCertificate, toPem } from '../../simulator/pki/certificate.ts';
import { bitString, boolean, element, integer, octetString, oid, sequence } from '../../simulator/pki/der.ts';
import {
  basicConstraints,
  type EncodedExtension,
  keyUsage,
  vendorExtension,
} from '../../simulator/pki/extensions.ts';
import { malformed } from '../support/evidence/readers.ts';

const trustText = (name: string): string =>
  readFileSync(new URL(`../vectors/trust/${name}`, import.meta.url), 'utf8');
const trusted = (name: string): Certificate => parseCertificate(decodeOneCertificate(trustText(name)));

const ROOTS = ['amd_milan', 'amd_genoa', 'amd_turin'] as const;
const KEY = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const issue = (changes: Partial<CertificateRequest> = {}): Uint8Array =>
  issueCertificate({
    issuer: { name: [['CN', 'issuer']], key: KEY },
    subject: [['CN', 'subject']],
    key: KEY,
    extensions: [],
    notBefore: new Date('2026-01-01T00:00:00Z'),
    notAfter: new Date('2027-01-01T00:00:00Z'),
    ...changes,
  });

/** A certificate with other elements in its signed part; its signature is the old one. */
function withElements(change: (elements: Uint8Array[]) => readonly Uint8Array[]): Uint8Array {
  const [signed, ...rest] = children(parseDer(issue())) as [Der, Der, Der];
  const elements = children(signed).map(({ full }) => full);
  return sequence(sequence(...change(elements)), ...rest.map(({ full }) => full));
}

describe('certificates of the vendors', () => {
  const files = [
    ...ROOTS.flatMap((line) => [`${line}_ark.pem`, `${line}_ask.pem`, `${line}_asvk.pem`]),
    'intel_sgx_root_ca.pem',
  ];

  it('are read as node:crypto reads them', () => {
    for (const file of files) {
      const certificate = trusted(file);
      const oracle = new X509Certificate(trustText(file));
      const serial = oracle.serialNumber.toLowerCase();
      assert.equal(certificate.serial.replace(/^0/, ''), serial.replace(/^0/, ''), file);
      assert.equal(certificate.notBefore.getTime(), oracle.validFromDate.getTime(), file);
      assert.equal(certificate.notAfter.getTime(), oracle.validToDate.getTime(), file);
      assert.equal(certificate.basicConstraints?.ca, oracle.ca, file);
      const spki = oracle.publicKey.export({ type: 'spki', format: 'der' });
      assert.deepEqual(certificate.spki, new Uint8Array(spki), file);
      const lines = certificate.subject.attributes.map(({ type, value }) => `${type}=${value}`);
      assert.deepEqual(lines, oracle.subject.split('\n'), file);
      const fingerprint = createHash('sha256').update(certificate.der).digest('hex').toUpperCase();
      assert.equal(fingerprint, oracle.fingerprint256.replaceAll(':', ''), file);
    }
  });
});

describe('parseCertificate', () => {
  it('reads each bit of key usage as its own use, and a path length up to 255', () => {
    const read = (id: string, value: Uint8Array) =>
      parseCertificate(issue({ extensions: [vendorExtension(id, value)] }));
    const uses = [
      ...['digitalSignature', 'nonRepudiation', 'keyEncipherment', 'dataEncipherment', 'keyAgreement'],
      ...['keyCertSign', 'cRLSign', 'encipherOnly', 'decipherOnly'],
    ];
    for (const [bit, use] of uses.entries()) {
      const bytes = bit < 8 ? Uint8Array.of(0x80 >> bit) : Uint8Array.of(0, 0x80);
      assert.deepEqual([...(read('2.5.29.15', bitString(bytes, 7 - (bit % 8))).keyUsage ?? [])], [use]);
    }
    const constraints = (pathLength: number) => sequence(boolean(true), integer(pathLength));
    assert.equal(read('2.5.29.19', constraints(255)).basicConstraints?.pathLength, 255);
    assert.throws(() => read('2.5.29.19', constraints(256)), malformed);
    assert.equal(read('2.5.29.19', sequence(boolean(false))).basicConstraints?.ca, false);
  });

  it('refuses an extended key usage without a purpose', () => {
    const purposes = (...list: readonly Uint8Array[]) =>
      parseCertificate(issue({ extensions: [vendorExtension('2.5.29.37', sequence(...list))] }))
        .extendedKeyUsage;
    assert.deepEqual(purposes(oid('1.2.3'), oid('1.2.4')), ['1.2.3', '1.2.4']);
    assert.throws(() => purposes(), malformed);
  });

  it('refuses unique identifiers, of the issuer and of the subject', () => {
    for (const tag of [0x81, 0x82, 0xa1, 0xa2]) {
      const identifier = element(tag, bitString(Uint8Array.of(1)));
      const der = withElements((elements) => [...elements.slice(0, 7), identifier]);
      assert.throws(() => parseCertificate(der), malformed, tag.toString(16));
    }
  });

  it('reads versions 1 to 3, assumes 1 if none is stated, and refuses 4', () => {
    const of = (...version: readonly Uint8Array[]): number =>
      parseCertificate(withElements(([, ...others]) => [...version, ...others])).version;
    assert.equal(of(), 1);
    for (const number of [0, 1, 2]) {
      assert.equal(of(element(contextTag(0, true), integer(number))), number + 1);
    }
    assert.throws(() => of(element(contextTag(0, true), integer(3))), malformed);
  });

  it('lets only a CA sign certificates, and only if its key usage is absent or allows it', () => {
    const may = (...extensions: readonly EncodedExtension[]): boolean =>
      maySignCertificates(parseCertificate(issue({ extensions })));
    assert.equal(may(basicConstraints(true)), true);
    assert.equal(may(basicConstraints(true), keyUsage('keyCertSign')), true);
    assert.equal(may(basicConstraints(true), keyUsage('digitalSignature')), false);
    assert.equal(may(basicConstraints(false), keyUsage('keyCertSign')), false);
    assert.equal(may(), false);
  });

  it('refuses a repeated extension, and bytes after a value or the certificate', () => {
    const twice = vendorExtension('1.2.3', integer(1));
    assert.throws(() => parseCertificate(issue({ extensions: [twice, twice] })), malformed);
    const loose = { ...basicConstraints(true), value: Buffer.concat([sequence(), new Uint8Array(1)]) };
    assert.throws(() => parseCertificate(issue({ extensions: [loose] })), malformed);
    const wrong = { ...keyUsage('cRLSign'), value: octetString(new Uint8Array(1)) };
    assert.throws(() => parseCertificate(issue({ extensions: [wrong] })), malformed);
    assert.throws(() => parseCertificate(Buffer.concat([issue(), new Uint8Array(1)])), malformed);
  });

  it('refuses an additional element in any part of a certificate', () => {
    /** The element with one more child at the end of that one below it to which the indexes lead. */
    const grown = (parent: Der, [index, ...path]: readonly number[]): Uint8Array => {
      const parts = children(parent).map(({ full }) => full);
      if (index === undefined) return element(parent.tag, ...parts, integer(1));
      const child = children(parent)[index];
      assert.ok(child !== undefined);
      return element(parent.tag, ...parts.with(index, grown(child, path)));
    };
    const certificate = parseDer(issue({ extensions: [basicConstraints(true)] }));
    for (const [where, ...path] of [
      ['behind the signature'],
      ['behind the extensions', 0],
      ['behind the dates', 0, 4],
      ['behind the value of an attribute of the issuer', 0, 3, 0, 0],
      ['behind the list of extensions', 0, 7],
      ['in the list of extensions', 0, 7, 0],
      ['behind the value of an extension', 0, 7, 0, 0],
    ] as const) {
      assert.throws(() => parseCertificate(grown(certificate, path)), malformed, where);
    }
  });

  it('refuses a name with an empty part', () => {
    for (const at of [3, 5]) {
      const named = (name: Uint8Array) => () =>
        parseCertificate(withElements((elements) => elements.with(at, name)));
      assert.throws(
        named(sequence(element(0x31))),
        (error) => malformed(error) && /empty relative distinguished name/.test(String(error)),
      );
      assert.doesNotThrow(named(sequence()));
    }
  });

  it('refuses a certificate of more than 64 KiB in DER, or of more than 100,000 characters in PEM', () => {
    const tooLarge = (error: unknown): boolean => malformed(error) && /too large/.test(String(error));
    const large = issue({ extensions: [vendorExtension('1.2.3', octetString(new Uint8Array(64_000)))] });
    for (const der of [large, decodeOneCertificate(toPem(large))])
      assert.equal(parseCertificate(der).extensions.size, 1);
    assert.throws(
      () => parseCertificate(new Uint8Array(65_536)),
      (error) => !tooLarge(error),
    );
    assert.throws(() => parseCertificate(new Uint8Array(65_537)), tooLarge);
    const pem = toPem(issue());
    const spaced = (length: number): string => pem + ' '.repeat(length - pem.length);
    assert.ok(decodeOneCertificate(spaced(100_000)).length > 0);
    assert.throws(() => decodeOneCertificate(spaced(100_001)), malformed);
  });

  it('refuses a certificate with different signature algorithms inside and outside its signed part', () => {
    const der = Buffer.from(issue());
    const sha256 = Buffer.from('06082a8648ce3d040302', 'hex');
    const outer = der.lastIndexOf(sha256);
    assert.notEqual(outer, der.indexOf(sha256));
    der[outer + sha256.length - 1] = 3;
    assert.throws(() => parseCertificate(der), malformed);
  });

  it('does not verify a signature whose algorithm it does not know', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const certificate = parseCertificate(issue({ issuer: { name: [], key: privateKey } }));
    const issuer = { publicKey: publicKeyFromSpki(publicKey.export({ type: 'spki', format: 'der' })) };
    assert.ok(await verifySignedBy(certificate, issuer));
    const unknown = { name: '1.2.840.10045.4.1' }; // ecdsa-with-SHA1
    assert.ok(!(await verifySignedBy({ ...certificate, signatureAlgorithm: unknown }, issuer)));
  });
});

describe('the signature of a certificate', () => {
  const NULL = element(0x05, new Uint8Array(0));
  const [PSS, MGF1] = [oid('1.2.840.113549.1.1.10'), oid('1.2.840.113549.1.1.8')];
  const SHA384 = sequence(oid('2.16.840.1.101.3.4.2.2'), NULL);
  const SHA256 = sequence(oid('2.16.840.1.101.3.4.2.1'), NULL);
  const wrapped = (n: number, content: Uint8Array) => element(contextTag(n, true), content);
  /** The name of an algorithm that a certificate states twice. */
  const nameOf = (...algorithm: readonly Uint8Array[]): string => {
    const stated = sequence(...algorithm);
    const [signed] = children(parseDer(withElements((elements) => elements.with(2, stated))));
    return parseCertificate(sequence(signed!.full, stated, bitString(Uint8Array.of(1)))).signatureAlgorithm
      .name;
  };
  const parameters = {
    hash: wrapped(0, SHA384),
    mask: wrapped(1, sequence(MGF1, SHA384)),
    salt: wrapped(2, integer(48)),
  };
  const pss = (changes: Partial<typeof parameters>, ...more: readonly Uint8Array[]): string =>
    nameOf(PSS, sequence(...Object.values({ ...parameters, ...changes }), ...more));

  it('has whole bytes, and nothing behind it', () => {
    const [signed, algorithm] = children(parseDer(issue())) as [Der, Der];
    const of = (...end: readonly Uint8Array[]) =>
      parseCertificate(sequence(signed.full, algorithm.full, ...end)).signature;
    assert.deepEqual([...of(bitString(Uint8Array.of(0x0e)))], [0x0e]);
    for (const end of [[bitString(Uint8Array.of(0x0e), 1)], [bitString(Uint8Array.of(0x0e)), NULL]]) {
      assert.throws(() => of(...end), malformed);
    }
  });

  it('is by ECDSA without parameters (RFC 5758 3.2)', () => {
    for (const [dotted, name] of [
      ['1.2.840.10045.4.3.2', 'ecdsa-with-SHA256'],
      ['1.2.840.10045.4.3.3', 'ecdsa-with-SHA384'],
    ] as const) {
      assert.equal(nameOf(oid(dotted)), name);
      assert.throws(() => nameOf(oid(dotted), NULL), malformed);
    }
  });

  it('is by RSASSA-PSS with the parameters of AMD: SHA-384, MGF1 with it, salt 48, trailer 1 or none', () => {
    assert.equal(pss({}), 'rsassa-pss');
    assert.equal(pss({}, wrapped(3, integer(1))), 'rsassa-pss');
    for (const refused of [
      () => pss({ hash: wrapped(0, SHA256) }),
      () => pss({ mask: wrapped(1, sequence(oid('1.2.840.113549.1.1.9'), SHA384)) }),
      () => pss({ mask: wrapped(1, sequence(MGF1, SHA256)) }),
      ...[20, 47, 49].map((salt) => () => pss({ salt: wrapped(2, integer(salt)) })),
      () => pss({}, wrapped(3, integer(2))),
      () => pss({}, wrapped(4, integer(1))),
      () => nameOf(PSS, sequence()),
      () => nameOf(PSS),
      () => nameOf(PSS, sequence(...Object.values(parameters)), NULL),
    ]) {
      assert.throws(refused, (error) => malformed(error) && /has other parameters/.test(String(error)));
    }
  });
});

describe('PEM', () => {
  const der = issue();
  const pem = toPem(der);

  it('gives the certificate of every block', () => {
    assert.deepEqual(decodeCertificates(`\n${pem}\r\n${toPem(Uint8Array.of(1, 2, 3))}`), [
      new Uint8Array(der),
      Uint8Array.of(1, 2, 3),
    ]);
    assert.deepEqual(decodeCertificates(pem.replaceAll('\n', '\r\n')), [new Uint8Array(der)]);
  });

  it('refuses text before, between and after the blocks, and blocks that are not base64', () => {
    for (const bad of [
      '',
      'text',
      `x${pem}`,
      `${pem}x`,
      `${pem}x\n${pem}`,
      `${pem}\0`,
      pem + toPem(der, 'X509 CRL'),
      pem.replace('END CERTIFICATE', 'END KEY'),
      pem.replace('-----\n', '-----\n*'),
      pem.replace('-----\n', '-----\nA'),
      '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n',
    ]) {
      assert.throws(() => decodeCertificates(bad), malformed, bad.slice(0, 40));
    }
  });
});
