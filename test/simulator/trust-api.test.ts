/**
 * The paths by which a client verifies the simulated deployment: what they refuse, what they answer, and how
 * they fail when told to.
 */
import assert from 'node:assert/strict';
import { createHash, verify, X509Certificate } from 'node:crypto';
import { describe, it } from 'node:test';
import type { FaultName } from '../../simulator/faults.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createLiteralRecipient } from '../support/remote/literal-hpke.ts';
import {
  attestationDocument,
  call,
  post,
  startTestSimulator,
  withSimulator,
} from '../support/remote/simulator.ts';

const ATTEST = '/privatemode/v1/attest';
const SECRET = '/privatemode/v1/secret';
const MANIFEST = '/privatemode/v2/manifest.json?t=1732162000000';
const NONCE = Buffer.alloc(32, 1).toString('base64');

describe('the trust API of the simulator', () => {
  it('serves the manifest without a key, and evidence and secrets only with the configured API key', () =>
    withSimulator({ apiKey: 'the-key' }, async (simulator) => {
      for (const path of [ATTEST, SECRET]) {
        for (const authorization of [undefined, 'Basic dGhlLWtleQ==', 'Bearer other', 'Bearer ']) {
          const answer = await call(simulator, 'POST', path, {
            headers: authorization === undefined ? {} : { authorization },
            body: '{}',
          });
          assert.equal(answer.status, 401);
          assert.equal(answer.headers['privatemode-encrypted'], 'false');
          assert.deepEqual(answer.json(), { error: { message: 'unauthorized', type: 'unauthorized' } });
        }
        assert.equal((await post(simulator, path, {}, 'the-key')).status, 400);
      }
      assert.equal((await call(simulator, 'GET', MANIFEST)).status, 200);
    }));

  it('refuses nonces that have not 32 bytes, public keys not of the KEM, and bodies that are too large or no JSON', () =>
    withSimulator({}, async (simulator) => {
      for (const Nonce of [undefined, '', 'AAAA', Buffer.alloc(33).toString('base64'), NONCE.slice(0, -1)]) {
        assert.equal((await post(simulator, ATTEST, { Nonce })).status, 400);
      }
      assert.equal((await post(simulator, ATTEST, { Nonce: 'A'.repeat(2_000_000) })).status, 413);
      const { publicKey } = createLiteralRecipient();
      const zeroPoint = Buffer.concat([publicKey.subarray(0, 1184), Buffer.alloc(32)]).toString('base64');
      for (const PublicKey of [undefined, 7, '', 'AAAA', zeroPoint, 'not base64!']) {
        const { status } = await post(simulator, SECRET, { PublicKey });
        assert.equal(status, 400, String(PublicKey).slice(0, 20));
      }
      const headers = { authorization: 'Bearer x' };
      assert.equal((await call(simulator, 'POST', SECRET, { headers, body: '[' })).status, 400);
    }));

  it('shares its secret with an independent client, signed under a certificate of the mesh CA', () =>
    withSimulator({}, async (simulator) => {
      const { publicKey, secretFor } = createLiteralRecipient();
      const answer = await post(simulator, SECRET, { PublicKey: publicKey.toString('base64') });
      const body = answer.json() as Record<string, string>;
      assert.deepEqual(Object.keys(body), ['EncapsulatedKey', 'Signature', 'MeshCert']);
      const [encapsulated, signature, certificate] = Object.values(body).map((value) =>
        Buffer.from(value, 'base64'),
      ) as [Buffer, Buffer, Buffer];
      assert.equal(encapsulated.length, 1120);
      const id = createHash('sha256').update(publicKey).digest('base64');
      assert.deepEqual(Buffer.from(simulator.secrets.lookup(id) ?? []), secretFor(encapsulated));

      const leaf = new X509Certificate(certificate);
      const document = await attestationDocument(simulator, new Uint8Array(32));
      const ca = new X509Certificate(Buffer.from(JSON.parse(document.toString()).mesh_ca, 'base64'));
      assert.ok(verify('sha256', Buffer.concat([publicKey, encapsulated]), leaf.publicKey, signature));
      assert.ok(leaf.verify(ca.publicKey));
      assert.deepEqual([leaf.issuer, leaf.subject], [ca.subject, 'CN=root']);
    }));

  for (const [service, method, path] of [
    ['manifest', 'GET', MANIFEST],
    ['attest', 'POST', ATTEST],
    ['secret', 'POST', SECRET],
    ['collateral', 'GET', '/vcek/v1/Genoa/crl'],
  ] as const) {
    it(`has faults that set the status, reset a number of connections, and hang: ${service}`, async (t) => {
      const simulator = await startTestSimulator();
      t.after(() => simulator.close());
      const { faults, counts } = simulator;
      const send = () => call(simulator, method, path, { headers: { authorization: 'Bearer x' } });
      faults.parse(`${service}-status`, 503);
      assert.equal((await send()).status, 503);
      faults.clear();
      faults.set(`${service}-reset`, 2);
      for (const _ of [1, 2]) await assert.rejects(send(), { code: 'ECONNRESET', syscall: 'read' });
      assert.ok([200, 400].includes((await send()).status));
      faults.parse(`${service}-hang` satisfies FaultName, true);
      const hangs = assert.rejects(send(), { code: 'ECONNRESET' });
      await eventually('the request', () => counts[service] === 5);
      await simulator.close();
      await hangs;
    });
  }

  it('serves collateral of its own chips only, by default with an older evaluation number than its manifest has', () =>
    withSimulator({}, async (simulator) => {
      const chip = Buffer.from(simulator.hardware.ids.chipId).toString('hex');
      const levels = '?blSPL=12&teeSPL=0&snpSPL=28&ucodeSPL=88';
      for (const [path, status, evaluation] of [
        [`/vcek/v1/Genoa/${chip}${levels}`, 200],
        [`/vcek/v1/Genoa/${chip}`, 400],
        [`/vcek/v1/Genoa/${'00'.repeat(64)}${levels}`, 404],
        ['/vcek/v1/Genoa/cert_chain', 200],
        ['/tdx/certification/v4/tcb?fmspc=A0B1C2D3E4F5', 200, 20],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=21', 200, 21],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=19', 410],
        ['/tdx/certification/v4/tcb?fmspc=a0b1c2d3e4f5&tcbEvaluationDataNumber=22', 404],
        ['/tdx/certification/v4/tcb?fmspc=000000000000', 404],
        ['/tdx/certification/v4/qe/identity', 200, 20],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=21', 200, 21],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=19', 410],
        ['/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=22', 404],
        ['/sgx/certification/v4/pckcrl?ca=processor', 400],
        ['/IntelSGXRootCA.der', 200],
      ] as const) {
        const answer = await call(simulator, 'GET', path);
        assert.equal(answer.status, status, path);
        if (evaluation === undefined) continue;
        const { tcbInfo, enclaveIdentity } = JSON.parse(answer.body.toString());
        assert.equal((tcbInfo ?? enclaveIdentity).tcbEvaluationDataNumber, evaluation, path);
      }
      const { ReferenceValues } = JSON.parse(Buffer.from(simulator.manifest).toString());
      assert.equal(ReferenceValues.tdx[0].MinTCBEvaluationDataNumber, 21);
    }));
});
