/** A client that its application dropped comes to rest. The file turns the clock that the library reads. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { withSimulator } from '../support/remote/simulator.ts';

const [now, set] = [Date.now, globalThis.setTimeout];
let passed = 0;
Date.now = () => now() + passed;
/** What runs when a timer of 30 s ends: that is how long the alarm of a session sleeps at most. */
let alarms: (() => void)[] = [];
globalThis.setTimeout = ((run: () => void, ms?: number, ...more: []) => {
  if (ms === 30_000) alarms.push(run);
  return set(run, ms, ...more);
}) as typeof setTimeout;
// The library takes Date.now when it is loaded.
const { clientOptions } = await import('../support/doors/library-door.ts');
const { createPrivatemodeFetch } = await import('../../lib/client-library/fetch.ts');

/** Lets the wall clock show that many minutes after the start, and the alarms notice it. */
function pass(minutes: number): void {
  passed = minutes * 60_000;
  const due = alarms;
  alarms = [];
  for (const run of due) run();
}

describe('the client library', { timeout: 600_000 }, () => {
  it('renews the secret of a client that is used, and not that of a client that nobody uses', async () => {
    await withSimulator({}, async (simulator) => {
      const { network, ...options } = clientOptions(simulator);
      const [used, dropped] = [createPrivatemodeFetch(options), createPrivatemodeFetch(options)];
      const ask = async (client: typeof used): Promise<void> =>
        assert.equal((await client('https://any.invalid/v1/models')).status, 200);
      const secretOf = ({ protection }: typeof used): string | undefined => protection()?.secretId;
      for (const client of [used, dropped]) await ask(client);
      let known = [used, dropped].map(secretOf);
      pass(46);
      await eventually('both renewals', () =>
        [used, dropped].every((each, i) => secretOf(each) !== known[i]),
      );
      known = [used, dropped].map(secretOf);
      await ask(used);
      pass(92);
      await eventually('the renewal', () => secretOf(used) !== known[0]);
      assert.equal(secretOf(dropped), known[1]);
      assert.equal(simulator.counts['attest'], 5);
      used.close();
      dropped.close();
      await network.destroy();
    });
  });
});
