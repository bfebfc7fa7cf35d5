/** The firmware and the chip: TCB versions, mitigations, chip identity (docs/protocol/attestation.md 8, 13.5). */
import { type Finding, finding, need, notApplicable, row } from '../check.ts';
import { type TcbParts, tcbAtMost, tcbParts, tcbText, tcbValue } from './packed-fields.ts';
import { bits, equalBytes, hex, type SnpRow } from './subject.ts';

const SECTION_8 = 'attestation.md 8';

const tcbAtMostFinding = (found: TcbParts, limit: TcbParts): Finding =>
  finding(tcbAtMost(found, limit), tcbText(found), `at most ${tcbText(limit)}`);

function minimumTcbRow(
  id: string,
  title: string,
  source: string,
  field: 'reportedTcb' | 'launchTcb' | 'committedTcb',
): SnpRow {
  const expected = 'every part at least the MinimumTCB of the manifest';
  return row(id, title, source, expected, ({ report, entry: { minimumTcb } }) => {
    const found = tcbParts(report[field]);
    return finding(tcbAtMost(minimumTcb, found), tcbText(found), `at least ${tcbText(minimumTcb)}`);
  });
}

function mitigationRow(id: string, title: string, field: 'launchMitVector' | 'currentMitVector'): SnpRow {
  const expected = 'every bit of MinimumMitigationVector is set';
  return row(id, title, SECTION_8, expected, ({ report, entry: { minimumMitigationVector: minimum } }) =>
    finding((report[field] & minimum) === minimum, bits(report[field]), `all of ${bits(minimum)}`),
  );
}

export const FIRMWARE_ROWS: readonly SnpRow[] = [
  minimumTcbRow('snp.tcb.reported', 'Reported TCB', SECTION_8, 'reportedTcb'),
  minimumTcbRow('snp.tcb.launch', 'Launch TCB', SECTION_8, 'launchTcb'),
  minimumTcbRow('snp.tcb.committed', 'Committed TCB', 'attestation.md 13.5', 'committedTcb'),
  row(
    'snp.tcb.vcek',
    'TCB of the VCEK',
    SECTION_8,
    'equal to REPORTED_TCB in all eight parts',
    ({ report: { reportedTcb }, vcekExtensions }) => {
      const { tcb } = need(vcekExtensions);
      return finding(tcbValue(tcb) === reportedTcb, tcbText(tcb), tcbText(tcbParts(reportedTcb)));
    },
  ),
  row(
    'snp.tcb.vcek_current',
    'TCB of the VCEK and the current TCB',
    SECTION_8,
    'every part at most its counterpart in CURRENT_TCB',
    ({ report, vcekExtensions }) => tcbAtMostFinding(need(vcekExtensions).tcb, tcbParts(report.currentTcb)),
  ),
  row(
    'snp.firmware.tcb',
    'Committed and current TCB',
    SECTION_8,
    'COMMITTED_TCB is at most CURRENT_TCB in every part',
    ({ report }) => tcbAtMostFinding(tcbParts(report.committedTcb), tcbParts(report.currentTcb)),
  ),
  row(
    'snp.firmware.version',
    'Committed and current firmware',
    SECTION_8,
    'committed build and version are at most the current ones',
    ({ report }) => {
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
  ),
  mitigationRow('snp.mitigation.launch', 'Mitigations at launch', 'launchMitVector'),
  mitigationRow('snp.mitigation.current', 'Current mitigations', 'currentMitVector'),
  row(
    'snp.chip_id.vcek',
    'Chip of the VCEK',
    SECTION_8,
    'the chip that the VCEK names; not comparable where the report masks it',
    ({ report: { chipId }, vcekExtensions }) =>
      chipId.every((byte) => byte === 0)
        ? notApplicable('CHIP_ID is masked')
        : equalBytes(chipId, need(vcekExtensions).hwid),
    { conditional: true },
  ),
  row(
    'snp.chip_id.allowed',
    'Allowed chips',
    SECTION_8,
    'one of AllowedChipIDs, where the manifest lists any',
    ({ report: { chipId }, entry: { allowedChipIds } }) =>
      allowedChipIds.length === 0
        ? notApplicable('the manifest allows any chip')
        : finding(
            allowedChipIds.some((id) => hex(id) === hex(chipId)),
            hex(chipId),
            `one of ${allowedChipIds.length} chips`,
          ),
    { conditional: true },
  ),
];
