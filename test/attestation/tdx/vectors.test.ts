import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted, type Check } from '../../../lib/attestation/check.ts';
import { currentList, type EvidenceContext } from '../../../lib/attestation/collateral.ts';
import type { TdxReferenceValues } from '../../../lib/attestation/manifest.ts';
import { readPckChain, readSgxExtension, SGX_EXTENSION_OID } from '../../../lib/attestation/tdx/chain.ts';
import { decodeQuoteV4, type QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import {
  platformLevel,
  readQeIdentity,
  readSignedJson,
  readTcbInfo,
  svnLevel,
} from '../../../lib/attestation/tdx/tcb-info.ts';
import { verify } from '../../../lib/attestation/verify-evidence.ts';
import { type Certificate, parseCrl, verifySignedBy } from '../../../lib/attestation/x509.ts';
import { encodeQuoteV4 } from '../../../simulator/evidence/messages.ts';
import { judgeTdx, TDX_ROWS } from '../../support/evidence/stages.ts';
import { parseQuote } from '../../support/evidence/tdx-binary-quote.ts';
import { failed } from '../../support/evidence/tdx-cases.ts';
import {
  collateralSource,
  INTEL_ROOT,
  type StoredCollateral,
  storedCollateral,
  syntheticInput,
  syntheticVariants,
  variantInput,
  vector,
} from '../../support/evidence/tdx-vectors.ts';

const text = (...path: string[]): string => Buffer.from(vector(...path)).toString('utf8');

/** What each variant of the synthetic example must fail at, and at nothing else. Empty: accepted. */
const VARIANTS: Readonly<Record<string, readonly string[]>> = {
  'ak_binding.json': ['tdx.qe.key_binding'],
  'attr_no_sept_ve.json': ['tdx.policy.td_attributes'],
  'chain_trailing_nul_ok.json': [],
  'chain_trailing_text.json': ['tdx.pck.format'],
  'chain_two_certs.json': ['tdx.pck.format'],
  'dynamic.json': ['tdx.policy.static_platform'],
  'fmspc.json': ['tdx.tcb_info.platform'],
  'intermediate_revoked.json': ['tdx.revocation.platform_ca'],
  'key_type3.json': ['tdx.quote.key_type'],
  'module_configurationneeded.json': ['tdx.tcb.module_status'],
  'module_outofdate.json': ['tdx.tcb.module_status'],
  'module_swhardeningneeded.json': ['tdx.tcb.module_status'],
  'module_unknown.json': ['tdx.tcb.module_identity', 'tdx.tcb.module_status'],
  'mrconfigid_tail.json': ['tdx.policy.mrconfigid'],
  'mrsignerseam.json': ['tdx.tcb.module_signer', 'tdx.tcb.module_identity'],
  'pck_crl_signer.json': ['tdx.pck_crl.signature'],
  // Accepted upstream, which looks at the module's level only (docs/protocol/attestation.md 13.3).
  'platform_outofdate_module_ok.json': ['tdx.tcb.platform_status'],
  'qe_prodid.json': ['tdx.qe.product'],
  'qe_svn_none.json': ['tdx.qe.status'],
  'qe_svn_old.json': ['tdx.qe.status'],
  'qe_vendor.json': ['tdx.qe.vendor'],
  'qeid_expired.json': ['tdx.qe_identity.dates'],
  'qeid_id.json': ['tdx.qe_identity.identity'],
  'quote_sig.json': ['tdx.quote.signature'],
  'report_data.json': ['tdx.policy.report_data'],
  'root_crl_expired.json': ['tdx.root_crl.dates'],
  'root_crl_signer.json': ['tdx.root_crl.signature'],
  'signing_foreign_root.json': ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
  'signing_revoked.json': ['tdx.revocation.tcb_signing'],
  'smt.json': ['tdx.policy.smt_disabled'],
  'tcb_no_level.json': ['tdx.tcb.platform_status'],
  'tcbinfo_body.json': ['tdx.tcb_info.signature'],
  'tcbinfo_evalnum.json': ['tdx.tcb_info.evaluation_number'],
  'tcbinfo_expired.json': ['tdx.tcb_info.dates'],
  'tcbinfo_id.json': ['tdx.tcb_info.identity'],
  'tcbinfo_pceid.json': ['tdx.tcb_info.platform'],
  'tcbinfo_sig.json': ['tdx.tcb_info.signature'],
  'tcbinfo_version.json': ['tdx.tcb_info.identity'],
  'version5.json': ['tdx.quote.version'],
  'wrong_mrtd.json': ['tdx.policy.mrtd'],
  'wrong_rtmr0.json': ['tdx.policy.rtmr0'],
  'wrong_rtmr3.json': ['tdx.policy.rtmr3'],
};

describe('verification of the synthetic TDX deployment', () => {
  it('accepts the honest evidence', async () => {
    const verdict = await verify(syntheticInput());
    assert.deepEqual(failed(verdict.checks), []);
    assert.equal(verdict.outcome, 'accepted');
    assert.equal(verdict.tee, 'tdx');
    assert.equal(verdict.meshCaPem, text('synthetic_tdx', 'mesh_ca.pem'));
  });

  it('has an expectation for every variant, never more lenient than upstream', () => {
    const variants = syntheticVariants();
    assert.deepEqual(Object.keys(VARIANTS).sort(), variants.map(({ file }) => file).sort());
    for (const { file, upstream } of variants) {
      if (upstream === 'reject') assert.notDeepEqual(VARIANTS[file], [], file);
    }
  });

  for (const { file, reason } of syntheticVariants()) {
    it(`${VARIANTS[file]?.length === 0 ? 'accepts' : 'rejects'} ${file}: ${reason}`, async () => {
      const verdict = await verify(variantInput(file));
      const expected = VARIANTS[file] ?? [];
      assert.deepEqual(failed(verdict.checks), expected);
      assert.equal(verdict.outcome === 'accepted', expected.length === 0);
      assert.equal(verdict.failure?.id, expected[0]);
      assert.equal(verdict.meshCaPem === undefined, expected.length > 0);
    });
  }
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

const sgxOf = (leaf: Certificate) =>
  readSgxExtension(leaf.extensions.get(SGX_EXTENSION_OID)?.value ?? new Uint8Array());

describe('real TDX quote of Phala', () => {
  const stored = storedCollateral('tdx', 'tdx_v4_phala_collateral.json');
  const quote = decodeQuoteV4(vector('tdx', 'tdx_v4_phala_attestation.pb'));
  const DATE = '2025-06-25T00:00:00Z';

  it('is accepted at its date, as message and as binary quote', async () => {
    for (const form of [quote, parseQuote(vector('tdx', 'tdx_v4_phala_quote.bin'))]) {
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
    ...storedCollateral('tdx', 'tdx_v4_phala_collateral.json'),
    tcb_info: '{}',
  };
  const rows: readonly (readonly [file: string, date: string])[] = [
    ['tdx_v4_google_spr_e4_quote.bin', '2023-07-01T00:00:00Z'],
    ['tdx_v4_google_cos113_quote.bin', '2025-01-01T00:00:00Z'],
    ['tdx_v4_trustee_quote.bin', '2024-01-01T00:00:00Z'],
  ];
  for (const [file, date] of rows) {
    it(`${file} has valid signatures up to the Intel root`, async () => {
      const checks = await judgeReal(parseQuote(vector('tdx', file)), noCollateral, date);
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
  const quote = parseQuote(vector('tdx', 'tdx_v4_google_spr_e4_quote.bin'));
  const { qeReport, pckCertificateChainData } = quote.signedData.certificationData.qeReportCertificationData;
  const [leaf, intermediate, root] = readPckChain(pckCertificateChainData.pckCertChain);

  it('of 2023 has no level for the Sapphire Rapids machine, whose components are older', () => {
    const { content } = readSignedJson(text('tdx', 'google_tcb_info_fmspc_50806f000000.json'), 'tcbInfo');
    const info = readTcbInfo(content);
    const { teeTcbSvn } = quote.tdQuoteBody;
    assert.equal(Buffer.from(info.fmspc).toString('hex'), '50806f000000');
    assert.equal(platformLevel(info, sgxOf(leaf), teeTcbSvn), undefined);
    assert.deepEqual(info.moduleIdentities, []);
  });

  it('of 2023 lists the quoting enclave as up to date', () => {
    const { content } = readSignedJson(text('tdx', 'google_qe_identity.json'), 'enclaveIdentity');
    const identity = readQeIdentity(content);
    assert.equal(svnLevel(identity.levels, qeReport.isvSvn)?.status, 'UpToDate');
    assert.deepEqual(Buffer.from(identity.mrSigner), Buffer.from(qeReport.mrSigner));
  });

  it('has revocation lists that verify under the chain of the quote', async () => {
    const pckCrl = parseCrl(vector('tdx', 'google_pck_crl_platform.der'));
    const rootCrl = parseCrl(vector('tdx', 'google_sgx_root_ca_crl.der'));
    assert.ok(await verifySignedBy(pckCrl, intermediate));
    assert.ok(await verifySignedBy(rootCrl, root));
    assert.ok(!(await verifySignedBy(pckCrl, root)));
    assert.equal(currentList(pckCrl, new Date('2023-07-01T00:00:00Z')).outcome, 'pass');
    assert.ok(!pckCrl.revoked.has(leaf.serial));
  });

  it('of 2026 can be read, including the identity of module version 3', () => {
    const { content } = readSignedJson(text('tdx', 'google_tcb_info_v5sample.json'), 'tcbInfo');
    const info = readTcbInfo(content);
    assert.equal(info.evaluationDataNumber, 18);
    assert.ok(info.moduleIdentities.some(({ id }) => id === 'TDX_03'));
  });
});
