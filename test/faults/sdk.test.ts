/**
 * The official clients under every fault: the whole answer, or an error that is raised. A shortened answer that a program
 * takes for the whole would be the worst a proxy can do.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import PreviousAnthropic from 'anthropic-previous';
import OpenAI from 'openai';
import PreviousOpenAI from 'openai-previous';
import { type Stack, startStack } from '../support/stack.ts';
import type { Mode } from './ask.ts';
import { MATRIX, nameOf } from './matrix.ts';

/** Enough for faults at the fourth event; each word is a further event in five hundred responses. */
const PROMPT = Array.from({ length: 6 }, (_, i) => `word-${i}`).join(' ');
const MESSAGES = [{ role: 'user' as const, content: PROMPT }];
const OPTIONS = { apiKey: 'placeholder', maxRetries: 0, timeout: 30_000 };

/** Asks through one official client; resolves with the words of the answer, or rejects with what it raised. */
type Ask = (url: string, model: string, mode: Mode) => Promise<string>;

const openai =
  (Client: typeof OpenAI): Ask =>
  async (url, model, mode) => {
    const { completions } = new Client({ ...OPTIONS, baseURL: `${url}/v1` }).chat;
    if (mode === 'unary') {
      const completion = await completions.create({ model, messages: MESSAGES });
      return completion.choices[0]?.message.content ?? '';
    }
    let text = '';
    for await (const chunk of await completions.create({ model, messages: MESSAGES, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? '';
    }
    return text;
  };

const anthropic =
  (Client: typeof Anthropic): Ask =>
  async (url, model, mode) => {
    const { messages } = new Client({ ...OPTIONS, baseURL: url });
    const body = { model, messages: MESSAGES, max_tokens: 1000 };
    if (mode === 'unary') {
      const [block] = (await messages.create(body)).content;
      return block?.type === 'text' ? block.text : '';
    }
    let text = '';
    for await (const event of await messages.create({ ...body, stream: true })) {
      if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text;
    }
    return text;
  };

/** The helpers that gather a stream by themselves, and say when it is complete. */
const gathered: Record<string, Ask> = {
  'openai, stream helper': async (url, model) => {
    const { completions } = new OpenAI({ ...OPTIONS, baseURL: `${url}/v1` }).chat;
    const completion = await completions.stream({ model, messages: MESSAGES }).finalChatCompletion();
    return completion.choices[0]?.message.content ?? '';
  },
  'anthropic, stream helper': async (url, model) => {
    const { messages } = new Anthropic({ ...OPTIONS, baseURL: url });
    return messages.stream({ model, messages: MESSAGES, max_tokens: 1000 }).finalText();
  },
};

const CLIENTS: Readonly<Record<string, { readonly ask: Ask; readonly modes: readonly Mode[] }>> = {
  openai: { ask: openai(OpenAI), modes: ['stream', 'unary'] },
  'openai, previous major': { ask: openai(PreviousOpenAI as unknown as typeof OpenAI), modes: ['stream'] },
  anthropic: { ask: anthropic(Anthropic), modes: ['stream', 'unary'] },
  'anthropic, previous major': {
    ask: anthropic(PreviousAnthropic as unknown as typeof Anthropic),
    modes: ['stream'],
  },
  ...Object.fromEntries(
    Object.entries(gathered).map(([name, ask]) => [name, { ask, modes: ['stream'] as const }]),
  ),
};

/** Whether a program could act on it: an error of the client's own kind that carries our code. */
function tells(error: unknown, code: string | undefined): boolean {
  assert.ok(
    [OpenAI, Anthropic, PreviousOpenAI, PreviousAnthropic].some(({ APIError }) => error instanceof APIError),
  );
  const { message, error: object } = error as InstanceType<typeof OpenAI.APIError>;
  if (code !== undefined) assert.ok(`${message} ${JSON.stringify(object)}`.includes(code), message);
  return true;
}

describe('the official clients', () => {
  const stacks = new Map<string, Stack>();
  before(async () => {
    stacks.set('patient', await startStack());
    stacks.set(
      'impatient',
      await startStack({ flags: ['--first-byte-timeout=400ms', '--stream-idle-timeout=400ms'] }),
    );
    stacks.set(
      'strict',
      await startStack({ flags: ['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0'] }),
    );
  });
  after(async () => {
    for (const stack of stacks.values()) await stack.close();
  });

  // A renewal that is forced is allowed but once in a while: the matrix tests those rows with proxies of their own.
  const rows = MATRIX.filter(({ proxy, uploadBytes }) => proxy !== 'fresh' && uploadBytes === undefined);
  for (const [client, { ask, modes }] of Object.entries(CLIENTS)) {
    for (const mode of modes) {
      describe(`${client}, ${mode}`, { concurrency: 8 }, () => {
        for (const row of rows) {
          const { shows, code } = row.cells[mode];
          it(`${nameOf(row)}: ${shows === 'answer' ? 'the whole answer' : 'an error is raised'}`, async () => {
            const { url } = stacks.get(row.proxy ?? 'patient') as Stack;
            const answer = ask(url, `sim-echo+${row.asks}`, mode);
            if (shows === 'answer') assert.equal((await answer).trim(), PROMPT);
            else await assert.rejects(answer, (error) => tells(error, code));
          });
        }
      });
    }
  }
});
