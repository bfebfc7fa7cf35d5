/**
 * The prompt cache rules (docs/protocol/inference.md 8), as the service sees them: the salt in the opened
 * request, the shard key.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const SALT = 'a literal salt of 32 bytes or more, for all';
const OWN = 'a salt of the request, which always wins, too';

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

function withStack(flags: readonly string[], tests: (stack: () => Stack) => void): void {
  let stack: Stack | undefined;
  before(async () => {
    stack = await startStack({ flags });
  });
  after(() => stack?.close());
  tests(() => stack as Stack);
}

describe('the prompt cache, by default', () => {
  withStack([], (stack) => {
    it('each request gets a random salt of its own, and no shard key', async () => {
      const seen = [await chat(stack()), await chat(stack()), await chat(stack(), {}, '/v1/messages')];
      assert.equal(new Set(seen.map(({ salt }) => salt)).size, 3);
      for (const { salt, shardKey } of seen) {
        assert.match(salt, /^[A-Za-z0-9+/]{43}=$/);
        assert.equal(shardKey, undefined);
      }
    });

    it('a salt of the request is kept, and the request gets a shard key for that salt', async () => {
      const { salt, shardKey } = await chat(stack(), { cache_salt: OWN });
      assert.equal(salt, OWN);
      assert.match(shardKey ?? '', new RegExp(`^${prefixOf(OWN)}-[A-Za-z0-9+/]+$`));
    });

    it('an empty cache_salt and null count as no salt', async () => {
      for (const cache_salt of ['', null]) {
        const { salt, shardKey } = await chat(stack(), { cache_salt });
        assert.match(salt, /^[A-Za-z0-9+/]{43}=$/);
        assert.equal(shardKey, undefined);
      }
    });

    it('a salt that is too short gets 400, and nothing is sent', async () => {
      const before = stack().simulator.counts['inference'];
      const response = await fetch(`${stack().url}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify({ model: 'sim-echo', messages: [], cache_salt: 'short' }),
      });
      assert.equal(response.status, 400);
      assert.match(await response.text(), /"code":"salt_too_short"/);
      assert.equal(stack().simulator.counts['inference'], before);
    });

    it('embeddings get no salt', async () => {
      const response = await fetch(`${stack().url}/v1/embeddings`, {
        method: 'POST',
        body: JSON.stringify({ model: 'sim-embed', input: 'x' }),
      });
      assert.equal(response.status, 200);
      assert.doesNotMatch(stack().simulator.exchanges.last()?.opened ?? '', /salt/);
    });
  });
});

describe('with --disable-prompt-cache=false', () => {
  withStack(['--disable-prompt-cache=false'], (stack) => {
    it('all requests share one random salt per start, and have shard keys for that salt', async () => {
      const first = await chat(stack());
      const second = await chat(stack(), {}, '/v1/messages');
      assert.match(first.salt, /^[A-Za-z0-9+/]{43}=$/);
      assert.equal(second.salt, first.salt);
      assert.match(first.shardKey ?? '', new RegExp(`^${prefixOf(first.salt)}-`));
    });

    it('each start has another random salt', async () => {
      const restarted = await startStack({ flags: ['--disable-prompt-cache=false'] });
      try {
        const { salt } = await chat(restarted);
        assert.match(salt, /^[A-Za-z0-9+/]{43}=$/);
        assert.notEqual(salt, (await chat(stack())).salt);
      } finally {
        await restarted.close();
      }
    });

    it('a salt of the request replaces the shared salt', async () => {
      const { salt, shardKey } = await chat(stack(), { cache_salt: OWN });
      assert.deepEqual([salt, shardKey?.slice(0, 16)], [OWN, prefixOf(OWN)]);
    });

    it('a prompt of more than a million tokens, images included, gets 400 in words at which agents compact', async () => {
      const source = { type: 'base64', media_type: 'image/png', data: 'x'.repeat(820_000) };
      const prompts = [
        ['/v1/chat/completions', 'x'.repeat(4_100_000)],
        ['/v1/messages', Array.from({ length: 5 }, () => ({ type: 'image', source }))],
      ] as const;
      for (const [path, content] of prompts) {
        const messages = [{ role: 'user', content }];
        const body = JSON.stringify({ model: 'sim-echo', max_tokens: 9, messages });
        const response = await fetch(`${stack().url}${path}`, { method: 'POST', body });
        assert.equal(response.status, 400);
        assert.equal(response.headers.get('privatemode-proxy-error'), 'context_too_large');
        const { error } = (await response.json()) as { error: { message: string } };
        assert.match(
          error.message,
          /\bprompt is too long: more than 1000000 tokens, .* images included\. .*--disable-prompt-cache=true/,
        );
      }
    });
  });
});

describe('with --prompt-cache-salt', () => {
  withStack(['--disable-prompt-cache=false', `--prompt-cache-salt=${SALT}`], (stack) => {
    it('requests share the literal salt, which is not in the log', async () => {
      const { salt, shardKey } = await chat(stack());
      assert.deepEqual([salt, shardKey?.slice(0, 16)], [SALT, prefixOf(SALT)]);
      assert.ok(!stack().logLines.join('').includes(SALT), 'the salt is in the log');
    });
  });
});

describe('with --prompt-cache-salt=@file', () => {
  const directory = temporaryDirectory('privatemode-salt-');
  const path = join(directory, 'salt');
  writeFileSync(path, `\n  ${SALT}\n`);
  withStack(['--disable-prompt-cache=false', `--prompt-cache-salt=@${path}`], (stack) => {
    it('the trimmed text of the file is the salt', async () => {
      assert.equal((await chat(stack())).salt, SALT);
    });
  });
});
