/**
 * Checks the report: first what it says without any certificate, then who signed it, then its firmware and
 * chip (docs/protocol/attestation.md 3, 6.2, 7, 8, 13.5).
 */
import { verifyEcdsa } from '../../crypto/signature.ts';
import { verified } from '../certificate-findings.ts';
import { type Finding, finding, hex, need, notApplicable, oneOf, rowsFrom } from '../check.ts';
import { bits, type TcbParts, tcbAtMost, tcbParts, tcbText, tcbValue } from './packed-fields.ts';
import { SNP_SIGNED_BYTES, serializeReport, signingKey } from './report.ts';
import type { SnpSubject } from './vcek.ts';

/** Versions with the layout of docs/protocol/attestation.md 6.2, by which the signed bytes are rebuilt. */
export const SUPPORTED_VERSIONS: readonly number[] = [2, 3, 4, 5];
const ECDSA_P384_SHA384 = 1;
const SIGNING_KEYS: Readonly<Record<number, string>> = { 0: 'VCEK', 1: 'VLEK', 7: 'none' };

export const REPORT_ROWS = rowsFrom<SnpSubject>('attestation.md 6.2', {
  'snp.report_data': {
    title: 'Report data',
    about: 'nonce digest',
    source: 'attestation.md 3',
    expected: 'the digest over nonce, manifest and both CA certificates',
    judge: ({ report, context }) => oneOf(report.reportData, [context.expectedReportData]),
  },
  'snp.host_data': {
    title: 'Host data',
    source: 'attestation.md 4.3, 19.12 rule 11',
    expected: 'the policy hash of a coordinator entry of the manifest',
    judge: ({ report: { hostData }, context: { coordinatorHashes } }) => oneOf(hostData, coordinatorHashes),
  },
  'snp.report.version': {
    title: 'Report version',
    expected: 'version 2, 3, 4 or 5',
    judge: ({ report: { version } }) => ({
      ...finding(SUPPORTED_VERSIONS.includes(version), `version ${version}`),
      detail: version > 5 ? { newer: true } : undefined,
    }),
  },
  'snp.report.signature_algo': {
    title: 'Signature algorithm of the report',
    expected: '1 (ECDSA P-384 with SHA-384)',
    judge: ({ report: { signatureAlgo } }) =>
      finding(signatureAlgo === ECDSA_P384_SHA384, String(signatureAlgo)),
  },
  'snp.report.signing_key': {
    title: 'Kind of the signing key',
    source: 'attestation.md 6.2, 7',
    expected: 'VCEK, and no reserved bit of SIGNER_INFO set',
    judge: ({ report }) => {
      const key = signingKey(report);
      const reserved = report.signerInfo >>> 5 !== 0;
      const found = `${SIGNING_KEYS[key] ?? 'reserved'}${reserved ? ', reserved bits set' : ''}`;
      return finding(key === 0 && !reserved, found);
    },
  },
  'snp.report.author_key': {
    title: 'No author key',
    source: 'attestation.md 13.5',
    expected: 'AUTHOR_KEY_EN is 0',
    judge: ({ report: { signerInfo } }) => finding((signerInfo & 1) === 0, `${signerInfo & 1}`),
  },
});

export const SIGNATURE_ROWS = rowsFrom<SnpSubject>('attestation.md 7', {
  'snp.report.signature': {
    title: 'Signature on the report',
    expected: 'ECDSA P-384 with SHA-384 by the VCEK over the rebuilt report',
    judge: async ({ report, vcek }) => {
      const { publicKey: key } = need(vcek).certificate;
      const signature = rawSignature(report.signature);
      if (signature === undefined || key.curve !== 'P-384') return verified(false);
      const data = serializeReport(report).subarray(0, SNP_SIGNED_BYTES);
      return verified(await verifyEcdsa({ key, hash: 'sha384', encoding: 'raw', data, signature }));
    },
  },
});

/**
 * Turns R and S, 72 bytes each, little-endian, into 48 + 48 bytes, big-endian. Undefined if a number does not
 * fit into 48 bytes, or the bytes after them are not zero.
 */
function rawSignature(field: Uint8Array): Uint8Array | undefined {
  const [r, s, rest] = [field.subarray(0, 72), field.subarray(72, 144), field.subarray(144)];
  const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
  if (!isZero(r.subarray(48)) || !isZero(s.subarray(48)) || !isZero(rest)) return undefined;
  // Copies first: the slice() of a Buffer is a view, and reversing it would alter the message itself.
  const bigEndian = (number: Uint8Array): Uint8Array => Uint8Array.from(number.subarray(0, 48)).reverse();
  return Uint8Array.from([...bigEndian(r), ...bigEndian(s)]);
}

const tcbAtMostFinding = (found: TcbParts, limit: TcbParts): Finding =>
  finding(tcbAtMost(found, limit), tcbText(found), `at most ${tcbText(limit)}`);

const minimumTcb = (title: string, field: 'reportedTcb' | 'launchTcb' | 'committedTcb') => ({
  title,
  expected: 'every part at least the MinimumTCB of the manifest',
  judge: ({ report, entry: { minimumTcb } }: SnpSubject) => {
    const found = tcbParts(report[field]);
    return finding(tcbAtMost(minimumTcb, found), tcbText(found), `at least ${tcbText(minimumTcb)}`);
  },
});

const minimumMitigations = (title: string, field: 'launchMitVector' | 'currentMitVector') => ({
  title,
  expected: 'every bit of MinimumMitigationVector is set',
  judge: ({ report, entry: { minimumMitigationVector: minimum } }: SnpSubject) =>
    finding((report[field] & minimum) === minimum, bits(report[field]), `all of ${bits(minimum)}`),
});

export const FIRMWARE_ROWS = rowsFrom<SnpSubject>('attestation.md 8', {
  'snp.tcb.reported': minimumTcb('Reported TCB', 'reportedTcb'),
  'snp.tcb.launch': minimumTcb('Launch TCB', 'launchTcb'),
  'snp.tcb.committed': { ...minimumTcb('Committed TCB', 'committedTcb'), source: 'attestation.md 13.5' },
  'snp.tcb.vcek': {
    title: 'TCB of the VCEK',
    expected: 'equal to REPORTED_TCB in all eight parts',
    judge: ({ report: { reportedTcb }, vcekExtensions }) => {
      const { tcb } = need(vcekExtensions);
      return finding(tcbValue(tcb) === reportedTcb, tcbText(tcb), tcbText(tcbParts(reportedTcb)));
    },
  },
  'snp.tcb.vcek_current': {
    title: 'TCB of the VCEK and the current TCB',
    expected: 'every part at most its counterpart in CURRENT_TCB',
    judge: ({ report, vcekExtensions }) =>
      tcbAtMostFinding(need(vcekExtensions).tcb, tcbParts(report.currentTcb)),
  },
  'snp.firmware.tcb': {
    title: 'Committed and current TCB',
    expected: 'COMMITTED_TCB is at most CURRENT_TCB in every part',
    judge: ({ report }) => tcbAtMostFinding(tcbParts(report.committedTcb), tcbParts(report.currentTcb)),
  },
  'snp.firmware.version': {
    title: 'Committed and current firmware',
    expected: 'committed build and version are at most the current ones',
    judge: ({ report }) => {
      const { committedMajor, committedMinor, committedBuild } = report;
      const { currentMajor, currentMinor, currentBuild } = report;
      const holds =
        committedBuild <= currentBuild &&
        committedMajor * 256 + committedMinor <= currentMajor * 256 + currentMinor;
      return finding(
        holds,
        `${committedMajor}.${committedMinor} build ${committedBuild}`,
        `at most ${currentMajor}.${currentMinor} build ${currentBuild}`,
      );
    },
  },
  'snp.mitigation.launch': minimumMitigations('Mitigations at launch', 'launchMitVector'),
  'snp.mitigation.current': minimumMitigations('Current mitigations', 'currentMitVector'),
  'snp.chip_id.vcek': {
    title: 'Chip of the VCEK',
    expected: 'the chip that the VCEK names; not comparable where the report masks it',
    conditional: true,
    judge: ({ report: { chipId }, vcekExtensions }) =>
      chipId.every((byte) => byte === 0)
        ? notApplicable('CHIP_ID is masked')
        : oneOf(chipId, [need(vcekExtensions).hwid]),
  },
  'snp.chip_id.allowed': {
    title: 'Allowed chips',
    expected: 'one of AllowedChipIDs, where the manifest lists any',
    conditional: true,
    judge: ({ report: { chipId }, entry: { allowedChipIds } }) =>
      allowedChipIds.length === 0
        ? notApplicable('the manifest allows any chip')
        : finding(
            allowedChipIds.some((id) => hex(id) === hex(chipId)),
            hex(chipId),
            `one of ${allowedChipIds.length} chips`,
          ),
  },
});
