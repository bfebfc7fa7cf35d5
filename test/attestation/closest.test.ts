/** Which of several reference values a verdict speaks of. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sha256 } from '#crypto';
import { reportData, transitionDigest } from '../../lib/attestation/document.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { encodeQuoteV4 } from '../../simulator/evidence/tdx-message.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import { issueMeshCa } from '../support/evidence/snp-platform.ts';
import { NOW, tdxPlatform } from '../support/evidence/tdx-platform.ts';

const POLICY = Buffer.from('policy of the coordinator');
const ROOT_CA = Buffer.from('root CA');
const MESH_CA = Buffer.from(toPem(issueMeshCa()));
const NONCE = new Uint8Array(32).fill(9);
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

const { entry } = tdxPlatform();
const matching = {
  MinTCBEvaluationDataNumber: 21,
  MrTd: hex(entry.mrTd),
  MrSeam: hex(entry.mrSeam),
  Rtmrs: entry.rtmrs.map(hex),
  Xfam: hex(entry.xfam),
  AllowedPIIDs: entry.allowedPiids.map(hex),
};
const ofAnotherGuest = { ...matching, MrTd: '00'.repeat(48), MinTCBEvaluationDataNumber: 0 };

/** The decisive check where Intel does not answer for number 21. */
async function decisive(...tdx: readonly object[]) {
  const policies = { [hex(sha256(POLICY))]: { Role: 'coordinator' } };
  const manifest = Buffer.from(JSON.stringify({ Policies: policies, ReferenceValues: { snp: [], tdx } }));
  const transition = transitionDigest([manifest]);
  const expected = reportData({ nonce: NONCE, transition, rootCa: ROOT_CA, meshCa: MESH_CA });
  const mrConfigId = Uint8Array.of(...sha256(POLICY), ...new Uint8Array(16));
  const { quote, context } = tdxPlatform({ body: (body) => ({ ...body, reportData: expected, mrConfigId }) });
  const verdict = await verify({
    document: Buffer.from(
      JSON.stringify({
        raw_attestation_doc: base64(encodeQuoteV4(quote)),
        manifests: [base64(manifest)],
        policies: [base64(POLICY)],
        root_ca: base64(ROOT_CA),
        mesh_ca: base64(MESH_CA),
      }),
    ),
    nonce: NONCE,
    manifest,
    roots: context.roots,
    now: NOW,
    secretFollows: false,
    collateral: {
      ...context.collateral,
      intelTcbInfo: async (query) => {
        if (query.evaluationDataNumber !== 21) return context.collateral.intelTcbInfo(query);
        throw new PrivatemodeError('collateral_unavailable', 'Intel does not answer');
      },
    },
  });
  return [verdict.outcome, verdict.failure?.id, verdict.failure?.code];
}

describe('a verdict on several reference values', () => {
  const UNAVAILABLE = ['rejected', 'tdx.tcb_info.format', 'collateral_unavailable'];

  it('reports collateral_unavailable if one reference value fails only for lack of collateral', async () => {
    assert.deepEqual(await decisive(matching), UNAVAILABLE);
    assert.deepEqual(await decisive(matching, ofAnotherGuest), UNAVAILABLE);
    assert.deepEqual(await decisive(ofAnotherGuest, matching), UNAVAILABLE);
  });

  it('reports the check that fails for another reason, though collateral is missing before it', async () => {
    const onNumber21 = { ...ofAnotherGuest, MinTCBEvaluationDataNumber: 21 };
    const found = await decisive(onNumber21);
    assert.deepEqual(found, ['rejected', 'tdx.policy.mrtd', 'attestation_failed']);
  });
});
