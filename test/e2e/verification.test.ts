import assert from 'node:assert/strict';
import { it, type TestContext } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

async function scene(t: TestContext) {
  const admin = `127.0.0.1:${await freePort()}`;
  const stack = await startStack({ managedManifest: true, flags: [`--admin-address=${admin}`] });
  t.after(() => stack.close());
  const get = async <T>(path: string): Promise<T> => (await fetch(`http://${admin}${path}`)).json() as T;
  return { ...stack, get };
}

it('the verification document of an accepted deployment holds no secret', async (t) => {
  const { url, proxy, simulator, get } = await scene(t);
  assert.equal((await askChat({ url }, { content: 'a-word-of-the-prompt' })).status, 200);
  const found = await get<VerificationDocument>('/verification');
  const { verified, epoch, verdict, chain } = found;
  const { outcome, tee, failure, roots } = verdict ?? {};
  assert.deepEqual([verified, outcome, tee, failure, roots], [true, 'accepted', 'snp', null, 'custom']);
  assert.equal(epoch?.manifestSha256, simulator.manifestSha256);
  assert.ok(Date.parse(epoch?.expiresAt ?? '') > Date.parse(epoch?.renewAt ?? ''));
  assert.deepEqual(
    chain.map(({ id, outcome: of }) => `${id} ${of}`),
    ['hardware pass', 'manifest pass', 'coordinator pass', 'mesh pass', 'secret pass'],
  );

  // What the proxy and the service alone know is not in it.
  const text = JSON.stringify(found);
  const nonces = simulator.recorder
    .requests()
    .filter(({ path }) => path.endsWith('/attest'))
    .map(({ body }) => Buffer.from(JSON.parse(body.toString()).Nonce, 'base64'));
  assert.ok(nonces.length > 0);
  const key = simulator.secrets.lookup(proxy.session.current()?.secretId ?? '');
  const secrets = [...nonces, Buffer.from(key ?? '')];
  const forbidden = secrets.flatMap((bytes) => [bytes.toString('hex'), bytes.toString('base64')]);
  for (const secret of [...forbidden, CANARY_KEY, 'a-word-of-the-prompt'])
    assert.ok(secret.length > 10 && !text.includes(secret), 'a secret is in the document');
});

it('GET /status counts requests in flight, and events of streams while they run', async (t) => {
  const { url, get } = await scene(t);
  const { body } = await askChat({ url }, { model: 'sim-40x25', stream: true });
  const reader = body?.getReader();
  await reader?.read();
  await eventually('both', async () => {
    const { traffic } = await get<StatusReport>('/status');
    return traffic.inFlight === 1 && traffic.seconds.some(({ chunks }) => chunks > 0);
  });
  await reader?.cancel();
});
