/** The chain of the PCK certificate: leaf, platform CA, root (attestation.md 10). */
import { demand, valueIn } from '../attempt.ts';
import { type Finding, finding } from '../check.ts';
import { type Certificate, decodePem, parseCertificate } from '../x509/certificate.ts';
import { malformed } from '../x509/der.ts';
import { nameText } from '../x509/name.ts';
import { anchorDefects, linkDefects, profileDefects, validityDefects } from './chain.ts';
import { SGX_EXTENSION_OID } from './sgx-extension.ts';
import { hex, noDefects, type TdxRow, type TdxSubject, wasRead } from './subject.ts';

export interface PckChain {
  readonly leaf: Certificate;
  readonly intermediate: Certificate;
  readonly root: Certificate;
}

/** Common names; a chain of the processor CA is refused (attestation.md 10). */
export const INTEL_NAMES = {
  root: 'Intel SGX Root CA',
  platformCa: 'Intel SGX PCK Platform CA',
  pck: 'Intel SGX PCK Certificate',
  tcbSigning: 'Intel SGX TCB Signing',
} as const;

const PCK_EXTENSIONS = 6;
/** Real chains have under 4 KB. */
const MAX_CHAIN_BYTES = 32 * 1024;
const AFTER_LAST_BLOCK = /-----END CERTIFICATE-----(?:\r?\n)?\0?$/;

/** Reads PEM text of exactly `count` certificates, and nothing but them. Throws evidence_malformed. */
export function readCertificates(text: string, count: number): Certificate[] {
  if (text.length > MAX_CHAIN_BYTES) throw malformed('a certificate chain is too large');
  const blocks = decodePem(text);
  if (blocks.length !== count || blocks.some(({ label }) => label !== 'CERTIFICATE')) {
    throw malformed(`a chain of ${blocks.length} PEM blocks instead of ${count} certificates`);
  }
  return blocks.map(({ der }) => parseCertificate(der));
}

/**
 * Reads the chain of a quote: exactly three certificates, after the last of which one NUL byte may stand.
 * Throws evidence_malformed.
 */
export function readPckChain(pem: Uint8Array): PckChain {
  const text = Buffer.from(pem).toString('latin1');
  if (!AFTER_LAST_BLOCK.test(text)) throw malformed('something follows the PCK certificate chain');
  const certificates = readCertificates(text.replace(/\0$/, ''), 3);
  const [leaf, intermediate, root] = certificates as [Certificate, Certificate, Certificate];
  return { leaf, intermediate, root };
}

export const PCK_ROWS: readonly TdxRow[] = [
  {
    id: 'tdx.pck.format',
    source: 'attestation.md 10',
    title: 'The PCK chain can be read',
    expected: 'three certificates in PEM, at most a NUL byte after them',
    judge: ({ chain }) => wasRead(chain, 'three certificates'),
  },
  {
    id: 'tdx.pck.profile',
    source: 'attestation.md 10',
    title: 'The certificates are of the kind Intel issues',
    expected: 'X.509 v3, ECDSA on P-256 with SHA-256, subjects of a platform CA chain',
    judge: judgeProfile,
  },
  {
    id: 'tdx.pck.chain',
    source: 'attestation.md 10',
    title: 'The PCK chain leads to the trusted root',
    expected: 'leaf, platform CA and the trusted root, each issued by the next',
    judge: judgeChain,
  },
  {
    id: 'tdx.pck.validity',
    source: 'attestation.md 10',
    title: 'The PCK chain is in its validity',
    expected: 'every certificate valid now',
    judge: judgeValidity,
  },
  {
    id: 'tdx.pck.extensions',
    source: 'attestation.md 10',
    title: 'The PCK certificate describes its platform',
    expected: `${PCK_EXTENSIONS} extensions, ${SGX_EXTENSION_OID} complete`,
    judge: judgeExtensions,
  },
];

function judgeProfile({ chain }: TdxSubject): Finding | undefined {
  const certificates = valueIn(chain);
  if (certificates === undefined) return undefined;
  const { leaf, intermediate, root } = certificates;
  const defects = [
    ...profileDefects(leaf, INTEL_NAMES.pck),
    ...profileDefects(intermediate, INTEL_NAMES.platformCa),
    ...profileDefects(root, INTEL_NAMES.root),
  ];
  return noDefects(defects, 'all three as expected');
}

function judgeChain({ chain, pinnedRoot }: TdxSubject): Finding | undefined {
  const [certificates, pinned] = [valueIn(chain), demand(pinnedRoot)];
  if (certificates === undefined || pinned === undefined) return undefined;
  const { leaf, intermediate, root } = certificates;
  const defects = [
    ...anchorDefects(root, pinned),
    ...linkDefects(root, pinned, 1),
    ...linkDefects(intermediate, pinned, 1),
    ...linkDefects(leaf, intermediate, 0),
  ];
  return noDefects(defects, `chain to ${nameText(pinned.subject)}`);
}

function judgeValidity({ chain, pinnedRoot, context }: TdxSubject): Finding | undefined {
  const [certificates, pinned] = [valueIn(chain), valueIn(pinnedRoot)];
  if (certificates === undefined || pinned === undefined) return undefined;
  const { leaf, intermediate, root } = certificates;
  const defects = validityDefects([leaf, intermediate, root, pinned], context.now);
  return noDefects(defects, 'all valid');
}

function judgeExtensions({ chain, sgx }: TdxSubject): Finding | undefined {
  const count = valueIn(chain)?.leaf.extensions.length;
  if (count === undefined) return undefined;
  if (count !== PCK_EXTENSIONS) return finding(false, `${count} extensions`);
  const extension = demand(sgx);
  return extension && finding(true, `${count} extensions, platform model ${hex(extension.fmspc)}`);
}
