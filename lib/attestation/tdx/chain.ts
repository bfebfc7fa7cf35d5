/**
 * Checks whether Intel's certificate chains lead to the pinned root (docs/protocol/attestation.md 10, RFC
 * 5280 6.1), and reads Intel's extension of a PCK certificate. Each function `…Defects` returns a list that
 * has a text for each defect and false for each test that passed.
 */
import * as der from '../../crypto/der.ts';
import { malformed } from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import { type Finding, finding, type Rows, row } from '../check.ts';
import type { TrustRoots } from '../roots/production.ts';
import { inForce, issuedBy } from '../validity.ts';
import * as x509 from '../x509.ts';
import { type Certificate, EXTENSION_OID } from '../x509.ts';

/** Common names from the leaf to the root. A PCK chain through Intel's processor CA is refused. */
const PCK_CHAIN = ['Intel SGX PCK Certificate', 'Intel SGX PCK Platform CA', 'Intel SGX Root CA'];
const SIGNER_CHAIN = ['Intel SGX TCB Signing', 'Intel SGX Root CA'];

export const SGX_EXTENSION_OID = '1.2.840.113741.1.13.1';
const HANDLED_CRITICAL = [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage, SGX_EXTENSION_OID];
/** The size limit in bytes of a certificate chain. Real chains have under 4 KB. */
const MAX_CHAIN_BYTES = 32 * 1024;
const AFTER_LAST_BLOCK = /-----END CERTIFICATE-----(?:\r?\n)?\0?$/;

type PckChain = readonly [leaf: Certificate, platformCa: Certificate, root: Certificate];
type SignerChain = readonly [signer: Certificate, root: Certificate];

/** Reads the certificate chain of the signer of collateral. Throws evidence_malformed. */
export const readSignerChain = (pem: string) => readChain(pem, SIGNER_CHAIN) as SignerChain;

/** Reads the chain of a PCK certificate. A NUL byte may follow the chain. Throws evidence_malformed. */
export function readPckChain(pem: Uint8Array) {
  const text = Buffer.from(pem).toString('latin1');
  if (!AFTER_LAST_BLOCK.test(text)) throw malformed('something follows the PCK certificate chain');
  return readChain(text.replace(/\0$/, ''), PCK_CHAIN) as PckChain;
}

function readChain(text: string, names: readonly string[]): readonly Certificate[] {
  if (text.length > MAX_CHAIN_BYTES) throw malformed('a certificate chain is too large');
  const chain = x509.certificatesIn(text);
  if (chain.length === names.length) return chain;
  throw malformed(`a chain of ${chain.length} certificates instead of ${names.length}`);
}

/** Reads the only trust anchor for TDX. Throws attestation_failed if no root for TDX is pinned. */
export function readPinnedRoot({ tdx }: TrustRoots): Certificate {
  if (tdx !== undefined) return x509.certificateIn(tdx.root);
  throw new PrivatemodeError('attestation_failed', 'no root for TDX is trusted');
}

type Defect = string | false;

/** Returns a finding that passes with the text `held` if there is no defect, or else names all defects. */
export function noDefects(defects: readonly Defect[], held: string): Finding {
  const found = defects.filter((defect) => defect !== false);
  return finding(found.length === 0, found.join('; ') || held);
}

/** Expects X.509 v3, ECDSA P-256 with SHA-256, the given names, and no unknown critical extension. */
const profileDefects = (chain: readonly Certificate[], names: readonly string[]): readonly Defect[] =>
  chain.flatMap(({ version, signatureAlgorithm, publicKey, subject, extensions }, place) => {
    const name = names[place] ?? 'a certificate too many';
    const critical = x509.unhandledCritical(extensions, ...HANDLED_CRITICAL);
    return [
      version !== 3 && `${name}: X.509 version ${version}`,
      signatureAlgorithm.name !== 'ecdsa-with-SHA256' && `${name}: signed with ${signatureAlgorithm.name}`,
      publicKey.curve !== 'P-256' && `${name}: the key is not on P-256`,
      x509.commonName(subject) !== name && `the subject is "${x509.nameText(subject)}" instead of CN=${name}`,
      critical !== undefined && `${name}: critical extension ${critical} is not understood`,
    ];
  });

/**
 * Expects that each certificate was issued by the next certificate, and the last one by the pinned root. The
 * last certificate must have the subject name and key of the pinned root, but may differ otherwise, because
 * Intel reissued its root certificate.
 */
async function pathDefects(chain: readonly Certificate[], pinned: Certificate): Promise<readonly Defect[]> {
  const root = chain.at(-1);
  const same =
    root && x509.sameName(root.subject, pinned.subject) && Buffer.compare(root.spki, pinned.spki) === 0;
  // `below` counts the CAs between issuer and leaf. A root does not count itself (RFC 5280 4.2.1.9).
  const below = (place: number): number => Math.min(place, chain.length - 2);
  const links = chain.map((child, place) => linkDefects(child, chain[place + 1] ?? pinned, below(place)));
  return [!same && 'the root is not the trusted one', ...(await Promise.all(links)).flat()];
}

/** Expects that `issuer` issued `child` and is a CA that may have at least `below` CAs under it. */
async function linkDefects(child: Certificate, issuer: Certificate, below: number): Promise<Defect[]> {
  const { outcome, found } = await issuedBy(child, issuer);
  const mayIssue =
    x509.maySignCertificates(issuer) && (issuer.basicConstraints?.pathLength ?? below) >= below;
  const name = x509.nameText(child.subject);
  return [outcome === 'fail' && `${name}: ${found}`, !mayIssue && `${name}: its issuer may not sign it`];
}

/** Passes if the chain of Intel's signing certificate leads to the pinned root and is valid now. */
export async function judgeSigner(chain: SignerChain, { pinned, now }: ChainSubject): Promise<Finding> {
  const defects = [...profileDefects(chain, SIGNER_CHAIN), ...(await pathDefects(chain, pinned))];
  const issued = noDefects(defects, x509.nameText(chain[0].subject));
  const validity = inForce(now, ...chain);
  return issued.outcome === 'fail' || validity.outcome === 'pass' ? issued : validity;
}

export interface ChainSubject {
  readonly chain: PckChain;
  /** The pinned root certificate of Intel. */
  readonly pinned: Certificate;
  readonly now: Date;
}

export const CHAIN_ROWS: Rows<ChainSubject> = [
  row('tdx.pck.format', 'The PCK chain can be read', '10', {
    expected: 'three certificates in PEM, at most a NUL byte after them',
    judge: () => finding(true, 'three certificates'),
  }),
  row('tdx.pck.profile', 'The certificates are of the kind Intel issues', '10', {
    expected: 'X.509 v3, ECDSA on P-256 with SHA-256, subjects of a platform CA chain',
    judge: ({ chain }) => noDefects(profileDefects(chain, PCK_CHAIN), 'all three as expected'),
  }),
  row('tdx.pck.chain', 'The PCK chain leads to the trusted root', '10', {
    expected: 'leaf, platform CA and the trusted root, each issued by the next',
    judge: async ({ chain, pinned }) =>
      noDefects(await pathDefects(chain, pinned), `chain to ${x509.nameText(pinned.subject)}`),
  }),
  row('tdx.pck.validity', 'The PCK chain is in its validity', '10', {
    expected: 'every certificate valid now',
    judge: ({ chain, pinned, now }) => inForce(now, ...chain, pinned),
  }),
];

export type SgxExtension = Readonly<ReturnType<typeof readSgxExtension>>;

/**
 * Reads Intel's extension of a PCK certificate. The extension must have each part once and no other part. The
 * length of each part is fixed. Only configuration flags may be absent. Throws evidence_malformed.
 */
export function readSgxExtension(value: Uint8Array | undefined) {
  if (value === undefined) throw malformed(`the PCK certificate has no ${SGX_EXTENSION_OID}`);
  const whole = der.parseDer(value);
  const [ppid, tcb, pceId, fmspc, sgxType, piid, flags] = readParts(whole, SGX_EXTENSION_OID, 7);
  const svns = readParts(der.expectTag(tcb), `${SGX_EXTENSION_OID}.2`, 18);
  const configuration = readParts(der.expectTag(flags), `${SGX_EXTENSION_OID}.7`, 3);
  const [dynamicPlatform, , smtEnabled] = configuration.map((flag) => flag && der.readBoolean(flag));
  octets(ppid, 16, 'PPID');
  octets(svns[17], 16, 'CPUSVN');
  return {
    pceId: octets(pceId, 2, 'PCE-ID'),
    /** The platform model for which Intel issues TCB info. */
    fmspc: octets(fmspc, 6, 'FMSPC'),
    /** The SGX type: 0 is standard, 1 is scalable, and 2 is scalable with integrity. */
    sgxType: der.readSmallInteger(der.expectTag(sgxType), 2, der.TAG.enumerated),
    /** The id of the platform instance. */
    piid: octets(piid, 16, 'PIID'),
    componentSvns: svns.slice(0, 16).map((svn) => der.readSmallInteger(der.expectTag(svn), 0xff)),
    pceSvn: der.readSmallInteger(der.expectTag(svns[16]), 0xffff),
    dynamicPlatform,
    smtEnabled,
  };
}

function octets(element: der.Der | undefined, length: number, name: string): Uint8Array {
  const { content } = der.expectTag(element, der.TAG.octetString);
  if (content.length === length) return content;
  throw malformed(`the ${name} of the PCK certificate has ${content.length} bytes`);
}

/**
 * Reads a SEQUENCE of (OID, value) pairs in any order. Returns the values of the OIDs `prefix`.1 to
 * `prefix`.`count`. The value of an absent OID is undefined. Refuses any other OID and any repeated OID.
 */
function readParts(element: der.Der, prefix: string, count: number): readonly (der.Der | undefined)[] {
  const known = Array.from({ length: count }, (_, i) => `${prefix}.${i + 1}`);
  const values = new Map<string, der.Der>();
  for (const pair of new der.DerCursor(element).rest(der.TAG.sequence)) {
    const [oid, value] = der.readSequence(
      pair,
      (cursor) => [der.readOid(cursor.take()), cursor.take()] as const,
    );
    if (values.has(oid)) throw malformed(`the PCK certificate states ${oid} twice`);
    if (!known.includes(oid)) throw malformed(`the PCK certificate states ${oid}, which is not known`);
    values.set(oid, value);
  }
  return known.map((oid) => values.get(oid));
}
