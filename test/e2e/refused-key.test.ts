/**
 * The service rejects the key of a gateway for a team: developers learn that it is not their token, and the
 * operator is told.
 */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

/** A gateway for the clients in `clients.json` of the remote's directory; `admin`: the port of its status. */
async function startGateway(opened: AsyncDisposableStack, remote: Remote, workers: number) {
  const admin = await freePort();
  const proxy = await startProxyProcess(
    [
      ...[...remote.flags, '--port=0', `--workers=${workers}`],
      ...[`--clients=${join(remote.directory, 'clients.json')}`, `--admin-address=127.0.0.1:${admin}`],
      '--shutdown-grace=1s',
    ],
    remote.env,
  );
  opened.defer(async () => void (await proxy.stop('SIGKILL')));
  return { proxy, admin };
}

describe('an API key of the proxy that the service rejects', { timeout: 600_000, concurrency: true }, () => {
  for (const workers of [1, 2]) {
    it(`gives developers 400 service_key_rejected and the operator the condition own_key_rejected (--workers ${workers})`, async () => {
      await using opened = new AsyncDisposableStack();
      const remote = await startRemote();
      opened.defer(() => remote.close());
      remote.simulator.setApiKeys([CANARY_KEY]);
      const clients = join(remote.directory, 'clients.json');
      writeFileSync(
        clients,
        JSON.stringify({ clients: [{ name: 'ann', tokens: [hash('sha256', 'token-of-ann')] }] }),
      );
      const { proxy, admin } = await startGateway(opened, remote, workers);
      const ask = async (): Promise<readonly [status: number, code: string | undefined]> => {
        const response = await askChat(proxy, { token: 'token-of-ann' });
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
      assert.deepEqual(await conditions(), ['own_key_rejected warning']);
      assert.equal((await fetch(`${proxy.url}/readyz`)).status, 204, 'nothing authenticates that 401');

      remote.simulator.setApiKeys([CANARY_KEY]);
      assert.deepEqual(await ask(), [200, undefined]);
      await eventually('no condition', async () => (await conditions()).length === 0);
    });

    it(`is named in the condition if it is a client's, while others are answered, until the client is removed (--workers ${workers})`, async () => {
      await using opened = new AsyncDisposableStack();
      const remote = await startRemote();
      opened.defer(() => remote.close());
      remote.simulator.setApiKeys([CANARY_KEY]);
      const clients = join(remote.directory, 'clients.json');
      writeFileSync(join(remote.directory, 'ann.key'), 'revoked-key-of-ann');
      const [ann, bob] = [
        { name: 'ann', tokens: [hash('sha256', 'token-of-ann')], apiKey: '@ann.key' },
        { name: 'bob', tokens: [hash('sha256', 'token-of-bob')] },
      ];
      writeFileSync(clients, JSON.stringify({ clients: [ann, bob] }));
      const { proxy, admin } = await startGateway(opened, remote, workers);
      const ask = async (name: string): Promise<number> => {
        const response = await askChat(proxy, { token: `token-of-${name}` });
        await response.arrayBuffer();
        return response.status;
      };
      const rejected = async () => {
        const status = (await (await fetch(`http://127.0.0.1:${admin}/status`)).json()) as StatusReport;
        return status.conditions.find(({ id }) => id === 'own_key_rejected');
      };
      for (let i = 0; i < 4; i++) assert.deepEqual([await ask('ann'), await ask('bob')], [400, 200]);
      const found = await eventually('the condition', rejected);
      assert.match(found.message, /401 for the key of the client ann in the file of --clients$/);
      const logged = (): string[] =>
        proxy
          .log()
          .split('\n')
          .filter((line) => line.includes('condition=own_key_rejected'));
      assert.equal(logged().length, 1, proxy.log());
      writeFileSync(clients, JSON.stringify({ clients: [bob] }));
      await eventually('no condition', async () => (await rejected()) === undefined);
    });
  }
});
