import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import {
  type CollateralSource,
  type SignedCollateral,
  type Verdict,
  verify,
} from '../../lib/attestation/verify.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { FAULTS, type FaultName } from '../../simulator/faults.ts';
import { createHardware } from '../../simulator/hardware.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { RSA_KEYS } from '../support/evidence/hardware.ts';
import {
  type Answer,
  attestationDocument,
  call,
  rootsOf,
  startTestSimulator,
} from '../support/remote/simulator.ts';

/** Certificate collateral from the simulator's own vendor endpoints, as the proxy would fetch it from AMD and Intel. */
function collateralFrom(simulator: Pick<Simulator, 'port' | 'caPem'>): CollateralSource {
  const get = async (path: string): Promise<Answer> => {
    const answer = await call(simulator, 'GET', path);
    if (answer.status === 200) return answer;
    throw new PrivatemodeError('collateral_unavailable', `${path} answered ${answer.status}`);
  };
  const der = async (path: string): Promise<Uint8Array> => new Uint8Array((await get(path)).body);
  const chainOf = ({ headers }: Answer, header: string): string =>
    decodeURIComponent(String(headers[header]));
  const signed = async (path: string, header: string): Promise<SignedCollateral> => {
    const answer = await get(path);
    return { body: answer.body.toString('utf8'), issuerChain: chainOf(answer, header) };
  };

  return {
    amdVcek: ({ product, chipId, bootloader, tee, snp, microcode }) =>
      der(
        `/vcek/v1/${product}/${chipId}?blSPL=${bootloader}&teeSPL=${tee}&snpSPL=${snp}&ucodeSPL=${microcode}`,
      ),
    amdCrl: async ({ product }) => ({ crl: await der(`/vcek/v1/${product}/crl`) }),
    intelTcbInfo: ({ fmspc, evaluationDataNumber }) =>
      signed(
        `/tdx/certification/v4/tcb?fmspc=${fmspc}${
          evaluationDataNumber === undefined ? '' : `&tcbEvaluationDataNumber=${evaluationDataNumber}`
        }`,
        'tcb-info-issuer-chain',
      ),
    intelQeIdentity: ({ evaluationDataNumber }) =>
      signed(
        `/tdx/certification/v4/qe/identity${
          evaluationDataNumber === undefined ? '' : `?tcbEvaluationDataNumber=${evaluationDataNumber}`
        }`,
        'sgx-enclave-identity-issuer-chain',
      ),
    async intelPckCrl() {
      const answer = await get('/sgx/certification/v4/pckcrl?ca=platform&encoding=der');
      return { crl: new Uint8Array(answer.body), issuerChain: chainOf(answer, 'sgx-pck-crl-issuer-chain') };
    },
    intelRootCrl: async ({ url }) => ({ crl: await der(new URL(url).pathname) }),
  };
}

async function judge(simulator: Simulator, expected: { manifest?: Uint8Array } = {}): Promise<Verdict> {
  const nonce = new Uint8Array(randomBytes(32));
  return verify({
    document: await attestationDocument(simulator, nonce),
    nonce,
    manifest: expected.manifest ?? simulator.manifest,
    roots: rootsOf(simulator),
    collateral: collateralFrom(simulator),
    now: new Date(),
  });
}

async function documentOf(simulator: Simulator): Promise<Record<string, unknown>> {
  return JSON.parse((await attestationDocument(simulator, new Uint8Array(32))).toString('utf8'));
}

/** What the verifier finds fault with first; `undefined` where nothing is wrong as long as collateral can be fetched. */
const DECIDING_CHECK: Record<'snp' | 'tdx', Partial<Record<FaultName, string | undefined>>> = {
  snp: {
    'evidence-stale-nonce': 'snp.report_data',
    'evidence-debug': 'snp.id_key',
    'evidence-signature': 'snp.report.signature',
    'evidence-mesh-ca': 'snp.report_data',
    'evidence-low-tcb': 'snp.tcb.reported',
    'evidence-chip': 'snp.chip_id.allowed',
    'evidence-history': 'manifest.count',
    'evidence-revoked': 'snp.crl.ask',
    'evidence-no-crl': undefined,
    'evidence-no-vcek': undefined,
  },
  tdx: {
    'evidence-stale-nonce': 'tdx.policy.report_data',
    'evidence-debug': 'tdx.policy.td_attributes',
    'evidence-signature': 'tdx.quote.signature',
    'evidence-mesh-ca': 'tdx.policy.report_data',
    'evidence-low-tcb': 'tdx.tcb.module_status',
    'evidence-chip': 'tdx.policy.piid',
    'evidence-history': 'manifest.count',
    'evidence-revoked': 'tdx.revocation.platform_ca',
    'evidence-no-crl': undefined,
    'evidence-no-vcek': undefined,
  },
};

const TYPES = { snp: [1, 3, 9901, 2, 1], tdx: [1, 3, 9901, 2, 2] };

for (const tee of ['snp', 'tdx'] as const) {
  describe(`${tee} evidence of the simulated deployment`, () => {
    let simulator: Simulator;
    before(async () => {
      simulator = await startTestSimulator({ tee });
    });
    after(() => simulator.close());
    beforeEach(() => simulator.faults.clear());

    it('is accepted by the verifier, with every check passed', async () => {
      const verdict = await judge(simulator);
      assert.equal(verdict.failure, undefined);
      assert.equal(verdict.outcome, 'accepted');
      assert.equal(verdict.tee, tee);
      assert.equal(verdict.manifestSha256, simulator.manifestSha256);
    });

    it('is refused under the roots of other hardware', async () => {
      const nonce = new Uint8Array(randomBytes(32));
      const { ark, ask } = RSA_KEYS;
      const { roots } = await createHardware({ ark: ask, ask: ark });
      const verdict = await verify({
        document: await attestationDocument(simulator, nonce),
        nonce,
        manifest: simulator.manifest,
        roots: {
          snp: { Genoa: { ark: toPem(roots.ark), ask: toPem(roots.ask) } },
          tdx: { root: toPem(roots.intelRoot) },
        },
        collateral: collateralFrom(simulator),
        now: new Date(),
      });
      assert.equal(verdict.outcome, 'rejected');
    });

    it('follows the manifest, and the mesh, when they are rotated', async () => {
      const before = simulator.manifest;
      await simulator.rotateManifest();
      assert.equal((await judge(simulator)).outcome, 'accepted');
      assert.equal((await judge(simulator, { manifest: before })).outcome, 'rejected');
      const { mesh_ca: meshCa } = await documentOf(simulator);
      simulator.rotateMesh();
      assert.notEqual((await documentOf(simulator))['mesh_ca'], meshCa);
      assert.equal((await judge(simulator)).outcome, 'accepted');
    });

    it('comes in a document with the members of a live one', async () => {
      const document = await documentOf(simulator);
      assert.deepEqual(Object.keys(document), [
        'version',
        'raw_attestation_doc',
        'attestation_type',
        'manifests',
        'policies',
        'root_ca',
        'mesh_ca',
      ]);
      assert.deepEqual(document['attestation_type'], TYPES[tee]);
      assert.deepEqual(document['manifests'], [Buffer.from(simulator.manifest).toString('base64')]);
    });

    for (const [fault, check] of Object.entries(DECIDING_CHECK[tee]) as [FaultName, string | undefined][]) {
      it(`is ${check === undefined ? 'completed from collateral' : `refused by ${check}`} with ${fault}`, async () => {
        simulator.faults.parse(fault, true);
        const { failure, outcome } = await judge(simulator);
        assert.equal(failure?.id, check);
        assert.equal(outcome, check === undefined ? 'accepted' : 'rejected');
      });
    }

    it('has a deciding check listed for every fault of evidence', () => {
      const faults = Object.keys(FAULTS).filter((name) => name.startsWith('evidence-'));
      assert.deepEqual(Object.keys(DECIDING_CHECK[tee]).sort(), faults.sort());
    });
  });
}
