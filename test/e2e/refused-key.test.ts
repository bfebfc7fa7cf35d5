/** The service rejects the key of a gateway for a team: developers learn that it is not their token, and the operator is told. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('a key of the gateway that the service rejects', { timeout: 60_000, concurrency: true }, () => {
  for (const workers of [1, 2]) {
    it(`is told to developers as none of theirs, and to the operator by a condition, with --workers ${workers}`, async () => {
      await using opened = new AsyncDisposableStack();
      const remote = await startRemote();
      opened.defer(() => remote.close());
      remote.simulator.setApiKeys([CANARY_KEY]);
      const clients = join(remote.directory, 'clients.json');
      writeFileSync(
        clients,
        JSON.stringify({ clients: [{ name: 'ann', tokens: [sha256('token-of-ann')] }] }),
      );
      const admin = await freePort();
      const proxy = await startProxyProcess(
        [
          ...[...remote.flags, '--port=0', `--workers=${workers}`, `--clients=${clients}`],
          ...[`--admin-address=127.0.0.1:${admin}`, '--shutdown-grace=1s'],
        ],
        remote.env,
      );
      opened.defer(async () => void (await proxy.stop('SIGKILL')));
      const ask = async (): Promise<readonly [status: number, code: string | undefined]> => {
        const response = await fetch(`${proxy.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { authorization: 'Bearer token-of-ann', connection: 'close' },
          body: JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'hello' }] }),
        });
        const { error } = (await response.json()) as { error?: { code: string } };
        return [response.status, error?.code];
      };
      const conditions = async (): Promise<string[]> => {
        const status = (await (await fetch(`http://127.0.0.1:${admin}/status`)).json()) as StatusReport;
        return status.conditions
          .filter(({ severity }) => severity !== 'info')
          .map(({ id, severity }) => `${id} ${severity}`);
      };
      assert.deepEqual(await ask(), [200, undefined]);
      assert.deepEqual(await conditions(), []);

      remote.simulator.setApiKeys(['another']);
      assert.deepEqual(await ask(), [400, 'service_key_rejected']);
      await eventually('the warning', async () => (await conditions()).includes('own_key_rejected warning'));
      for (let i = 0; i < 2; i++) assert.deepEqual(await ask(), [400, 'service_key_rejected']);
      await eventually('more than that', async () =>
        (await conditions()).includes('own_key_rejected critical'),
      );
      assert.equal((await fetch(`${proxy.url}/readyz`)).status, 204, 'nothing authenticates that 401');

      remote.simulator.setApiKeys([CANARY_KEY]);
      assert.deepEqual(await ask(), [200, undefined]);
      await eventually('no condition', async () => (await conditions()).length === 0);
    });
  }
});
