/** What was launched, and how: measurement, ID key, guest policy, platform (attestation.md 8, 13.5). */
import { type CheckRow, finding } from '../check.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import {
  type FlagRow,
  GUEST_POLICY_FLAGS,
  guestPolicyValue,
  hasBit,
  PLATFORM_INFO_FLAGS,
  PLATFORM_RESERVED_ZERO,
  POLICY_RESERVED_ONE,
  POLICY_RESERVED_ZERO,
} from './guest-policy.ts';
import { idKeyDigest } from './id-key.ts';
import type { SnpReport } from './report.ts';
import { equalBytes, hex } from './report-checks.ts';

export interface PolicySubject {
  readonly report: SnpReport;
  readonly entry: SnpReferenceValues;
  /** The result of `matchMeasurement`. */
  readonly vcpus: number | 'exact' | undefined;
}

type Row = CheckRow<PolicySubject>;
const SECTION_8 = 'attestation.md 8';
const bits = (value: bigint): string => `0x${value.toString(16)}`;

const LAUNCH_ROWS: readonly Row[] = [
  {
    id: 'snp.measurement',
    title: 'Launch measurement',
    source: 'attestation.md 8, 19.4',
    expected: 'the TrustedMeasurement, with APEIP for any number of vCPUs from 1 to 220',
    judge: ({ report, vcpus }) =>
      finding(
        vcpus !== undefined,
        `${hex(report.measurement)}${typeof vcpus === 'number' ? ` (${vcpus} vCPUs)` : ''}`,
      ),
  },
  {
    id: 'snp.id_key',
    title: 'ID key',
    source: 'attestation.md 5, 8',
    expected: 'the ID key digest that follows from measurement and guest policy',
    judge: ({ report, entry, vcpus }) =>
      vcpus === undefined
        ? undefined
        : equalBytes(
            report.idKeyDigest,
            idKeyDigest(report.measurement, guestPolicyValue(entry.guestPolicy)),
          ),
  },
  {
    id: 'snp.id_block',
    title: 'ID block constants',
    source: 'attestation.md 5, 13.5',
    expected: 'family id 01…, image id 02…, guest SVN 2',
    judge: ({ report }) => {
      const { familyId, imageId, guestSvn } = report;
      const found = `family id ${hex(familyId)}, image id ${hex(imageId)}, guest SVN ${guestSvn}`;
      const zeros = '00'.repeat(15);
      return finding(
        hex(familyId) === `01${zeros}` && hex(imageId) === `02${zeros}` && guestSvn === 2,
        found,
      );
    },
  },
  {
    id: 'snp.vmpl',
    title: 'Privilege level',
    source: SECTION_8,
    expected: 'VMPL 0',
    judge: ({ report }) => finding(report.vmpl === 0, `VMPL ${report.vmpl}`),
  },
  {
    id: 'snp.migration_agent',
    title: 'No migration agent',
    source: 'attestation.md 13.5',
    expected: 'REPORT_ID_MA is all ones',
    judge: ({ report }) =>
      finding(
        report.reportIdMa.every((byte) => byte === 0xff),
        hex(report.reportIdMa),
      ),
  },
];

function flagRow<Key extends string>(
  prefix: string,
  flag: FlagRow<Key>,
  read: (subject: PolicySubject) => { readonly value: bigint; readonly manifest: boolean },
): Row {
  const { bit, name, direction } = flag;
  return {
    id: `${prefix}.${name.toLowerCase()}`,
    title: `${prefix === 'snp.policy' ? 'Guest policy' : 'Platform'}: ${name}`,
    source: SECTION_8,
    expected:
      direction === 'forbidden' ? 'clear unless the manifest allows it' : 'set if the manifest asks for it',
    judge: (subject) => {
      const { value, manifest } = read(subject);
      const set = hasBit(value, bit);
      const bound = direction === 'forbidden' ? !manifest : manifest;
      const expected = bound ? (direction === 'forbidden' ? 'clear' : 'set') : 'either';
      return finding(
        direction === 'forbidden' ? !set || manifest : set || !manifest,
        set ? 'set' : 'clear',
        expected,
      );
    },
  };
}

const GUEST_POLICY_ROWS: readonly Row[] = [
  {
    id: 'snp.policy.form',
    title: 'Guest policy: reserved bits',
    source: 'attestation.md 6.3',
    expected: 'bit 17 set, bits 63:26 clear',
    judge: ({ report: { policy } }) =>
      finding((policy & POLICY_RESERVED_ONE) !== 0n && (policy & POLICY_RESERVED_ZERO) === 0n, bits(policy)),
  },
  {
    id: 'snp.policy.abi',
    title: 'Guest policy: ABI version',
    source: 'attestation.md 8, 19.6',
    expected: 'at least the version in the manifest',
    judge: ({ report: { policy }, entry: { guestPolicy } }) => {
      const [major, minor] = [Number((policy >> 8n) & 0xffn), Number(policy & 0xffn)];
      const { abiMajor, abiMinor } = guestPolicy;
      return finding(
        major * 256 + minor >= abiMajor * 256 + abiMinor,
        `${major}.${minor}`,
        `at least ${abiMajor}.${abiMinor}`,
      );
    },
  },
  ...GUEST_POLICY_FLAGS.map((flag) =>
    flagRow('snp.policy', flag, ({ report, entry }) => ({
      value: report.policy,
      manifest: entry.guestPolicy[flag.key],
    })),
  ),
];

const PLATFORM_ROWS: readonly Row[] = [
  {
    id: 'snp.platform.form',
    title: 'Platform: reserved bits',
    source: 'attestation.md 6.3',
    expected: 'bit 6 and bits 63:8 clear',
    judge: ({ report: { platformInfo } }) =>
      finding((platformInfo & PLATFORM_RESERVED_ZERO) === 0n, bits(platformInfo)),
  },
  ...PLATFORM_INFO_FLAGS.map((flag) =>
    flagRow('snp.platform', flag, ({ report, entry }) => ({
      value: report.platformInfo,
      manifest: entry.platformInfo[flag.key],
    })),
  ),
];

export const POLICY_ROWS: readonly Row[] = [...LAUNCH_ROWS, ...GUEST_POLICY_ROWS, ...PLATFORM_ROWS];
