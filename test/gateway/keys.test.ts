/** API keys, end to end: whose key the service sees, and whose key attests. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it, type TestContext } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const BODY = JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] });

async function scene(t: TestContext, options: Parameters<typeof startStack>[0]) {
  const stack = await startStack(options);
  t.after(() => stack.close());
  return {
    stack,
    chat: (headers: Record<string, string> = {}): Promise<Response> =>
      fetch(`${stack.url}/v1/chat/completions`, { method: 'POST', headers, body: BODY }),
    /** Authorization of the last request; no other header with a key or about the client came with it. */
    seen(): string | undefined {
      const { headers = {} } = stack.simulator.recorder.requests().at(-1) ?? {};
      assert.deepEqual(
        Object.keys(headers).filter((name) => /api-?key|cookie|user-agent/.test(name)),
        [],
      );
      return headers['authorization'];
    },
  };
}

/** All cases: test/pipeline/rewrite-auth.test.ts. */
for (const [flags, sends, seen] of [
  [[], { authorization: 'Bearer client-key', 'x-api-key': 'vendor-key' }, 'Bearer configured'],
  [['--api-key-fallback=never'], { 'x-api-key': 'client-key' }, 'Bearer client-key'],
  [['--api-key-fallback=never'], {}, undefined],
] as const) {
  it(`with a key configured, ${flags[0] ?? 'by default'}, the service sees ${seen ?? 'none'} if a client sends ${JSON.stringify(sends)}`, async (t) => {
    const { stack, chat, seen: last } = await scene(t, { apiKey: 'configured', flags });
    assert.equal((await chat(sends)).status, seen === undefined ? 401 : 200);
    assert.equal(last(), seen);
    await fetch(`${stack.url}/v1/models`, { headers: sends });
    assert.equal(last(), seen);
    const all = stack.simulator.recorder.requests();
    const attested = all.filter(({ path }) => path.startsWith('/privatemode/'));
    assert.ok(attested.length >= 2);
    for (const { headers } of attested) assert.equal(headers['authorization'], 'Bearer configured');
    assert.doesNotMatch(stack.logLines.join(''), /configured"|client-key|vendor-key/);
  });
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

it('a key file is read again on a reload; a file without a key keeps the old one, and no key is in the log', async (t) => {
  const path = join(temporaryDirectory('privatemode-key-'), 'key');
  writeFileSync(path, ' first-key\n');
  const { stack, chat, seen } = await scene(t, { apiKey: `@${path}` });
  const seenAfter = async (content: string, line: string): Promise<string | undefined> => {
    writeFileSync(path, content);
    stack.proxy.reload();
    await eventually(`"${line}"`, () => stack.logLines.join('').includes(line));
    await chat();
    return seen();
  };
  await chat();
  assert.equal(seen(), 'Bearer first-key');
  const key = `second-${CANARY}`;
  assert.equal(await seenAfter(key, 'The API key file was read again'), `Bearer ${key}`);
  const kept = await seenAfter(`PRIVATEMODE_API_KEY=third-${CANARY}\n`, 'the old key stays');
  assert.equal(kept, `Bearer ${key}`);
  assert.ok(!stack.logLines.join('').includes(CANARY));
});
