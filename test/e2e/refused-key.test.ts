/**
 * The service rejects the key of a gateway for a team: developers learn that it is not their token, and the
 * operator is told.
 */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const tokenOf = (name: string): string => `token-of-${name}`;

/** A gateway for these clients. */
async function gateway(
  t: TestContext,
  clients: readonly { readonly name: string; readonly apiKey?: string }[],
) {
  const directory = temporaryDirectory('refused-key-');
  const file = join(directory, 'clients.json');
  const write = (listed: typeof clients): void =>
    writeFileSync(
      file,
      JSON.stringify({
        clients: listed.map((client) => ({ ...client, tokens: [hash('sha256', tokenOf(client.name))] })),
      }),
    );
  writeFileSync(join(directory, 'ann.key'), 'revoked-key-of-ann');
  write(clients);
  const admin = await freePort();
  const stack = await startStack({
    flags: [`--clients=${file}`, `--admin-address=127.0.0.1:${admin}`],
  });
  t.after(() => stack.close());
  return {
    stack,
    write,
    ask: async (name: string): Promise<readonly [status: number, code: string | undefined]> => {
      const response = await askChat(stack, { token: tokenOf(name) });
      const { error } = (await response.json()) as { error?: { code: string } };
      return [response.status, error?.code];
    },
    conditions: async (): Promise<StatusReport['conditions']> => {
      const status = (await (await fetch(`http://127.0.0.1:${admin}/status`)).json()) as StatusReport;
      return status.conditions.filter(({ severity }) => severity !== 'info');
    },
  };
}

describe('an API key of the proxy that the service rejects', { timeout: 600_000 }, () => {
  it('gives developers 400 service_key_rejected and the operator the condition own_key_rejected', async (t) => {
    const { stack, ask, conditions } = await gateway(t, [{ name: 'ann' }]);
    const held = async (): Promise<string[]> =>
      (await conditions()).map(({ id, severity }) => `${id} ${severity}`);
    assert.deepEqual(await ask('ann'), [200, undefined]);
    assert.deepEqual(await held(), []);

    stack.simulator.setApiKeys(['another']);
    for (let i = 0; i < 3; i++) assert.deepEqual(await ask('ann'), [400, 'service_key_rejected']);
    await eventually('the warning', async () => (await held()).includes('own_key_rejected warning'));
    assert.deepEqual(await held(), ['own_key_rejected warning']);
    assert.equal((await fetch(`${stack.url}/readyz`)).status, 204, 'nothing authenticates that 401');

    stack.simulator.setApiKeys([CANARY_KEY]);
    assert.deepEqual(await ask('ann'), [200, undefined]);
    await eventually('no condition', async () => (await held()).length === 0);
  });

  it("is named in the condition if it is a client's, while others are answered, until the client is removed", async (t) => {
    const { stack, write, ask, conditions } = await gateway(t, [
      { name: 'ann', apiKey: '@ann.key' },
      { name: 'bob' },
    ]);
    stack.simulator.setApiKeys([CANARY_KEY]);
    for (let i = 0; i < 4; i++)
      assert.deepEqual(
        [await ask('ann'), await ask('bob')].map(([status]) => status),
        [400, 200],
      );
    const found = await eventually('the condition', async () => (await conditions())[0]);
    assert.match(found.reason, /401 for the key of the client ann in the file of --clients$/);
    const logged = stack.logLines.filter((line) => line.includes('"condition":"own_key_rejected"'));
    assert.equal(logged.length, 1, logged.join('\n'));
    write([{ name: 'bob' }]);
    await eventually('no condition', async () => (await conditions()).length === 0);
  });
});
