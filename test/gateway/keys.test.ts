/** API keys and salts, end to end: whose key the service sees, whose key attests, and whose cache it is. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

async function scene(t: TestContext, options: Parameters<typeof startStack>[0]) {
  const stack = await startStack(options);
  t.after(() => stack.close());
  return {
    stack,
    chat: (headers: Record<string, string> = {}, members: object = {}): Promise<Response> =>
      fetch(`${stack.url}/v1/chat/completions`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }], ...members }),
      }),
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

const SALT = 'a literal salt of 32 bytes or more, for all';
const OWN = 'a salt of the request, which always wins, too';
const RANDOM = /^[A-Za-z0-9+/]{43}=$/;

/** How bodies get their salt and shard key is test/pipeline/inject-salt.test.ts and shard-key.test.ts. */
describe('the prompt cache (docs/protocol/inference.md 8)', { concurrency: true }, () => {
  /** A chat through a proxy with these flags, and what the service found in it. */
  async function chatting(t: TestContext, ...flags: readonly string[]) {
    const { stack, chat } = await scene(t, { flags });
    return async (members: object = {}) => {
      const long = { messages: [{ role: 'user', content: 'x'.repeat(200) }], ...members };
      assert.equal((await chat({}, long)).status, 200);
      const { cache_salt: salt } = JSON.parse(stack.simulator.exchanges.last()?.opened ?? '') as {
        cache_salt: string;
      };
      assert.ok(!stack.logLines.join('').includes(salt), 'the salt is in the log');
      const shardKey = stack.simulator.recorder.requests().at(-1)?.headers['privatemode-shard-key'];
      const isShared =
        shardKey?.slice(0, 16) === createHash('sha256').update(salt).digest('hex').slice(0, 16);
      return { salt, shardKey, isShared };
    };
  }

  it('by default gives each request a random salt of its own and no shard key, but keeps a salt of the request', async (t) => {
    const chat = await chatting(t);
    const seen = [await chat(), await chat({ cache_salt: '' })];
    assert.notEqual(seen[0]?.salt, seen[1]?.salt);
    for (const { salt, shardKey } of seen) {
      assert.match(salt, RANDOM);
      assert.equal(shardKey, undefined);
    }
    const { salt, isShared } = await chat({ cache_salt: OWN });
    assert.deepEqual([salt, isShared], [OWN, true]);
  });

  it('with --disable-prompt-cache=false has one salt for all requests: a random one per start, or that of --prompt-cache-salt', async (t) => {
    const shared = '--disable-prompt-cache=false';
    const [random, another] = [await chatting(t, shared), await chatting(t, shared)];
    const { salt, isShared } = await random();
    assert.match(salt, RANDOM);
    assert.deepEqual([isShared, (await random()).salt], [true, salt]);
    assert.notEqual((await another()).salt, salt, 'the salt of another start');
    assert.equal((await random({ cache_salt: OWN })).salt, OWN);
    assert.equal((await (await chatting(t, shared, `--prompt-cache-salt=${SALT}`))()).salt, SALT);
  });
});
