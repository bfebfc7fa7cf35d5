/**
 * Compares the launched guest with one reference value of the manifest: product line, measurement, ID key,
 * guest policy, platform, firmware and chip (docs/protocol/attestation.md 8, 13.5). All checks compare values
 * of the report, and no check reads or fetches anything.
 */
import { constantTimeEqual } from '#crypto';
import { finding, hex, notApplicable, oneOf, type Rows, row } from '../check.ts';
import type { SnpReferenceValues } from '../manifest.ts';
import { acceptedMeasurements, idKeyDigest } from './launch-digest.ts';
import * as packed from './packed-fields.ts';
import type { SnpReport } from './report.ts';

export interface PolicySubject {
  readonly report: SnpReport;
  /** The stepping of the CPU, which the evidence message may state outside the report. */
  readonly machineStepping: number | undefined;
  readonly entry: SnpReferenceValues;
  /** The facts in the VCEK. If no VCEK is known yet, `signer` is undefined, and the checks assume a match. */
  readonly signer: { readonly product: packed.Product; readonly productName: string } | undefined;
  readonly coordinatorHashes: readonly Uint8Array[];
}

const FAMILY_ID = `01${'00'.repeat(15)}`;
const IMAGE_ID = `02${'00'.repeat(15)}`;

const bits = (value: bigint): string => `0x${value.toString(16)}`;

/** Makes one check for each flag, which is a bit of the report that the manifest allows or demands. */
function flagRows(
  prefix: string,
  title: string,
  flags: readonly packed.BitFlag[],
  field: 'policy' | 'platformInfo',
  member: 'guestPolicy' | 'platformInfo',
): Rows<PolicySubject> {
  return flags.map(({ bit, name, direction, member: flag }) => {
    const forbidden = direction === 'forbidden';
    return row(`${prefix}.${name.toLowerCase()}`, `${title}: ${name}`, '8', {
      expected: forbidden ? 'clear unless the manifest allows it' : 'set if the manifest asks for it',
      judge: ({ report, entry }) => {
        const manifest: Readonly<Record<string, unknown>> = entry[member];
        const set = ((report[field] >> BigInt(bit)) & 1n) === 1n;
        if (manifest[flag] === forbidden) return finding(true, set ? 'set' : 'clear', 'either');
        return finding(set !== forbidden, set ? 'set' : 'clear', forbidden ? 'clear' : 'set');
      },
    });
  });
}

/** Judges the product of a version 2 report by its VCEK, and by the stepping if the message states one. */
function judgeProductByVcek(productName: string | undefined, product: packed.Product, stepping?: number) {
  const all = packed.PRODUCTS[product].steppings.map((digit) => `${product}-B${digit}`);
  const expected = all.filter((name) => stepping === undefined || name === `${product}-B${stepping}`);
  const holds = productName === undefined || expected.includes(productName);
  const stated = stepping === undefined ? '' : `, stepping ${stepping}`;
  return finding(holds, `${productName} by the VCEK${stated}`, all.join(' or '));
}

const minimumTcb = (which: 'reported' | 'launch' | 'committed', title: string, section: string) =>
  row<PolicySubject>(`snp.tcb.${which}`, title, section, {
    expected: 'every part at least the MinimumTCB of the manifest',
    judge: ({ report, entry: { minimumTcb } }) => {
      const found = packed.tcbParts(report[`${which}Tcb`]);
      const holds = packed.tcbAtMost(minimumTcb, found);
      return finding(holds, packed.tcbText(found), `at least ${packed.tcbText(minimumTcb)}`);
    },
  });

const minimumMitigations = (which: 'launch' | 'current', title: string) =>
  row<PolicySubject>(`snp.mitigation.${which}`, title, '8', {
    expected: 'every bit of MinimumMitigationVector is set',
    judge: ({ report, entry: { minimumMitigationVector: minimum } }) => {
      const found = report[`${which}MitVector`];
      return finding((found & minimum) === minimum, bits(found), `all of ${bits(minimum)}`);
    },
  });

export const POLICY_ROWS: Rows<PolicySubject> = [
  row('snp.host_data', 'Host data', '4.3, 19.12 rule 11', {
    expected: 'the policy hash of a coordinator entry of the manifest',
    judge: ({ report: { hostData }, coordinatorHashes }) => oneOf(hostData, coordinatorHashes),
  }),
  row('snp.report.author_key', 'No author key', '13.5', {
    expected: 'AUTHOR_KEY_EN is 0',
    judge: ({ report: { signerInfo } }) => finding((signerInfo & 1) === 0, `${signerInfo & 1}`),
  }),
  row('snp.product', 'Processor product line', '7', {
    expected: 'the ProductName of the reference value, by root and report',
    judge: ({ report: { version, cpuid1EaxFms }, machineStepping, entry: { product }, signer }) => {
      if (signer !== undefined && signer.product !== product) return finding(false, signer.product, product);
      if (version < 3) return judgeProductByVcek(signer?.productName, product, machineStepping);
      const found = packed.productOf(cpuid1EaxFms) ?? 'unknown';
      return finding(found === product, found, product);
    },
  }),
  row('snp.measurement', 'Launch measurement', '8, 19.4', {
    expected: 'the TrustedMeasurement, with APEIP for any number of vCPUs from 1 to 220',
    judge: ({ report: { measurement }, entry }) => {
      const accepted = acceptedMeasurements(entry);
      const index = accepted.findIndex((each) => constantTimeEqual(each, measurement));
      const size = index < 0 || entry.apeip === undefined ? '' : ` (${index + 1} vCPUs)`;
      return finding(index >= 0, `${hex(measurement)}${size}`);
    },
  }),
  row('snp.id_key', 'ID key', '5, 8', {
    expected: 'the ID key digest that follows from measurement and guest policy',
    judge: ({ report: { measurement, idKeyDigest: found }, entry: { guestPolicy } }) =>
      oneOf(found, [idKeyDigest(measurement, packed.guestPolicyValue(guestPolicy))]),
  }),
  row('snp.id_block', 'ID block constants', '5, 13.5', {
    expected: 'family id 01…, image id 02…, guest SVN 2',
    judge: ({ report: { familyId, imageId, guestSvn } }) =>
      finding(
        hex(familyId) === FAMILY_ID && hex(imageId) === IMAGE_ID && guestSvn === 2,
        `family id ${hex(familyId)}, image id ${hex(imageId)}, guest SVN ${guestSvn}`,
      ),
  }),
  row('snp.vmpl', 'Privilege level', '8', {
    expected: 'VMPL 0',
    judge: ({ report: { vmpl } }) => finding(vmpl === 0, `VMPL ${vmpl}`),
  }),
  row('snp.migration_agent', 'No migration agent', '13.5', {
    expected: 'REPORT_ID_MA is all ones',
    judge: ({ report: { reportIdMa } }) => finding(/^f+$/.test(hex(reportIdMa)), hex(reportIdMa)),
  }),
  row('snp.policy.form', 'Guest policy: reserved bits', '6.3', {
    expected: 'bit 17 set, bits 63:26 clear',
    judge: ({ report: { policy } }) =>
      finding((policy & packed.POLICY_RESERVED_ONE) !== 0n && policy >> 26n === 0n, bits(policy)),
  }),
  row('snp.policy.abi', 'Guest policy: ABI version', '8, 19.6', {
    expected: 'at least the version in the manifest',
    judge: ({ report: { policy }, entry }) => {
      const [major, minor] = [Number((policy >> 8n) & 0xffn), Number(policy & 0xffn)];
      const { ABIMajor, ABIMinor } = entry.guestPolicy;
      const holds = major * 256 + minor >= ABIMajor * 256 + ABIMinor;
      return finding(holds, `${major}.${minor}`, `at least ${ABIMajor}.${ABIMinor}`);
    },
  }),
  ...flagRows('snp.policy', 'Guest policy', packed.POLICY_FLAGS, 'policy', 'guestPolicy'),
  row('snp.platform.form', 'Platform: reserved bits', '6.3', {
    expected: 'bit 6 and bits 63:8 clear',
    judge: ({ report: { platformInfo } }) =>
      finding(platformInfo >> 8n === 0n && (platformInfo & 0x40n) === 0n, bits(platformInfo)),
  }),
  ...flagRows('snp.platform', 'Platform', packed.PLATFORM_INFO_FLAGS, 'platformInfo', 'platformInfo'),
  minimumTcb('reported', 'Reported TCB', '8'),
  minimumTcb('launch', 'Launch TCB', '8'),
  minimumTcb('committed', 'Committed TCB', '13.5'),
  row('snp.firmware.tcb', 'Committed and current TCB', '8', {
    expected: 'COMMITTED_TCB is at most CURRENT_TCB in every part',
    judge: ({ report }) => {
      const [committed, current] = [packed.tcbParts(report.committedTcb), packed.tcbParts(report.currentTcb)];
      const holds = packed.tcbAtMost(committed, current);
      return finding(holds, packed.tcbText(committed), `at most ${packed.tcbText(current)}`);
    },
  }),
  row('snp.firmware.version', 'Committed and current firmware', '8', {
    expected: 'committed build and version are at most the current ones',
    judge: ({ report }) => {
      const { committedMajor, committedMinor, committedBuild } = report;
      const { currentMajor, currentMinor, currentBuild } = report;
      const isAtMost = committedMajor * 256 + committedMinor <= currentMajor * 256 + currentMinor;
      const holds = isAtMost && committedBuild <= currentBuild;
      const found = `${committedMajor}.${committedMinor} build ${committedBuild}`;
      return finding(holds, found, `at most ${currentMajor}.${currentMinor} build ${currentBuild}`);
    },
  }),
  minimumMitigations('launch', 'Mitigations at launch'),
  minimumMitigations('current', 'Current mitigations'),
  row('snp.chip_id.allowed', 'Allowed chips', '8', {
    expected: 'one of AllowedChipIDs, where the manifest lists any',
    conditional: true,
    judge: ({ report: { chipId }, entry: { allowedChipIds: allowed } }) => {
      if (allowed.length === 0) return notApplicable('the manifest allows any chip');
      return { ...oneOf(chipId, allowed), expected: `one of ${allowed.length} chips` };
    },
  }),
];
