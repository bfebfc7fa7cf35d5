/**
 * The prompt cache rules (docs/protocol/inference.md 8), as the service sees them: the salt in the opened
 * request, the shard key.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it, type TestContext } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';

const SALT = 'a literal salt of 32 bytes or more, for all';
const OWN = 'a salt of the request, which always wins, too';
const RANDOM = /^[A-Za-z0-9+/]{43}=$/;
const SHARED = '--disable-prompt-cache=false';
const MESSAGES = '/v1/messages';

interface Seen {
  readonly salt: string;
  readonly shardKey: string | undefined;
}

/** Sends a chat, and tells what the service found in it. */
async function chat(stack: Stack, members: object = {}, path = '/v1/chat/completions'): Promise<Seen> {
  const messages = [{ role: 'user', content: 'x'.repeat(200) }];
  const response = await fetch(`${stack.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim-echo', messages, max_tokens: 9, ...members }),
  });
  assert.equal(response.status, 200, await response.text());
  assert.deepEqual(stack.simulator.exchanges.violations(), []);
  const opened = JSON.parse(stack.simulator.exchanges.last()?.opened ?? '') as { cache_salt: string };
  const { headers } = stack.simulator.recorder.requests().at(-1) as { headers: Record<string, string> };
  return { salt: opened.cache_salt, shardKey: headers['privatemode-shard-key'] };
}

const prefixOf = (salt: string): string => createHash('sha256').update(salt).digest('hex').slice(0, 16);

/** A proxy with these flags, until the test is over. */
async function withFlags(t: TestContext, ...flags: readonly string[]): Promise<Stack> {
  const stack = await startStack({ flags });
  t.after(() => stack.close());
  return stack;
}

/** How bodies get their salt and shard key is test/pipeline/inject-salt.test.ts and shard-key.test.ts. */
describe('the prompt cache', { concurrency: true }, () => {
  it('by default gives each request a random salt of its own and no shard key, but keeps a salt of the request', async (t) => {
    const stack = await withFlags(t);
    const seen = [await chat(stack), await chat(stack, { cache_salt: '' }), await chat(stack, {}, MESSAGES)];
    assert.equal(new Set(seen.map(({ salt }) => salt)).size, 3);
    for (const { salt, shardKey } of seen) {
      assert.match(salt, RANDOM);
      assert.equal(shardKey, undefined);
    }
    const { salt, shardKey } = await chat(stack, { cache_salt: OWN });
    assert.deepEqual([salt, shardKey?.slice(0, 16)], [OWN, prefixOf(OWN)]);
  });

  it('with --disable-prompt-cache=false has one random salt per start for all requests, and shard keys for it', async (t) => {
    const stack = await withFlags(t, SHARED);
    const [first, second] = [await chat(stack), await chat(stack, {}, MESSAGES)];
    assert.match(first.salt, RANDOM);
    assert.equal(second.salt, first.salt);
    assert.match(first.shardKey ?? '', new RegExp(`^${prefixOf(first.salt)}-[A-Za-z0-9+/]+$`));
    assert.notEqual((await chat(await withFlags(t, SHARED))).salt, first.salt, 'the salt of another start');
    assert.equal((await chat(stack, { cache_salt: OWN })).salt, OWN);
  });

  it('has the salt of --prompt-cache-salt, and does not log it', async (t) => {
    const stack = await withFlags(t, SHARED, `--prompt-cache-salt=${SALT}`);
    const { salt, shardKey } = await chat(stack);
    assert.deepEqual([salt, shardKey?.slice(0, 16)], [SALT, prefixOf(SALT)]);
    assert.ok(!stack.logLines.join('').includes(SALT), 'the salt is in the log');
  });
});
