/**
 * The day after: the service is deployed anew, forgets the secret, and is not accepted any more. From the
 * first request that it denies, all that the proxy shows of itself agrees, in one process and in workers, and
 * so it does once the service is in order again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { clientOptions } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

/** ms within which all that is shown must agree. */
const AGREES_WITHIN = 2_000;

for (const [mode, flags] of [
  ['one process', []],
  ['two workers', ['--workers=2']],
] as const) {
  describe(`a proxy (${mode}) whose service is redeployed and then rejected`, { timeout: 600_000 }, () => {
    let remote: Remote;
    let proxy: Program;
    let admin: number;
    before(async () => {
      remote = await startRemote();
      admin = await freePort();
      proxy = await startProxyProcess(
        [...remote.flags, ...flags, '--port=0', `--admin-address=127.0.0.1:${admin}`, '--shutdown-grace=1s'],
        remote.env,
      );
    });
    after(async () => {
      await proxy.stop('SIGKILL');
      await remote.close();
    });

    const ask = (): Promise<Response> => askChat(proxy);
    const get = (url: string): Promise<Response> => fetch(url, { headers: { connection: 'close' } });

    it('says "verified" in every view while the service is verified', async () => {
      assert.equal((await ask()).status, 200);
      await assertEveryView(proxy, admin, 'verified');
    });

    it('says "not verified" in every view two seconds after the first denied request, and answers 400 with the reason', async () => {
      const { simulator } = remote;
      simulator.faults.set('evidence-debug', true);
      simulator.secrets.dropAll();
      const denials = simulator.counts['inference'] ?? 0;
      const first = ask();
      await eventually('the first denied request', () => (simulator.counts['inference'] ?? 0) > denials);
      await delay(AGREES_WITHIN);
      await assertEveryView(proxy, admin, 'rejected-once');
      const response = await first;
      const { error } = (await response.json()) as { error: { code: string } };
      assert.deepEqual(
        [response.status, error.code, response.headers.get('x-should-retry')],
        [400, 'attestation_failed', 'false'],
      );
      assert.equal((await ask()).status, 400);
    });

    it('says "verified" in every view again once the service is accepted', async () => {
      remote.simulator.faults.clear();
      await eventually('an answer', async () => (await ask()).status === 200);
      await eventually('workers that know', async () => (await get(`${proxy.url}/readyz`)).status === 204);
      await assertEveryView(proxy, admin, 'verified');
      assert.match(proxy.log(), /INFO .*The service is no longer rejected/);
      assert.doesNotMatch(proxy.log(), /Not verified yet/, 'a state of some milliseconds');
    });
  });
}

describe('the client library with a service that is redeployed and then rejected', {
  timeout: 600_000,
}, () => {
  it('fails requests with attestation_failed, not with the error of the service, until the service is accepted', async () => {
    const simulator = await startTestSimulator({ apiKey: 'library-key' });
    const { network, ...options } = clientOptions(simulator);
    const client = createPrivatemodeFetch(options);
    const ask = async (): Promise<{ status: number; code: string | undefined }> => {
      const response = await client('https://any.invalid/v1/chat/completions', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'hello' }] }),
      });
      const { error } = (await response.json()) as { error?: { code: string } };
      return { status: response.status, code: error?.code };
    };
    try {
      assert.equal((await ask()).status, 200);
      simulator.faults.set('evidence-debug', true);
      simulator.secrets.dropAll();
      assert.deepEqual(await ask(), { status: 400, code: 'attestation_failed' });
      simulator.faults.clear();
      await eventually('an answer', async () => (await ask()).status === 200);
    } finally {
      client.close();
      await network.destroy();
      await simulator.close();
    }
  });
});
