/**
 * Real reports of AMD processors with their real VCEKs, under the production roots
 * (docs/protocol/attestation.md 7).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Check, Checks } from '../../../lib/attestation/check.ts';
import { currentList } from '../../../lib/attestation/collateral.ts';
import type { SnpReferenceValues } from '../../../lib/attestation/manifest.ts';
import { PRODUCTION_ROOTS } from '../../../lib/attestation/roots/production.ts';
import { CRL_ROWS, obtainArkCrl, readRoots } from '../../../lib/attestation/snp/endorsement.ts';
import { tcbParts } from '../../../lib/attestation/snp/packed-fields.ts';
import type { SnpReport } from '../../../lib/attestation/snp/report.ts';
import type { SnpEvidence } from '../../../lib/attestation/snp/verify-snp.ts';
import { parseCertificate, parseCrl, sameName, verifySignedBy } from '../../../lib/attestation/x509.ts';
import { decodeOneCertificate } from '../../../lib/crypto/der.ts';
import { OFFLINE, vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { parseReport } from '../../support/evidence/snp-report.ts';
import { judgeSnp } from '../../support/evidence/stages.ts';

interface Row {
  readonly report: string;
  readonly endorsement_key: string;
  readonly product_line: 'Milan' | 'Genoa';
  readonly evaluate_at: string;
}
const ROWS = vectorJson<Row[]>('snp/index.json');
const row = (name: string): Row => ROWS.find(({ report }) => report.startsWith(name)) as Row;

interface Options {
  readonly now?: string;
  readonly product?: 'Milan' | 'Genoa';
  readonly key?: string;
  readonly entry?: (own: SnpReferenceValues) => SnpReferenceValues;
  /** Flips this bit of the report. */
  readonly flip?: { readonly byte: number; readonly bit: number };
}

/**
 * A reference value made from the report itself, so that only the chain and the signature are in question.
 */
function ownReferenceValue(bytes: Uint8Array, product: 'Milan' | 'Genoa'): SnpReferenceValues {
  const report = parseReport(bytes);
  const flags = { SMT: true, MigrateMA: true, Debug: true, CXLAllowed: true };
  return {
    product,
    trustedMeasurement: report.measurement,
    apeip: undefined,
    minimumTcb: tcbParts(report.reportedTcb),
    guestPolicy: {
      ...{ ABIMajor: 0, ABIMinor: 0, SingleSocket: false, MemAES256XTS: false, RAPLDis: false },
      ...{ CipherTextHidingDRAM: false, PageSwapDisable: false },
      ...flags,
    },
    platformInfo: {
      ...{ SMTEnabled: true, TSMEEnabled: true, TIOEnabled: true, ECCEnabled: false, RAPLDisabled: false },
      ...{ CiphertextHidingDRAMEnabled: false, AliasCheckComplete: false },
    },
    minimumMitigationVector: 0n,
    allowedChipIds: [],
  };
}

const evidence = (
  report: SnpReport,
  vcek: Uint8Array,
  entry: SnpReferenceValues,
  now: string,
): SnpEvidence => ({
  message: { report, vcek, arkCrl: undefined, machineStepping: undefined },
  entries: [entry],
  context: {
    ...{ expectedReportData: report.reportData, coordinatorHashes: [report.hostData] },
    ...{ roots: PRODUCTION_ROOTS, collateral: OFFLINE, now: new Date(now) },
  },
});

async function judge({ report, endorsement_key, product_line, evaluate_at }: Row, options: Options = {}) {
  const bytes = vectorBytes(`snp/${report}`);
  const entry = ownReferenceValue(bytes, options.product ?? product_line);
  const { flip } = options;
  if (flip) bytes[flip.byte] = (bytes[flip.byte] as number) ^ (1 << flip.bit);
  const parsed = parseReport(bytes);
  const isVlek = endorsement_key.endsWith('vlek.der');
  const certificate = vectorBytes(`snp/${options.key ?? endorsement_key}`);
  const vcek = isVlek ? new Uint8Array() : certificate;
  const now = options.now ?? evaluate_at;
  const checks = await judgeSnp(evidence(parsed, vcek, options.entry?.(entry) ?? entry, now));
  return new Map(checks.map((check: Check) => [check.id, check.outcome]));
}

const CHAIN = ['snp.vcek.form', 'snp.vcek.names', 'snp.vcek.extensions', 'snp.roots', 'snp.chain.signature'];
const EVIDENCE = [...CHAIN, 'snp.chain.validity', 'snp.report.signature', 'snp.tcb.vcek', 'snp.chip_id.vcek'];

describe('real SEV-SNP reports', () => {
  const signedByVcek = ROWS.filter(({ endorsement_key }) => endorsement_key.endsWith('vcek.der'));

  it('chain to the production roots, with a valid signature and the TCB and chip id of their VCEK', async () => {
    assert.equal(signedByVcek.length, 7);
    for (const each of signedByVcek) {
      const outcomes = await judge(each);
      for (const id of EVIDENCE) assert.equal(outcomes.get(id), 'pass', `${each.report} ${id}`);
      assert.equal(outcomes.get('snp.product'), 'pass', each.report);
    }
  });

  it('are not accepted without a revocation list', async () => {
    // Nobody is asked for it: the report fails other checks, since it is not from a Contrast guest.
    const outcomes = await judge(row('genoa_v3_azure'));
    assert.equal(outcomes.get('snp.crl.available'), 'not-evaluated');
  });

  it('do not verify after one flipped bit', async () => {
    const milan = row('milan_v2_virtee');
    assert.equal((await judge(milan, { flip: { byte: 21, bit: 7 } })).get('snp.report.signature'), 'fail');
    for (const byte of [0x90, 0x29f - 0x98, 0x2a0, 0x2e8]) {
      const outcomes = await judge(row('genoa_v3_tinfoil'), { flip: { byte, bit: 0 } });
      assert.equal(outcomes.get('snp.report.signature'), 'fail', byte.toString(16));
    }
  });

  it('are refused if they come from Milan and Genoa is required, and the other way round', async () => {
    for (const each of ['milan_v3_azure_a', 'milan_v3_azure_b', 'genoa_v3_azure'].map(row)) {
      const product = each.product_line === 'Milan' ? 'Genoa' : 'Milan';
      const outcomes = await judge(each, { product });
      assert.equal(outcomes.get('snp.chain.signature'), 'pass', each.report);
      assert.equal(outcomes.get('snp.product'), 'fail', each.report);
    }
  });

  it('of version 2 take the product line from the VCEK', async () => {
    assert.equal((await judge(row('milan_v2_virtee'))).get('snp.product'), 'pass');
    assert.equal((await judge(row('milan_v2_virtee'), { product: 'Genoa' })).get('snp.product'), 'fail');
  });

  it('are refused before the VCEK is valid', async () => {
    const outcomes = await judge(row('genoa_v3_tinfoil'), { now: '2026-01-10T00:00:00Z' });
    assert.equal(outcomes.get('snp.chain.validity'), 'fail');
    assert.equal(outcomes.get('snp.report.signature'), 'pass');
  });

  it('are refused with the VCEK of another chip, an altered one, or one of Turin', async () => {
    const genoa = row('genoa_v3_tinfoil');
    const foreign = await judge(genoa, { key: 'genoa_v3_azure_vcek.der' });
    assert.equal(foreign.get('snp.chain.signature'), 'pass');
    assert.equal(foreign.get('snp.report.signature'), 'fail');
    assert.equal(foreign.get('snp.chip_id.vcek'), 'fail');
    for (const key of ['milan_trustee_vcek_invalid_legacy.der', 'milan_trustee_vcek_invalid_new.der']) {
      const altered = await judge(row('milan_v2_trustee'), { key });
      assert.equal(altered.get('snp.chain.signature'), 'fail', key);
    }
    const turin = await judge(genoa, { key: 'turin_virtee_vcek.der' });
    assert.equal(turin.get('snp.vcek.extensions'), 'fail');
  });

  it('fail snp.policy.debug with the DEBUG bit, which no manifest can allow', async () => {
    const debug = row('milan_v2_gosevguest');
    const bytes = vectorBytes(`snp/${debug.report}`);
    assert.equal((parseReport(bytes).policy >> 19n) & 1n, 1n);
    const entry = (own: SnpReferenceValues): SnpReferenceValues => ({
      ...own,
      guestPolicy: { ...own.guestPolicy, Debug: false },
    });
    assert.equal((await judge(debug, { entry })).get('snp.policy.debug'), 'fail');
  });

  it('are refused if a VLEK signed them, since there is no root for it (docs/protocol/attestation.md 7)', async () => {
    const outcomes = await judge(row('milan_v3_trustee_vlek'));
    assert.equal(outcomes.get('snp.report.signing_key'), 'fail');
    assert.equal(outcomes.get('snp.vcek.available'), 'not-evaluated');
    assert.equal(outcomes.get('snp.report.signature'), 'not-evaluated');
  });
});

describe("AMD's own revocation list", () => {
  for (const [product, file, number] of [
    ['Genoa', 'real-amd/genoa.crl', '0a'],
    ['Milan', 'real-amd/milan.crl', '0b'],
  ] as const) {
    it(`for ${product} is signed by the pinned ARK, is current between its dates, and does not list the ASK`, async () => {
      const crl = parseCrl(vectorBytes(file));
      const pair = PRODUCTION_ROOTS.snp[product];
      assert.ok(pair !== undefined);
      const [ark, ask] = [pair.ark, pair.ask].map((pem) => parseCertificate(decodeOneCertificate(pem)));
      assert.ok(ark !== undefined && ask !== undefined);
      assert.ok(sameName(crl.issuer, ark.subject));
      assert.ok(await verifySignedBy(crl, ark));
      assert.ok(!(await verifySignedBy(crl, ask)));
      assert.equal(crl.crlNumber, number);
      assert.ok(!crl.revoked.has(ask.serial));
      for (const [at, expected] of [
        ['2026-08-18T00:00:00Z', 'fail'],
        ['2026-08-20T00:00:00Z', 'pass'],
        ['2026-10-03T00:00:00Z', 'pass'],
        ['2026-10-05T00:00:00Z', 'fail'],
      ] as const) {
        assert.equal(currentList(crl, new Date(at)).outcome, expected, at);
      }
    });
  }
});

describe('a real report of version 5', () => {
  const bytes = vectorBytes('real-amd/genoa_v5.bin');
  const judgeAt = (now: string): Promise<readonly Check[]> => {
    const report = parseReport(bytes);
    const vcek = vectorBytes('real-amd/genoa_v5_vcek.der');
    return judgeSnp(evidence(report, vcek, ownReferenceValue(bytes, 'Genoa'), now));
  };
  const failed = (checks: readonly Check[]): string[] =>
    checks.flatMap(({ id, outcome }) => (outcome === 'pass' || outcome === 'not-applicable' ? [] : [id]));

  it('passes every check except snp.id_key and snp.id_block, since it is not from a Contrast guest', async () => {
    const { version, currentMajor, currentMinor, currentBuild } = parseReport(bytes);
    assert.deepEqual([version, currentMajor, currentMinor, currentBuild], [5, 1, 55, 49]);
    const checks = await judgeAt('2026-09-15T00:00:00Z');
    assert.deepEqual(failed(checks).slice(0, 2), ['snp.id_key', 'snp.id_block']);
  });

  it('needs a current revocation list of its own product line', async () => {
    const roots = readRoots(PRODUCTION_ROOTS, 'Genoa');
    const judgeList = async (day: string, list: string): Promise<readonly string[]> => {
      const [checks, now] = [new Checks(CRL_ROWS), new Date(`${day}T00:00:00Z`)];
      const arkCrl = await checks.read('snp.crl.available', () =>
        obtainArkCrl(vectorBytes(list), now, () => OFFLINE.amdCrl({ product: 'Genoa' })),
      );
      if (arkCrl) await checks.run(CRL_ROWS, { arkCrl, roots, now });
      return checks.of(CRL_ROWS).flatMap(({ id, outcome }) => (outcome === 'fail' ? id : []));
    };
    assert.deepEqual(await judgeList('2026-09-15', 'real-amd/genoa.crl'), []);
    assert.deepEqual(await judgeList('2026-09-15', 'real-amd/milan.crl'), ['snp.crl.signature']);
    for (const day of ['2026-10-05', '2026-08-18'])
      assert.deepEqual(await judgeList(day, 'real-amd/genoa.crl'), ['snp.crl.available']);
  });
});
