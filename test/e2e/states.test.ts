/**
 * A process of the program whose service is rejected, and then in order again: what it shows outside agrees.
 * How each state is reached is in test/session, what each view says of it in test/observe/views.test.ts.
 */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

it('a program says in every view that the service is verified, then rejected, then verified', {
  timeout: 600_000,
}, async (t) => {
  const { simulator, flags, env, close } = await startRemote();
  t.after(() => close());
  const [admin, other] = [await freePort(), await freePort()];
  const addresses = [`--admin-address=127.0.0.1:${admin}`, `--metrics-address=127.0.0.1:${other}`];
  const listeners = ['--port=0', ...addresses, '--shutdown-grace=1s'];
  const proxy = await startProxyProcess([...flags, ...listeners], env);
  t.after(() => proxy.stop('SIGKILL'));
  const ask = async (): Promise<number> => (await askChat(proxy)).status;
  assert.equal(await ask(), 200);
  await assertEveryView(proxy, admin, 'verified');
  const metrics = await (await fetch(`http://127.0.0.1:${other}/metrics`)).text();
  assert.match(metrics, /^privatemode_proxy_requests_total\{.*route="chat".*\} 1$/m);
  assert.equal((await fetch(`http://127.0.0.1:${other}/status`)).status, 404);

  simulator.faults.set('evidence-debug', true);
  simulator.secrets.dropAll();
  assert.equal(await ask(), 400);
  const readyz = async (): Promise<string> => (await fetch(`${proxy.url}/readyz`)).text();
  await eventually('the second rejection', async () => (await readyz()).startsWith('rejected:'));
  await assertEveryView(proxy, admin, 'rejected');
  const rejected = /level=ERROR msg="Not verified: the service is rejected" condition=service_rejected /;
  assert.match(proxy.log(), rejected);

  simulator.faults.clear();
  await eventually('an answer', async () => (await ask()) === 200);
  await assertEveryView(proxy, admin, 'verified');
});
