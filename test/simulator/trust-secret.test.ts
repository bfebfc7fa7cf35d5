import assert from 'node:assert/strict';
import { createHash, verify, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { Agent, get } from 'node:https';
import { connect } from 'node:net';
import { after, before, beforeEach, describe, it } from 'node:test';
import { parseCertificate } from '../../lib/attestation/x509/certificate.ts';
import { extensionValue } from '../../lib/attestation/x509/extensions.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { createLiteralRecipient } from '../support/remote/literal-hpke.ts';
import {
  attestationDocument,
  call,
  post,
  sharedHardware,
  startTestSimulator,
  withSimulator,
} from '../support/remote/simulator.ts';

const SECRET_PATH = '/privatemode/v1/secret';
interface Exchanged {
  readonly publicKey: Buffer;
  readonly encapsulatedKey: Buffer;
  readonly signature: Buffer;
  readonly meshCert: X509Certificate;
  readonly secret: Buffer;
  readonly id: string;
}

async function exchange(simulator: Simulator): Promise<Exchanged> {
  const recipient = createLiteralRecipient();
  const answer = await post(simulator, SECRET_PATH, { PublicKey: recipient.publicKey.toString('base64') });
  assert.equal(answer.status, 200);
  const body = answer.json() as Record<string, string>;
  assert.deepEqual(Object.keys(body), ['EncapsulatedKey', 'Signature', 'MeshCert']);
  const bytes = (member: string): Buffer => Buffer.from(body[member] as string, 'base64');
  const encapsulatedKey = bytes('EncapsulatedKey');
  return {
    publicKey: recipient.publicKey,
    encapsulatedKey,
    signature: bytes('Signature'),
    meshCert: new X509Certificate(bytes('MeshCert')),
    secret: recipient.secretFor(encapsulatedKey),
    id: createHash('sha256').update(recipient.publicKey).digest('base64'),
  };
}

async function meshCa(simulator: Simulator): Promise<X509Certificate> {
  const document = JSON.parse((await attestationDocument(simulator, new Uint8Array(32))).toString('utf8'));
  return new X509Certificate(Buffer.from(document.mesh_ca, 'base64'));
}

const isSigned = ({ publicKey, encapsulatedKey, signature, meshCert }: Exchanged): boolean =>
  verify('sha256', Buffer.concat([publicKey, encapsulatedKey]), meshCert.publicKey, signature);

describe('the secret exchange of the simulated deployment', () => {
  let simulator: Simulator;
  before(async () => {
    simulator = await startTestSimulator();
  });
  after(() => simulator.close());
  beforeEach(() => simulator.faults.clear());

  it('gives the same secret to an independent client, and keeps it under its id', async () => {
    const exchanged = await exchange(simulator);
    assert.equal(exchanged.encapsulatedKey.length, 1120);
    assert.deepEqual(Buffer.from(simulator.secrets.lookup(exchanged.id) ?? []), exchanged.secret);
  });

  it('signs public key and encapsulated key with a certificate of the mesh CA', async () => {
    const exchanged = await exchange(simulator);
    const ca = await meshCa(simulator);
    assert.ok(isSigned(exchanged));
    assert.ok(exchanged.meshCert.verify(ca.publicKey));
    assert.equal(exchanged.meshCert.issuer, ca.subject);
    assert.equal(exchanged.meshCert.subject, 'CN=root');
  });

  it('names the secret service in the certificate by its WorkloadSecretID', async () => {
    const { meshCert } = await exchange(simulator);
    const { extensions, extendedKeyUsage } = parseCertificate(meshCert.raw);
    const value = Buffer.from(extensionValue(extensions, '1.3.9901.3.1') ?? []);
    const id = value.subarray(2).toString();
    assert.deepEqual([value[0], value[1]], [0x04, id.length]);
    const policies: { SANs: string[]; WorkloadSecretID: string }[] = Object.values(
      JSON.parse(Buffer.from(simulator.manifest).toString('utf8')).Policies,
    );
    assert.equal(policies.find(({ WorkloadSecretID }) => WorkloadSecretID === id)?.SANs[0], 'root');
    assert.deepEqual(extendedKeyUsage, ['1.3.6.1.5.5.7.3.2', '1.3.6.1.5.5.7.3.1']);
  });

  it('refuses what is not a public key of the KEM', async () => {
    const zeroPoint = Buffer.concat([createLiteralRecipient().publicKey.subarray(0, 1184), Buffer.alloc(32)]);
    for (const PublicKey of [undefined, 7, '', 'AAAA', zeroPoint.toString('base64'), 'not base64!']) {
      const answer = await post(simulator, SECRET_PATH, { PublicKey });
      assert.equal(answer.status, 400, String(PublicKey).slice(0, 20));
    }
    const answer = await call(simulator, 'POST', SECRET_PATH, {
      headers: { authorization: 'Bearer x' },
      body: '[',
    });
    assert.equal(answer.status, 400);
  });

  it('signs over another message when told to', async () => {
    simulator.faults.set('secret-signature', true);
    assert.equal(isSigned(await exchange(simulator)), false);
  });

  it('answers from another mesh when told to', async () => {
    simulator.faults.set('secret-foreign-ca', true);
    const exchanged = await exchange(simulator);
    assert.ok(isSigned(exchanged));
    assert.equal(exchanged.meshCert.verify((await meshCa(simulator)).publicKey), false);
  });

  it('lets an inference workload answer when told to', async () => {
    simulator.faults.set('secret-workload', true);
    const { meshCert } = await exchange(simulator);
    assert.equal(meshCert.subject, 'CN=continuum-etcd-client');
    assert.ok(meshCert.verify((await meshCa(simulator)).publicKey));
  });

  it('shows an expired certificate when told to', async () => {
    simulator.faults.set('secret-expired-certificate', true);
    const { meshCert } = await exchange(simulator);
    assert.ok(Date.parse(meshCert.validTo) < Date.now());
  });
});

describe('the lifetime of a simulated secret', () => {
  it('ends with its time, by the clock of the deployment', () =>
    withSimulator({ secretLifetime: 60_000 }, async (simulator) => {
      const { id } = await exchange(simulator);
      simulator.setClockSkew(59_000);
      assert.notEqual(simulator.secrets.lookup(id), undefined);
      simulator.setClockSkew(60_001);
      assert.equal(simulator.secrets.lookup(id), undefined);
      assert.deepEqual(simulator.secrets.ids(), []);
    }));

  it('ends when the secret is dropped', () =>
    withSimulator({}, async (simulator) => {
      const [first, second] = [await exchange(simulator), await exchange(simulator)];
      assert.deepEqual(simulator.secrets.ids(), [first.id, second.id]);
      assert.equal(simulator.secrets.drop(first.id), true);
      assert.equal(simulator.secrets.drop(first.id), false);
      assert.equal(simulator.secrets.dropAll(), 1);
      assert.equal(simulator.secrets.lookup(second.id), undefined);
    }));
});

const ATTEST = '/privatemode/v1/attest';
/** Timers and sockets that keep a process alive, by kind, once what was closed has settled. */
async function activeResources(): Promise<Record<string, number>> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  const counts: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

describe('closing a simulator', { timeout: 20_000 }, () => {
  before(() => sharedHardware());

  it('leaves no socket and no timer, whatever the clients were doing', async () => {
    const baseline = await activeResources();
    const simulator = await startTestSimulator({ faults: { 'manifest-hang': true } });
    const { port, caPem: ca } = simulator;
    const agent = new Agent({ keepAlive: true });
    const target = { host: '127.0.0.1', servername: 'localhost', port, ca, agent };

    const idle = get({ ...target, path: '/IntelSGXRootCA.der' });
    const [answer] = await once(idle, 'response');
    answer.resume();
    await once(answer, 'end');
    const hanging = get({ ...target, path: '/privatemode/v2/manifest.json' });
    const hung = once(hanging, 'error');
    const silent = connect(port, '127.0.0.1'); // never begins its TLS handshake
    silent.on('error', () => {});
    await once(silent, 'connect');
    const silenced = once(silent, 'close');
    while (simulator.counts['manifest'] === 0) await new Promise((resolve) => setTimeout(resolve, 5));

    await simulator.close();
    await Promise.all([hung, silenced]);
    agent.destroy();
    assert.deepEqual(await activeResources(), baseline);
  });

  it('frees the port at once', async () => {
    const first = await startTestSimulator();
    await first.close();
    const second = await startTestSimulator({ port: first.port });
    assert.equal(second.port, first.port);
    await second.close();
  });
});

describe('the recorder of a simulator', () => {
  it('keeps the newest requests, and so much of each body as its limits say', async () => {
    const simulator = await startTestSimulator({ recorderLimits: { maxRequests: 2, maxBodyBytes: 10 } });
    try {
      for (const path of ['/one', '/two']) await call(simulator, 'POST', path);
      await call(simulator, 'POST', ATTEST, {
        headers: { authorization: 'Bearer x' },
        body: '0123456789abcdef',
      });
      const requests = simulator.recorder.requests();
      assert.deepEqual(
        requests.map(({ path }) => path),
        ['/two', ATTEST],
      );
      assert.equal(requests[1]?.body.toString(), '0123456789');
      assert.equal(requests[1]?.bodyBytes, 16);
      assert.equal(simulator.recorder.containing('/two').length, 1);
      assert.equal(simulator.recorder.containing(Buffer.from('23456')).length, 1);
      assert.equal(simulator.recorder.containing('Bearer x').length, 1);
      assert.equal(simulator.recorder.containing('abcdef').length, 0);
    } finally {
      await simulator.close();
    }
  });
});
