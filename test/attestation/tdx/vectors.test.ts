import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted, type Check } from '../../../lib/attestation/check.ts';
import { currentList, type EvidenceContext } from '../../../lib/attestation/collateral.ts';
import type { TdxReferenceValues } from '../../../lib/attestation/manifest.ts';
import { readPckChain } from '../../../lib/attestation/tdx/chain.ts';
import { decodeQuoteV4, type QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { readSignedJson, readTcbInfo } from '../../../lib/attestation/tdx/tcb-info.ts';
import { verify } from '../../../lib/attestation/verify-evidence.ts';
import { parseCrl, verifySignedBy } from '../../../lib/attestation/x509.ts';
import { encodeQuoteV4 } from '../../../simulator/evidence/messages.ts';
import { vectorBytes, vectorText } from '../../support/evidence/attestation-vectors.ts';
import { failed } from '../../support/evidence/cases.ts';
import { judgeTdx, TDX_ROWS } from '../../support/evidence/stages.ts';
import { parseQuote } from '../../support/evidence/tdx-binary-quote.ts';
import {
  collateralSource,
  INTEL_ROOT,
  type StoredCollateral,
  storedCollateral,
  syntheticInput,
  syntheticVariants,
  variantInput,
} from '../../support/evidence/tdx-vectors.ts';

describe('verification of the synthetic TDX deployment', () => {
  it('accepts the honest evidence', async () => {
    const verdict = await verify(syntheticInput());
    assert.deepEqual(failed(verdict.checks), []);
    assert.deepEqual([verdict.outcome, verdict.tee], ['accepted', 'tdx']);
    assert.equal(verdict.meshCaPem, vectorText('synthetic_tdx/mesh_ca.pem'));
  });

  it('rejects each variant that upstream rejects, and one more: an old platform under a new module', async () => {
    const accepted: string[] = [];
    for (const { file, upstream } of syntheticVariants()) {
      const { outcome, failure, meshCaPem } = await verify(variantInput(file));
      if (outcome !== 'accepted') assert.deepEqual([failure?.outcome, meshCaPem], ['fail', undefined], file);
      else accepted.push(`${file} as ${upstream}`);
    }
    // Upstream looks at the level of the module only (docs/protocol/attestation.md 13.3).
    assert.deepEqual(accepted, ['chain_trailing_nul_ok.json as accept']);
    const old = await verify(variantInput('platform_outofdate_module_ok.json'));
    assert.deepEqual(failed(old.checks), ['tdx.tcb.platform_status']);
  });
});

/** A reference value that is what the quote says, so that only what is not policy can fail. */
const matching = (quote: QuoteV4): TdxReferenceValues => ({
  minTcbEvaluationDataNumber: 0,
  mrTd: quote.tdQuoteBody.mrTd,
  mrSeam: quote.tdQuoteBody.mrSeam,
  rtmrs: quote.tdQuoteBody.rtmrs as unknown as TdxReferenceValues['rtmrs'],
  rtmr0Alternatives: [],
  xfam: quote.tdQuoteBody.xfam,
  allowedPiids: [],
  memoryIntegrity: false,
  smtDisabled: false,
  staticPlatform: false,
});

const judgeReal = async (
  quote: QuoteV4,
  stored: StoredCollateral,
  date: string,
): Promise<readonly Check[]> => {
  const { reportData, mrConfigId } = quote.tdQuoteBody;
  const context: EvidenceContext = {
    expectedReportData: reportData,
    coordinatorHashes: [mrConfigId.subarray(0, 32)],
    roots: { snp: {}, tdx: { root: INTEL_ROOT } },
    collateral: collateralSource(stored),
    now: new Date(date),
  };
  return judgeTdx({ message: quote, entries: [matching(quote)], context });
};

describe('real TDX quote of Phala', () => {
  const stored = storedCollateral('tdx/tdx_v4_phala_collateral.json');
  const quote = decodeQuoteV4(vectorBytes('tdx/tdx_v4_phala_attestation.pb'));
  const DATE = '2025-06-25T00:00:00Z';

  it('is accepted at its date, as message and as binary quote', async () => {
    for (const form of [quote, parseQuote(vectorBytes('tdx/tdx_v4_phala_quote.bin'))]) {
      const checks = await judgeReal(form, stored, DATE);
      assert.deepEqual(failed(checks), []);
      assert.ok(allAccepted(TDX_ROWS, checks));
    }
  });

  it('is judged without regard to what follows the signed data', async () => {
    const extraBytes = Buffer.from('{"Collateral":{"tcbInfo":"forged"}}');
    const checks = await judgeReal(decodeQuoteV4(encodeQuoteV4({ ...quote, extraBytes })), stored, DATE);
    assert.ok(allAccepted(TDX_ROWS, checks));
  });
});

/** The rows that need no collateral. */
const OFFLINE = /^tdx\.(quote|pck)\.|^tdx\.qe\.(report_signature|key_binding|vendor)$/;

describe('other real TDX quotes', () => {
  const noCollateral: StoredCollateral = {
    ...storedCollateral('tdx/tdx_v4_phala_collateral.json'),
    tcb_info: '{}',
  };
  const rows: readonly (readonly [file: string, date: string])[] = [
    ['tdx_v4_google_spr_e4_quote.bin', '2023-07-01T00:00:00Z'],
    ['tdx_v4_google_cos113_quote.bin', '2025-01-01T00:00:00Z'],
    ['tdx_v4_trustee_quote.bin', '2024-01-01T00:00:00Z'],
  ];
  for (const [file, date] of rows) {
    it(`${file} has valid signatures up to the Intel root`, async () => {
      const checks = await judgeReal(parseQuote(vectorBytes(`tdx/${file}`)), noCollateral, date);
      const offline = checks.filter(({ id }) => OFFLINE.test(id));
      assert.equal(offline.length, 13);
      assert.deepEqual(
        offline.filter(({ outcome }) => outcome !== 'pass'),
        [],
      );
      assert.ok(!allAccepted(TDX_ROWS, checks), 'without usable collateral nothing is accepted');
    });
  }
});

describe('real collateral of Intel', () => {
  const quote = parseQuote(vectorBytes('tdx/tdx_v4_google_spr_e4_quote.bin'));
  const { pckCertificateChainData } = quote.signedData.certificationData.qeReportCertificationData;
  const [leaf, intermediate, root] = readPckChain(pckCertificateChainData.pckCertChain);

  it('has revocation lists that verify under the chain of the quote', async () => {
    const pckCrl = parseCrl(vectorBytes('tdx/google_pck_crl_platform.der'));
    const rootCrl = parseCrl(vectorBytes('tdx/google_sgx_root_ca_crl.der'));
    assert.ok(await verifySignedBy(pckCrl, intermediate));
    assert.ok(await verifySignedBy(rootCrl, root));
    assert.ok(!(await verifySignedBy(pckCrl, root)));
    assert.equal(currentList(pckCrl, new Date('2023-07-01T00:00:00Z')).outcome, 'pass');
    assert.ok(!pckCrl.revoked.has(leaf.serial));
  });

  it('of 2026 can be read, including the identity of module version 3', () => {
    const { content } = readSignedJson(vectorText('tdx/google_tcb_info_v5sample.json'), 'tcbInfo');
    const info = readTcbInfo(content);
    assert.equal(info.evaluationDataNumber, 18);
    assert.ok(info.moduleIdentities.some(({ id }) => id === 'TDX_03'));
  });
});
