/**
 * The day after: the service is deployed anew, forgets the secret, and is not accepted any more. From the
 * first request that it denies, all that the proxy shows of itself agrees, and so it does once the service is
 * in order again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

/** ms within which all that is shown must agree. */
const AGREES_WITHIN = 1_000;
const TIMES = { confirmAfter: 2 * AGREES_WITHIN };

for (const managedManifest of [false, true])
  describe(`a proxy with a ${managedManifest ? 'fetched' : 'pinned'} manifest, whose service is redeployed and then rejected`, {
    timeout: 600_000,
  }, () => {
    let proxy: Stack;
    let admin: number;
    before(async () => {
      admin = await freePort();
      proxy = await startStack({
        flags: [`--admin-address=127.0.0.1:${admin}`],
        times: TIMES,
        managedManifest,
      });
    });
    after(() => proxy.close());

    const ask = (): Promise<Response> => askChat(proxy);

    it('says "verified" in every view while the service is verified', async () => {
      assert.equal((await ask()).status, 200);
      await assertEveryView(proxy, admin, 'verified');
    });

    it('says "not verified" in every view a second after the first denied request, and answers 400 with the reason', async () => {
      const { simulator } = proxy;
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
      proxy.simulator.faults.clear();
      await eventually('an answer', async () => (await ask()).status === 200);
      await assertEveryView(proxy, admin, 'verified');
      assert.match(proxy.logLines.join(''), /"INFO".*"msg":"Over: Not verified: the service is rejected/);
      assert.doesNotMatch(proxy.logLines.join(''), /Not verified yet/, 'a state of some milliseconds');
    });
  });
