/**
 * Checks what was launched, and how: measurement, ID key, guest policy, platform
 * (docs/protocol/attestation.md 8, 13.5).
 */
import { type Finding, finding, hex, oneOf, rowsFrom } from '../check.ts';
import { idKeyDigest } from './launch-digest.ts';
import {
  type BitFlag,
  bits,
  GUEST_POLICY_FLAGS,
  guestPolicyValue,
  PLATFORM_INFO_FLAGS,
  PLATFORM_RESERVED_ZERO,
  POLICY_RESERVED_ONE,
  POLICY_RESERVED_ZERO,
} from './packed-fields.ts';
import type { SnpSubject } from './vcek.ts';

const FAMILY_ID = `01${'00'.repeat(15)}`;
const IMAGE_ID = `02${'00'.repeat(15)}`;

/** One check for each flag: a bit of the report that the manifest allows or asks for. */
function flagRows<Member extends string>(
  prefix: string,
  title: string,
  flags: readonly BitFlag<Member>[],
  read: (subject: SnpSubject) => readonly [found: bigint, manifest: Readonly<Record<Member, boolean>>],
) {
  const rows = flags.map(({ bit, name, direction, member }) => {
    const forbidden = direction === 'forbidden';
    const expected = forbidden ? 'clear unless the manifest allows it' : 'set if the manifest asks for it';
    const judge = (subject: SnpSubject): Finding => {
      const [value, manifest] = read(subject);
      const set = ((value >> BigInt(bit)) & 1n) === 1n;
      if (manifest[member] === forbidden) return finding(true, set ? 'set' : 'clear', 'either');
      return finding(set !== forbidden, set ? 'set' : 'clear', forbidden ? 'clear' : 'set');
    };
    return [`${prefix}.${name.toLowerCase()}`, { title: `${title}: ${name}`, expected, judge }] as const;
  });
  return Object.fromEntries(rows);
}

export const POLICY_ROWS = rowsFrom<SnpSubject>('attestation.md 8', {
  'snp.measurement': {
    title: 'Launch measurement',
    source: 'attestation.md 8, 19.4',
    expected: 'the TrustedMeasurement, with APEIP for any number of vCPUs from 1 to 220',
    judge: ({ report: { measurement }, vcpus }) =>
      finding(
        vcpus !== undefined,
        `${hex(measurement)}${typeof vcpus === 'number' ? ` (${vcpus} vCPUs)` : ''}`,
      ),
  },
  'snp.id_key': {
    title: 'ID key',
    source: 'attestation.md 5, 8',
    expected: 'the ID key digest that follows from measurement and guest policy',
    judge: ({ report: { measurement, idKeyDigest: found }, entry, vcpus }) =>
      vcpus === undefined
        ? undefined
        : oneOf(found, [idKeyDigest(measurement, guestPolicyValue(entry.guestPolicy))]),
  },
  'snp.id_block': {
    title: 'ID block constants',
    source: 'attestation.md 5, 13.5',
    expected: 'family id 01…, image id 02…, guest SVN 2',
    judge: ({ report: { familyId, imageId, guestSvn } }) =>
      finding(
        hex(familyId) === FAMILY_ID && hex(imageId) === IMAGE_ID && guestSvn === 2,
        `family id ${hex(familyId)}, image id ${hex(imageId)}, guest SVN ${guestSvn}`,
      ),
  },
  'snp.vmpl': {
    title: 'Privilege level',
    expected: 'VMPL 0',
    judge: ({ report: { vmpl } }) => finding(vmpl === 0, `VMPL ${vmpl}`),
  },
  'snp.migration_agent': {
    title: 'No migration agent',
    source: 'attestation.md 13.5',
    expected: 'REPORT_ID_MA is all ones',
    judge: ({ report: { reportIdMa } }) => finding(/^f+$/.test(hex(reportIdMa)), hex(reportIdMa)),
  },
  'snp.policy.form': {
    title: 'Guest policy: reserved bits',
    source: 'attestation.md 6.3',
    expected: 'bit 17 set, bits 63:26 clear',
    judge: ({ report: { policy } }) =>
      finding((policy & POLICY_RESERVED_ONE) !== 0n && (policy & POLICY_RESERVED_ZERO) === 0n, bits(policy)),
  },
  'snp.policy.abi': {
    title: 'Guest policy: ABI version',
    source: 'attestation.md 8, 19.6',
    expected: 'at least the version in the manifest',
    judge: ({ report: { policy }, entry }) => {
      const [major, minor] = [Number((policy >> 8n) & 0xffn), Number(policy & 0xffn)];
      const { ABIMajor, ABIMinor } = entry.guestPolicy;
      const holds = major * 256 + minor >= ABIMajor * 256 + ABIMinor;
      return finding(holds, `${major}.${minor}`, `at least ${ABIMajor}.${ABIMinor}`);
    },
  },
  ...flagRows('snp.policy', 'Guest policy', GUEST_POLICY_FLAGS, ({ report, entry }) => [
    report.policy,
    entry.guestPolicy,
  ]),
  'snp.platform.form': {
    title: 'Platform: reserved bits',
    source: 'attestation.md 6.3',
    expected: 'bit 6 and bits 63:8 clear',
    judge: ({ report: { platformInfo } }) =>
      finding((platformInfo & PLATFORM_RESERVED_ZERO) === 0n, bits(platformInfo)),
  },
  ...flagRows('snp.platform', 'Platform', PLATFORM_INFO_FLAGS, ({ report, entry }) => [
    report.platformInfo,
    entry.platformInfo,
  ]),
});
