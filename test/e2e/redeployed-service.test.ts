/**
 * The day after: the service is deployed anew, forgets the secret, and is not accepted any more. From the
 * first request that it denies, all that the proxy shows of itself agrees, and so it does once the service is
 * in order again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Simulator } from '../../simulator/simulator.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

/** ms within which all that is shown must agree. */
const AGREES_WITHIN = 1_000;
const TIMES = { confirmAfter: 2 * AGREES_WITHIN };

/** Where the proxy listens, and what it has logged. */
interface Running {
  readonly url: string;
  readonly simulator: Simulator;
  readonly log: () => string;
  stop(): Promise<unknown>;
}

async function inThisProcess(admin: number): Promise<Running> {
  const stack = await startStack({
    flags: [`--admin-address=127.0.0.1:${admin}`],
    times: TIMES,
  });
  return {
    url: stack.url,
    simulator: stack.simulator,
    log: () => stack.logLines.join(''),
    stop: () => stack.close(),
  };
}

describe('a proxy whose service is redeployed and then rejected', { timeout: 600_000 }, () => {
  let proxy: Running;
  let admin: number;
  before(async () => {
    admin = await freePort();
    proxy = await inThisProcess(admin);
  });
  after(() => proxy.stop());

  const ask = (): Promise<Response> => askChat(proxy);
  const get = (url: string): Promise<Response> => fetch(url, { headers: { connection: 'close' } });

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
    await eventually('the readiness', async () => (await get(`${proxy.url}/readyz`)).status === 204);
    await assertEveryView(proxy, admin, 'verified');
    assert.match(proxy.log(), /INFO.*The service is no longer rejected/);
    assert.doesNotMatch(proxy.log(), /Not verified yet/, 'a state of some milliseconds');
  });
});
