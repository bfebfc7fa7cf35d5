/**
 * Usage as programs meet it: the usual loop takes `choices[0]` of every chunk, which a chunk of usage alone
 * does not have, and those who add the counts of all chunks up count the prompt once per chunk. So usage
 * comes as it was asked for.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type OpenAI from 'openai';
import { proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { python } from '../support/processes/foreign-programs.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';
import { ANTHROPIC_CLIENTS, all, OPENAI_CLIENTS, type OpenAIClass } from './versions.ts';

const PYTHON = python([join(ROOT, '.tools/python/bin')]);

/** Twenty tokens out. */
const MODEL = 'sim-20x0';
const TEXT = Array.from({ length: 20 }, (_, index) => `t${index}`).join(' ');
/** The service counts four bytes of the conversation's JSON as a token. */
const CHAT_USAGE = { prompt_tokens: 9, completion_tokens: 20, total_tokens: 29 };
const SOUND = Buffer.from('some sound');
const SOUND_SHA256 = createHash('sha256').update(SOUND).digest('hex');
const COMPLETION_USAGE = { prompt_tokens: 2, completion_tokens: 20, total_tokens: 22 };

interface Options {
  readonly include_usage?: boolean;
  readonly continuous_usage_stats?: boolean;
}

interface Chunk {
  readonly choices: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly text?: string;
  }[];
  readonly usage?: object | null;
}

/** Streams through a client; resolves with its chunks. */
type Ask = (client: OpenAI, Client: OpenAIClass, options?: Options) => Promise<Chunk[]>;

interface Endpoint {
  readonly ask: Ask;
  readonly text: string;
  readonly usage: object;
}

const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  'a chat': {
    text: TEXT,
    usage: CHAT_USAGE,
    ask: async (client, _, options) =>
      all(
        await client.chat.completions.create({
          model: MODEL,
          messages: [{ role: 'user', content: 'ask' }],
          stream: true,
          ...(options === undefined ? {} : { stream_options: options }),
        }),
      ),
  },
  'a legacy completion': {
    text: TEXT,
    usage: COMPLETION_USAGE,
    ask: async (client, _, options) =>
      all(
        await client.completions.create({
          model: MODEL,
          prompt: 'asking',
          stream: true,
          ...(options === undefined ? {} : { stream_options: options }),
        }),
      ),
  },
  'a transcription': {
    // The simulated transcript tells what arrived.
    text: `model=${MODEL} stream=true file=10 bytes sha256:${SOUND_SHA256}`,
    usage: { prompt_tokens: 1, completion_tokens: 5, total_tokens: 6 },
    async ask(client, Client, options = {}) {
      const flags = Object.entries(options).map(([name, value]) => [
        name === 'include_usage' ? 'stream_include_usage' : 'stream_continuous_usage_stats',
        value,
      ]);
      const stream = await client.audio.transcriptions.create({
        model: MODEL,
        file: await Client.toFile(SOUND, 'a.wav'),
        stream: true,
        ...(Object.fromEntries(flags) as object),
      });
      // The service streams transcripts in the shape of a chat, not in that of the client's types.
      return (await all(stream)) as unknown as Chunk[];
    },
  },
};

/** What the usual program does with a stream; throws where a chunk has no first choice. */
const textOf = (chunks: readonly Chunk[]): string =>
  chunks
    .map((chunk) => {
      const choice = chunk.choices[0] as Chunk['choices'][number];
      return choice.delta?.content ?? choice.text ?? '';
    })
    .join('');

const hasUsage = (chunk: Chunk): boolean => 'usage' in chunk;

describe('the token usage of a stream', { timeout: 600_000 }, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  for (const [name, Client] of Object.entries(OPENAI_CLIENTS)) {
    const connect = (): OpenAI =>
      new Client({ baseURL: `${stack.url}/v1`, apiKey: 'k', maxRetries: 0, timeout: 120_000 });

    for (const [endpoint, { ask, text, usage }] of Object.entries(ENDPOINTS)) {
      describe(`${name}, ${endpoint}`, () => {
        const UNASKED: readonly Options[] = [
          {},
          { include_usage: false },
          { continuous_usage_stats: true },
          { include_usage: false, continuous_usage_stats: true },
        ];
        for (const options of [undefined, ...UNASKED]) {
          it(`with ${JSON.stringify(options) ?? 'no options'}: every chunk has a choice, none has usage`, async () => {
            const chunks = await ask(connect(), Client, options);
            assert.equal(textOf(chunks), text);
            assert.equal(chunks.filter(hasUsage).length, 0);
          });
        }

        for (const options of [
          { include_usage: true },
          { include_usage: true, continuous_usage_stats: false },
        ]) {
          it(`with ${JSON.stringify(options)}: usage comes once, in a last chunk without choices`, async () => {
            const chunks = await ask(connect(), Client, options);
            assert.equal(textOf(chunks.slice(0, -1)), text);
            assert.deepEqual(chunks.at(-1)?.choices, []);
            assert.deepEqual(chunks.filter(hasUsage), chunks.slice(-1));
            assert.deepEqual(chunks.at(-1)?.usage, usage);
          });
        }

        it('with continuous usage: every chunk has the count so far', async () => {
          const chunks = await ask(connect(), Client, { include_usage: true, continuous_usage_stats: true });
          assert.equal(textOf(chunks.slice(0, -1)), text);
          assert.ok(chunks.every(hasUsage));
          assert.deepEqual(chunks.at(-1)?.usage, usage);
        });
      });
    }

    it(`${name}: the stream helper gathers the answer, with usage if it was asked for`, async () => {
      const request = { model: MODEL, messages: [{ role: 'user' as const, content: 'ask' }] };
      const { completions } = connect().chat;
      const bare = await completions.stream(request).finalChatCompletion();
      assert.equal(bare.choices[0]?.message.content, TEXT);
      assert.equal(bare.usage ?? undefined, undefined);
      const counted = completions.stream({ ...request, stream_options: { include_usage: true } });
      assert.deepEqual((await counted.finalChatCompletion()).usage, CHAT_USAGE);
    });
  }

  for (const [name, Class] of Object.entries(ANTHROPIC_CLIENTS)) {
    it(`${name}: messages keep their usage, which that API always has`, async () => {
      const client = new Class({ baseURL: stack.url, apiKey: 'k', maxRetries: 0, timeout: 120_000 });
      const request = {
        model: MODEL,
        max_tokens: 100,
        messages: [{ role: 'user' as const, content: 'ask' }],
      };
      const counts = (await all(await client.messages.create({ ...request, stream: true }))).flatMap(
        (event) =>
          event.type === 'message_start'
            ? [event.message.usage]
            : event.type === 'message_delta'
              ? [event.usage]
              : [],
      );
      assert.deepEqual(counts, [{ input_tokens: 9, output_tokens: 0 }, { output_tokens: 20 }]);
      const { usage } = await client.messages.stream(request).finalMessage();
      assert.deepEqual([usage.input_tokens, usage.output_tokens], [9, 20]);
    });
  }

  it('the usual loop in Python takes the first choice of every chunk', {
    skip: proxyAlone('listener') || PYTHON.skip,
  }, async () => {
    const source = `
from openai import OpenAI

client = OpenAI(max_retries=0, timeout=10)
asked = dict(model="${MODEL}", messages=[{"role": "user", "content": "ask"}], stream=True)
print("".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked)))
options = {"include_usage": True}
chunks = list(client.chat.completions.create(**asked, stream_options=options))
print([chunk.usage.total_tokens for chunk in chunks if chunk.usage], len(chunks[-1].choices))`;
    const kept = Object.entries(cleanEnvironment()).filter(([key]) => !/^OPENAI_/.test(key));
    const env = { ...Object.fromEntries(kept), OPENAI_BASE_URL: `${stack.url}/v1`, OPENAI_API_KEY: 'k' };
    const assignments = Object.entries(env).map(([key, value]) => `${key}=${value}`);
    const { status, stdout, stderr } = await runAside('/usr/bin/env', [
      ...['-i', ...assignments],
      ...[PYTHON.path, '-c', source],
    ]);
    assert.equal(status, 0, stderr);
    assert.equal(stdout, `${TEXT}\n[29] 0\n`);
  });
});
