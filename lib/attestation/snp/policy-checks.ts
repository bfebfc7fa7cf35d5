/** What was launched, and how: measurement, ID key, guest policy, platform (docs/protocol/attestation.md 8, 13.5). */
import { finding, row } from '../check.ts';
import { idKeyDigest } from './id-key.ts';
import {
  type Flag,
  GUEST_POLICY_FLAGS,
  guestPolicyValue,
  PLATFORM_INFO_FLAGS,
  PLATFORM_RESERVED_ZERO,
  POLICY_RESERVED_ONE,
  POLICY_RESERVED_ZERO,
} from './packed-fields.ts';
import { bits, equalBytes, hex, type SnpRow, type SnpSubject } from './subject.ts';

const FAMILY_ID = `01${'00'.repeat(15)}`;
const IMAGE_ID = `02${'00'.repeat(15)}`;

const LAUNCH_ROWS: readonly SnpRow[] = [
  row(
    'snp.measurement',
    'Launch measurement',
    'attestation.md 8, 19.4',
    'the TrustedMeasurement, with APEIP for any number of vCPUs from 1 to 220',
    ({ report: { measurement }, vcpus }) =>
      finding(
        vcpus !== undefined,
        `${hex(measurement)}${typeof vcpus === 'number' ? ` (${vcpus} vCPUs)` : ''}`,
      ),
  ),
  row(
    'snp.id_key',
    'ID key',
    'attestation.md 5, 8',
    'the ID key digest that follows from measurement and guest policy',
    ({ report: { measurement, idKeyDigest: found }, entry, vcpus }) =>
      vcpus === undefined
        ? undefined
        : equalBytes(found, idKeyDigest(measurement, guestPolicyValue(entry.guestPolicy))),
  ),
  row(
    'snp.id_block',
    'ID block constants',
    'attestation.md 5, 13.5',
    'family id 01…, image id 02…, guest SVN 2',
    ({ report: { familyId, imageId, guestSvn } }) =>
      finding(
        hex(familyId) === FAMILY_ID && hex(imageId) === IMAGE_ID && guestSvn === 2,
        `family id ${hex(familyId)}, image id ${hex(imageId)}, guest SVN ${guestSvn}`,
      ),
  ),
  row('snp.vmpl', 'Privilege level', 'attestation.md 8', 'VMPL 0', ({ report: { vmpl } }) =>
    finding(vmpl === 0, `VMPL ${vmpl}`),
  ),
  row(
    'snp.migration_agent',
    'No migration agent',
    'attestation.md 13.5',
    'REPORT_ID_MA is all ones',
    ({ report: { reportIdMa } }) =>
      finding(
        reportIdMa.every((byte) => byte === 0xff),
        hex(reportIdMa),
      ),
  ),
];

/** A bit of the report against the manifest's member about it. */
function flagRow<Member extends string>(
  [prefix, title]: readonly [string, string],
  { bit, name, direction, member }: Flag<Member>,
  read: (subject: SnpSubject) => readonly [found: bigint, manifest: Readonly<Record<Member, boolean>>],
): SnpRow {
  const forbidden = direction === 'forbidden';
  return row(
    `${prefix}.${name.toLowerCase()}`,
    `${title}: ${name}`,
    'attestation.md 8',
    forbidden ? 'clear unless the manifest allows it' : 'set if the manifest asks for it',
    (subject) => {
      const [value, manifest] = read(subject);
      const set = ((value >> BigInt(bit)) & 1n) === 1n;
      if (manifest[member] === forbidden) return finding(true, set ? 'set' : 'clear', 'either');
      return finding(set !== forbidden, set ? 'set' : 'clear', forbidden ? 'clear' : 'set');
    },
  );
}

const GUEST_POLICY_ROWS: readonly SnpRow[] = [
  row(
    'snp.policy.form',
    'Guest policy: reserved bits',
    'attestation.md 6.3',
    'bit 17 set, bits 63:26 clear',
    ({ report: { policy } }) =>
      finding((policy & POLICY_RESERVED_ONE) !== 0n && (policy & POLICY_RESERVED_ZERO) === 0n, bits(policy)),
  ),
  row(
    'snp.policy.abi',
    'Guest policy: ABI version',
    'attestation.md 8, 19.6',
    'at least the version in the manifest',
    ({ report: { policy }, entry }) => {
      const [major, minor] = [Number((policy >> 8n) & 0xffn), Number(policy & 0xffn)];
      const { ABIMajor, ABIMinor } = entry.guestPolicy;
      const holds = major * 256 + minor >= ABIMajor * 256 + ABIMinor;
      return finding(holds, `${major}.${minor}`, `at least ${ABIMajor}.${ABIMinor}`);
    },
  ),
  ...GUEST_POLICY_FLAGS.map((flag) =>
    flagRow(['snp.policy', 'Guest policy'], flag, ({ report, entry }) => [report.policy, entry.guestPolicy]),
  ),
];

const PLATFORM_ROWS: readonly SnpRow[] = [
  row(
    'snp.platform.form',
    'Platform: reserved bits',
    'attestation.md 6.3',
    'bit 6 and bits 63:8 clear',
    ({ report: { platformInfo } }) =>
      finding((platformInfo & PLATFORM_RESERVED_ZERO) === 0n, bits(platformInfo)),
  ),
  ...PLATFORM_INFO_FLAGS.map((flag) =>
    flagRow(['snp.platform', 'Platform'], flag, ({ report, entry }) => [
      report.platformInfo,
      entry.platformInfo,
    ]),
  ),
];

export const POLICY_ROWS: readonly SnpRow[] = [...LAUNCH_ROWS, ...GUEST_POLICY_ROWS, ...PLATFORM_ROWS];
