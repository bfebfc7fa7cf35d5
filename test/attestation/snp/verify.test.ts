/** Whole documents: the synthetic sets, every one of their variants, and what no vector varies. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted } from '../../../lib/attestation/check.ts';
import { type EvidenceVerdict, ROWS_OF, verify } from '../../../lib/attestation/verify-evidence.ts';
import {
  SYNTHETIC_SETS,
  type SyntheticSet,
  syntheticCases,
  syntheticInput,
  vectorBytes,
  vectorJson,
  withMembers,
} from '../../support/evidence/attestation-vectors.ts';

/** The check that each rejected variant must fail first. */
const FIRST_FAILURE: Readonly<Record<SyntheticSet, Readonly<Record<string, string>>>> = {
  synthetic: {
    chip_id_hwid_mismatch: 'snp.chip_id.vcek',
    chip_id_masked: 'snp.chip_id.allowed',
    fms_milan: 'snp.product',
    id_key_other_candidate: 'snp.id_key',
    mesh_ca_swapped: 'snp.report_data',
    mitvec_current_missing_bit: 'snp.mitigation.current',
    mitvec_launch_missing_bit: 'snp.mitigation.launch',
    no_manifests: 'snp.report_data',
    no_vcek: 'snp.vcek.available',
    not_protobuf: 'evidence.form',
    platform_alias_off: 'snp.platform.alias_check_complete',
    platform_ecc_off: 'snp.platform.ecc_en',
    platform_smt_on: 'snp.platform.smt_en',
    policy_cxl: 'snp.policy.cxl_allow',
    policy_debug: 'snp.policy.debug',
    policy_migrate: 'snp.policy.migrate_ma',
    policy_reserved1_clear: 'snp.policy.form',
    report_body_flipped: 'snp.report.signature',
    report_sig_flipped: 'snp.report.signature',
    root_ca_swapped: 'snp.report_data',
    signer_vlek_no_cert: 'snp.report.signing_key',
    tcb_cert_mismatch: 'snp.tcb.vcek',
    tcb_committed_above_current: 'snp.firmware.tcb',
    tcb_launch_below_min: 'snp.tcb.launch',
    tcb_reported_above_current: 'snp.tcb.vcek_current',
    two_manifests: 'manifest.count',
    vcek_expired: 'snp.chain.validity',
    vcek_missing_hwid: 'snp.vcek.extensions',
    vcek_missing_snp_spl: 'snp.vcek.extensions',
    vcek_wrong_cn: 'snp.vcek.names',
    vcek_wrong_issuer_key: 'snp.chain.signature',
    version_committed_above_current: 'snp.firmware.version',
    vmpl1: 'snp.vmpl',
    wrong_host_data: 'snp.host_data',
    wrong_id_key_digest: 'snp.id_key',
    wrong_measurement: 'snp.measurement',
  },
  synthetic_v158: {
    apeip_little_endian: 'snp.measurement',
    attestation_type_insecure: 'evidence.type',
    attestation_type_tdx: 'evidence.type',
    id_key_of_other_vcpus: 'snp.id_key',
    policies_extra: 'document.policies',
    policies_missing: 'document.policies',
    policy_abi_0_255: 'snp.policy.abi',
    policy_abi_157: 'snp.policy.abi',
    policy_no_pageswap: 'snp.policy.page_swap_disable',
    policy_no_single_socket: 'snp.policy.single_socket',
    policy_no_xts: 'snp.policy.mem_aes_256_xts',
    policy_smt: 'snp.policy.smt',
    policy_v140: 'snp.policy.abi',
    tcb_bootloader_11: 'snp.tcb.reported',
    vcpus_221: 'snp.measurement',
  },
};

function assertAccepted(verdict: EvidenceVerdict): void {
  assert.equal(verdict.failure, undefined, JSON.stringify(verdict.failure));
  assert.equal(verdict.outcome, 'accepted');
  assert.equal(verdict.tee, 'snp');
  assert.ok(allAccepted(ROWS_OF.snp, verdict.checks));
}

function assertRefused(verdict: EvidenceVerdict, id: string): void {
  assert.equal(verdict.failure?.id, id, JSON.stringify(verdict.failure));
  assert.equal(verdict.failure?.outcome, 'fail');
  assert.notEqual(verdict.failure?.code, undefined);
  assert.notEqual(verdict.outcome, 'accepted');
  assert.equal(verdict.meshCaPem, undefined);
}

for (const set of SYNTHETIC_SETS) {
  describe(`verification of the ${set} deployment`, () => {
    it('accepts the honest evidence, with every check in the table listed once and in order', async () => {
      const verdict = await verify(syntheticInput(set));
      assertAccepted(verdict);
      assert.deepEqual(
        verdict.checks.map(({ id }) => id),
        ROWS_OF.snp.map(({ id }) => id),
      );
      const expected = vectorJson<{ manifest_sha256: string }>(`${set}/expected.json`);
      assert.equal(verdict.manifestSha256, expected.manifest_sha256);
      assert.equal(verdict.meshCaPem, Buffer.from(vectorBytes(`${set}/mesh_ca.pem`)).toString());
    });

    const cases = syntheticCases(set).filter(({ kind }) => kind === 'attest_response');
    for (const { file, upstream, careful, reason } of cases) {
      const name = file.replace('.json', '');
      const answer = careful ?? upstream;
      it(`${answer}s ${name}: ${reason}`, async () => {
        const verdict = await verify(syntheticInput(set, `negative/${file}`));
        if (answer === 'accept') assertAccepted(verdict);
        else assertRefused(verdict, FIRST_FAILURE[set][name] ?? '');
      });
    }
  });
}

describe('an honest document', () => {
  const input = syntheticInput('synthetic_v158');

  it('is rejected if the manifest is invalid', async () => {
    const manifest = Buffer.from(
      Buffer.from(input.manifest).toString().replace('"Debug": false', '"Debug": true'),
    );
    const verdict = await verify(
      withMembers({ ...input, manifest }, { manifests: [manifest.toString('base64')] }),
    );
    assertRefused(verdict, 'manifest.valid');
    assert.deepEqual([verdict.outcome, verdict.failure?.code], ['rejected', 'manifest_invalid']);
  });

  it('is refused under other roots than those of its product line', async () => {
    const without = await verify({ ...input, roots: { snp: {}, tdx: undefined } });
    assertRefused(without, 'snp.roots');
    const { ark, ask } = input.roots.snp.Genoa ?? assert.fail('no roots of Genoa');
    const swapped = { snp: { Genoa: { ark: ask, ask: ark } }, tdx: undefined };
    assertRefused(await verify({ ...input, roots: swapped }), 'snp.roots');
  });
});

describe('a verdict', () => {
  it('is malformed if document or evidence is unreadable, and lists only document checks if the document is', async () => {
    const input = syntheticInput('synthetic_v158');
    for (const document of ['', '{}', 'null', '[]', '\0'].map((text) => Buffer.from(text))) {
      const verdict = await verify({ ...input, document });
      assertRefused(verdict, 'document.form');
      assert.equal(verdict.outcome, 'malformed');
      assert.equal(verdict.tee, undefined);
      assert.ok(verdict.checks.every(({ id }) => !id.startsWith('snp.')));
    }
    const development = Buffer.from('{"ReportData":"00","HostData":"00"}').toString('base64');
    const verdict = await verify(withMembers(input, { raw_attestation_doc: development }));
    assertRefused(verdict, 'evidence.form');
    assert.equal(verdict.outcome, 'malformed');
  });
});
