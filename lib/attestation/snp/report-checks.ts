/** What can be said about a report before any certificate is looked at (attestation.md 3, 4.3, 6.2, 7, 13.5). */
import { constantTimeEqual } from '../../crypto/digest.ts';
import { type CheckRow, type Finding, finding } from '../check.ts';
import type { EvidenceContext } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { familyModelStepping, type SnpReport } from './report.ts';

export interface ReportSubject {
  readonly report: SnpReport;
  readonly entry: SnpReferenceValues;
  readonly context: Pick<EvidenceContext, 'expectedReportData' | 'coordinatorHashes'>;
}

const SUPPORTED_VERSIONS: readonly number[] = [2, 3, 4, 5];
const ECDSA_P384_SHA384 = 1;
const SIGNING_KEYS: Readonly<Record<number, string>> = { 0: 'VCEK', 1: 'VLEK', 7: 'none' };

/** SIGNER_INFO: bit 0 AUTHOR_KEY_EN, bit 1 MASK_CHIP_KEY, bits 4:2 SIGNING_KEY, the rest reserved. */
const signingKey = ({ signerInfo }: SnpReport): number => (signerInfo >>> 2) & 7;

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Exact values only: relatives such as Bergamo have no trust root here (attestation.md 6.2). */
const PRODUCT_LINES: Readonly<Record<string, string>> = {
  '25/1': 'Milan',
  '25/17': 'Genoa',
  '26/2': 'Turin',
};

/** The product line by the report's CPUID fields; undefined for version 2, which has none, and for unknown ones. */
export function productLine({ version, cpuid1EaxFms }: SnpReport): string | undefined {
  if (version < 3) return undefined;
  const { family, model } = familyModelStepping(cpuid1EaxFms);
  return PRODUCT_LINES[`${family}/${model}`];
}

/** Compares byte strings that the manifest, the nonce or the hardware determine. */
export function equalBytes(found: Uint8Array, expected: Uint8Array): Finding {
  return finding(constantTimeEqual(found, expected), hex(found), hex(expected));
}

export const REPORT_ROWS: readonly CheckRow<ReportSubject>[] = [
  {
    id: 'snp.report_data',
    title: 'Report data',
    source: 'attestation.md 3',
    expected: 'the digest over nonce, manifest and both CA certificates',
    judge: ({ report, context }) => equalBytes(report.reportData, context.expectedReportData),
  },
  {
    id: 'snp.host_data',
    title: 'Host data',
    source: 'attestation.md 4.3, 19.12 rule 11',
    expected: 'the policy hash of a coordinator entry of the manifest',
    judge: ({ report, context }) =>
      finding(
        context.coordinatorHashes.some((hash) => constantTimeEqual(hash, report.hostData)),
        hex(report.hostData),
        context.coordinatorHashes.map(hex).join(' or '),
      ),
  },
  {
    id: 'snp.report.version',
    title: 'Report version',
    source: 'attestation.md 6.2',
    expected: 'version 2, 3, 4 or 5',
    judge: ({ report }) => finding(SUPPORTED_VERSIONS.includes(report.version), `version ${report.version}`),
  },
  {
    id: 'snp.report.signature_algo',
    title: 'Signature algorithm of the report',
    source: 'attestation.md 6.2',
    expected: '1 (ECDSA P-384 with SHA-384)',
    judge: ({ report }) => finding(report.signatureAlgo === ECDSA_P384_SHA384, String(report.signatureAlgo)),
  },
  {
    id: 'snp.report.signing_key',
    title: 'Kind of the signing key',
    source: 'attestation.md 6.2, 7',
    expected: 'VCEK, and no reserved bit of SIGNER_INFO set',
    judge: ({ report }) => {
      const key = signingKey(report);
      const reserved = report.signerInfo >>> 5 !== 0;
      return finding(
        key === 0 && !reserved,
        `${SIGNING_KEYS[key] ?? 'reserved'}${reserved ? ', reserved bits set' : ''}`,
      );
    },
  },
  {
    id: 'snp.report.author_key',
    title: 'No author key',
    source: 'attestation.md 13.5',
    expected: 'AUTHOR_KEY_EN is 0',
    judge: ({ report }) => finding((report.signerInfo & 1) === 0, `${report.signerInfo & 1}`),
  },
];

/** Whether the evidence claims to be signed by a VCEK, the only kind of key there is a root for. */
export const isSignedByVcek = (report: SnpReport): boolean => signingKey(report) === 0;
