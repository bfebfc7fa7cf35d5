/**
 * API keys and salts, end to end: whose key the service sees, whose key attests, and whose cache it is. All
 * cases: test/pipeline/rewrite-auth.test.ts and test/pipeline/inject-salt.test.ts.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it, type TestContext } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

async function scene(t: TestContext, options: Parameters<typeof startStack>[0]) {
  const stack = await startStack(options);
  t.after(() => stack.close());
  return {
    stack,
    chat: (headers: Record<string, string> = {}): Promise<Response> =>
      fetch(`${stack.url}/v1/chat/completions`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] }),
      }),
    /** Authorization of the last request. */
    seen: () => stack.simulator.recorder.requests().at(-1)?.headers['authorization'],
  };
}

it("without a key configured, a request without one gets 401 before anything is attested; a client's attests and leaves", async (t) => {
  const { stack, chat, seen } = await scene(t, { apiKey: null, simulator: { apiKey: 'client-key' } });
  const answer = await chat();
  assert.deepEqual([answer.status, answer.headers.get('www-authenticate')], [401, 'Bearer']);
  assert.match(await answer.text(), /"code":"api_key_missing"/);
  assert.equal(stack.simulator.counts['attest'], 0);
  assert.equal((await chat({ 'x-api-key': 'client-key' })).status, 200);
  assert.equal(seen(), 'Bearer client-key');
  stack.simulator.setApiKeys(undefined);
  assert.equal((await chat({ authorization: 'Bearer another' })).status, 200);
  assert.equal(seen(), 'Bearer another');
});

it('a key file is read again on a reload, for the next request, and no key is in the log', async (t) => {
  const path = join(temporaryDirectory('privatemode-key-'), 'key');
  writeFileSync(path, ' first-key\n');
  const { stack, chat, seen } = await scene(t, { apiKey: `@${path}` });
  await chat();
  assert.equal(seen(), 'Bearer first-key');
  writeFileSync(path, `second-${CANARY}`);
  stack.proxy.reload();
  await eventually('the next key', () => chat().then(() => seen() === `Bearer second-${CANARY}`));
  assert.ok(!stack.logLines.join('').includes(CANARY));
});

it('the prompt cache has a salt for each request by default; with --disable-prompt-cache=false a random one per start, or that of --prompt-cache-salt (docs/protocol/inference.md 8)', async (t) => {
  const shared = '--disable-prompt-cache=false';
  const given = 'a literal salt of 32 bytes or more, for all';
  const salts: string[] = [];
  for (const flags of [[], [shared], [shared], [shared, `--prompt-cache-salt=${given}`]]) {
    const { stack, chat } = await scene(t, { flags });
    for (let i = 0; i < 2; i++) {
      assert.equal((await chat()).status, 200);
      const { cache_salt: salt } = JSON.parse(stack.simulator.exchanges.last()?.opened ?? '');
      assert.ok(!stack.logLines.join('').includes(salt), 'the salt is in the log');
      salts.push(salt);
    }
  }
  const order = salts.map((salt) => salts.indexOf(salt));
  assert.deepEqual(order, [0, 1, 2, 2, 4, 4, 6, 6], 'which are the same');
  assert.equal(salts[6], given);
  for (const salt of salts.slice(0, 6)) assert.match(salt, /^[A-Za-z0-9+/]{43}=$/);
});
