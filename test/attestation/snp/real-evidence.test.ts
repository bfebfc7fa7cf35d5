/**
 * Real reports of AMD processors with their real VCEKs, under the production roots
 * (docs/protocol/attestation.md 7).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Check, Checks } from '../../../lib/attestation/check.ts';
import { PRODUCTION_ROOTS } from '../../../lib/attestation/roots/production.ts';
import { CRL_ROWS, obtainArkCrl, readRoots } from '../../../lib/attestation/snp/endorsement.ts';
import {
  type BitFlag,
  type Flags,
  PLATFORM_INFO_FLAGS,
  POLICY_FLAGS,
  type Product,
  tcbParts,
} from '../../../lib/attestation/snp/packed-fields.ts';
import { OFFLINE, vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { parseReport } from '../../support/evidence/snp-report.ts';
import { judgeSnp } from '../../support/evidence/stages.ts';

interface Row {
  readonly report: string;
  readonly endorsement_key: string;
  readonly product_line: Product;
  readonly evaluate_at: string;
}
const ROWS = vectorJson<Row[]>('snp/index.json');

/** Flags that allow everything and ask for nothing. */
const permissive = <Table extends readonly BitFlag[]>(table: Table) =>
  Object.fromEntries(
    table.map(({ member, direction }) => [member, direction === 'forbidden']),
  ) as Flags<Table>;

/**
 * The checks of a report by a reference value that is made from itself, so that only the chain and the
 * signature are in question.
 */
function judgeByItself(
  bytes: Uint8Array,
  product: Product,
  vcek: Uint8Array,
  now: string,
): Promise<readonly Check[]> {
  const report = parseReport(bytes);
  const entry = {
    ...{ product, trustedMeasurement: report.measurement, apeip: undefined },
    minimumTcb: tcbParts(report.reportedTcb),
    guestPolicy: { ABIMajor: 0, ABIMinor: 0, ...permissive(POLICY_FLAGS) },
    platformInfo: permissive(PLATFORM_INFO_FLAGS),
    ...{ minimumMitigationVector: 0n, allowedChipIds: [] },
  };
  return judgeSnp({
    message: { report, vcek, arkCrl: undefined, machineStepping: undefined },
    entries: [entry],
    context: {
      ...{ expectedReportData: report.reportData, coordinatorHashes: [report.hostData] },
      ...{ roots: PRODUCTION_ROOTS, collateral: OFFLINE, now: new Date(now) },
    },
  });
}

const CHAIN = ['snp.vcek.form', 'snp.vcek.names', 'snp.vcek.extensions', 'snp.roots', 'snp.chain.signature'];
const EVIDENCE = [...CHAIN, 'snp.chain.validity', 'snp.report.signature', 'snp.tcb.vcek', 'snp.chip_id.vcek'];

describe('real SEV-SNP reports', () => {
  const signedByVcek = ROWS.filter(({ endorsement_key }) => endorsement_key.endsWith('vcek.der'));

  it('chain to the production roots, with a valid signature and the TCB and chip id of their VCEK', async () => {
    assert.equal(signedByVcek.length, 7);
    for (const each of signedByVcek) {
      const [bytes, vcek] = [vectorBytes(`snp/${each.report}`), vectorBytes(`snp/${each.endorsement_key}`)];
      const checks = await judgeByItself(bytes, each.product_line, vcek, each.evaluate_at);
      const outcomes = new Map(checks.map(({ id, outcome }) => [id, outcome]));
      for (const id of EVIDENCE) assert.equal(outcomes.get(id), 'pass', `${each.report} ${id}`);
      assert.equal(outcomes.get('snp.product'), 'pass', each.report);
    }
  });
});

describe('a real report of version 5', () => {
  it('passes every check except snp.id_key and snp.id_block, since it is not from a Contrast guest', async () => {
    const bytes = vectorBytes('real-amd/genoa_v5.bin');
    const { version, currentMajor, currentMinor, currentBuild } = parseReport(bytes);
    assert.deepEqual([version, currentMajor, currentMinor, currentBuild], [5, 1, 55, 49]);
    const vcek = vectorBytes('real-amd/genoa_v5_vcek.der');
    const checks = await judgeByItself(bytes, 'Genoa', vcek, '2026-09-15T00:00:00Z');
    const failed = checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);
    assert.deepEqual(failed, ['snp.id_key', 'snp.id_block']);
  });
});

describe("AMD's own revocation list", () => {
  it('is accepted while it is in force', async () => {
    const failed = async (product: Product, day: string): Promise<string[]> => {
      const crl = vectorBytes(`real-amd/${product.toLowerCase()}.crl`);
      const roots = readRoots(PRODUCTION_ROOTS, product);
      const [checks, now] = [new Checks(CRL_ROWS), new Date(`${day}T00:00:00Z`)];
      const arkCrl = await checks.read('snp.crl.available', () =>
        obtainArkCrl(crl, now, () => OFFLINE.amdCrl({ product })),
      );
      if (arkCrl) await checks.run(CRL_ROWS, { arkCrl, roots, now });
      return checks.of(CRL_ROWS).flatMap(({ id, outcome }) => (outcome === 'fail' ? [id] : []));
    };
    for (const product of ['Genoa', 'Milan'] as const) {
      assert.deepEqual(await failed(product, '2026-09-15'), []);
      assert.deepEqual(await failed(product, '2026-10-05'), ['snp.crl.available']);
    }
  });
});
