/** The firmware and the chip: TCB versions, mitigations, chip identity (attestation.md 8, 13.5). */
import { type Attempt, valueIn } from '../attempt.ts';
import { type CheckRow, finding, notApplicable } from '../check.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import type { SnpReport } from './report.ts';
import { equalBytes, hex } from './report-checks.ts';
import { tcbAtMost, tcbParts, tcbText, tcbValue } from './tcb.ts';
import type { VcekExtensions } from './vcek.ts';

export interface FirmwareSubject {
  readonly report: SnpReport;
  readonly entry: SnpReferenceValues;
  readonly vcekExtensions: Attempt<VcekExtensions>;
}

type Row = CheckRow<FirmwareSubject>;
const SECTION_8 = 'attestation.md 8';
const SECTION_13 = 'attestation.md 13.5';
const bits = (value: bigint): string => `0x${value.toString(16)}`;

function minimumTcbRow(id: string, title: string, source: string, read: (report: SnpReport) => bigint): Row {
  return {
    id,
    title,
    source,
    expected: 'every part at least the MinimumTCB of the manifest',
    judge: ({ report, entry: { minimumTcb } }) => {
      const found = tcbParts(read(report));
      return finding(tcbAtMost(minimumTcb, found), tcbText(found), `at least ${tcbText(minimumTcb)}`);
    },
  };
}

function mitigationRow(id: string, title: string, read: (report: SnpReport) => bigint): Row {
  return {
    id,
    title,
    source: SECTION_8,
    expected: 'every bit of MinimumMitigationVector is set',
    judge: ({ report, entry: { minimumMitigationVector: minimum } }) =>
      finding((read(report) & minimum) === minimum, bits(read(report)), `all of ${bits(minimum)}`),
  };
}

const TCB_ROWS: readonly Row[] = [
  minimumTcbRow('snp.tcb.reported', 'Reported TCB', SECTION_8, (report) => report.reportedTcb),
  minimumTcbRow('snp.tcb.launch', 'Launch TCB', SECTION_8, (report) => report.launchTcb),
  minimumTcbRow('snp.tcb.committed', 'Committed TCB', SECTION_13, (report) => report.committedTcb),
  {
    id: 'snp.tcb.vcek',
    title: 'TCB of the VCEK',
    source: SECTION_8,
    expected: 'equal to REPORTED_TCB in all eight parts',
    judge: ({ report, vcekExtensions }) => {
      const tcb = valueIn(vcekExtensions)?.tcb;
      if (tcb === undefined) return undefined;
      return finding(
        tcbValue(tcb) === report.reportedTcb,
        tcbText(tcb),
        tcbText(tcbParts(report.reportedTcb)),
      );
    },
  },
  {
    id: 'snp.tcb.vcek_current',
    title: 'TCB of the VCEK and the current TCB',
    source: SECTION_8,
    expected: 'every part at most its counterpart in CURRENT_TCB',
    judge: ({ report, vcekExtensions }) => {
      const tcb = valueIn(vcekExtensions)?.tcb;
      const current = tcbParts(report.currentTcb);
      return tcb === undefined
        ? undefined
        : finding(tcbAtMost(tcb, current), tcbText(tcb), `at most ${tcbText(current)}`);
    },
  },
  {
    id: 'snp.firmware.tcb',
    title: 'Committed and current TCB',
    source: SECTION_8,
    expected: 'COMMITTED_TCB is at most CURRENT_TCB in every part',
    judge: ({ report }) => {
      const [committed, current] = [tcbParts(report.committedTcb), tcbParts(report.currentTcb)];
      return finding(tcbAtMost(committed, current), tcbText(committed), `at most ${tcbText(current)}`);
    },
  },
  {
    id: 'snp.firmware.version',
    title: 'Committed and current firmware',
    source: SECTION_8,
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
  mitigationRow('snp.mitigation.launch', 'Mitigations at launch', (report) => report.launchMitVector),
  mitigationRow('snp.mitigation.current', 'Current mitigations', (report) => report.currentMitVector),
];

const CHIP_ROWS: readonly Row[] = [
  {
    id: 'snp.chip_id.vcek',
    title: 'Chip of the VCEK',
    source: SECTION_8,
    expected: 'the chip that the VCEK names; not comparable where the report masks it',
    conditional: true,
    judge: ({ report, vcekExtensions }) => {
      const hwid = valueIn(vcekExtensions)?.hwid;
      if (isMasked(report.chipId)) return notApplicable('CHIP_ID is masked');
      return hwid === undefined ? undefined : equalBytes(report.chipId, hwid);
    },
  },
  {
    id: 'snp.chip_id.allowed',
    title: 'Allowed chips',
    source: SECTION_8,
    expected: 'one of AllowedChipIDs, where the manifest lists any',
    conditional: true,
    judge: ({ report, entry: { allowedChipIds } }) =>
      allowedChipIds.length === 0
        ? notApplicable('the manifest allows any chip')
        : finding(
            allowedChipIds.some((id) => hex(id) === hex(report.chipId)),
            hex(report.chipId),
            `one of ${allowedChipIds.length} chips`,
          ),
  },
];

const isMasked = (chipId: Uint8Array): boolean => chipId.every((byte) => byte === 0);

export const FIRMWARE_ROWS: readonly Row[] = [...TCB_ROWS, ...CHIP_ROWS];
