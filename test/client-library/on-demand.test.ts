/** A client that its application dropped comes to rest. The file turns the clock that the library reads. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { withSimulator } from '../support/remote/simulator.ts';

const now = Date.now;
let passed = 0;
Date.now = () => now() + passed;
// The library takes Date.now when it is loaded.
const { clientOptions } = await import('../support/doors/library-door.ts');
const { createPrivatemodeFetch } = await import('../../lib/client-library/fetch.ts');

describe('the client library', { timeout: 600_000 }, () => {
  it('renews the secret of a client that is used, and not that of a client that nobody uses', async () => {
    await withSimulator({}, async (simulator) => {
      const { network, ...options } = clientOptions(simulator);
      const [used, dropped] = [createPrivatemodeFetch(options), createPrivatemodeFetch(options)];
      const ask = async (client: typeof used): Promise<void> =>
        assert.equal((await client('https://any.invalid/v1/models')).status, 200);
      const secretOf = ({ protection }: typeof used): string | undefined => protection()?.secretId;
      for (const client of [used, dropped]) await ask(client);
      const known = [used, dropped].map(secretOf);
      passed = 46 * 60_000;
      await ask(used);
      await eventually('the renewal', () => secretOf(used) !== known[0]);
      assert.equal(secretOf(dropped), known[1]);
      assert.equal(simulator.counts['attest'], 3);
      used.close();
      dropped.close();
      await network.destroy();
    });
  });
});
