/**
 * Tokens that came from the prompt cache, from the answer of the service to everything that counts them, by
 * each API.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { UsageReport } from '../../lib/receipts/usage.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

/** 41,000 tokens in, of which 38,000 came from the cache, and 3 out: as either API says it. */
const OPENAI = {
  prompt_tokens: 41_000,
  total_tokens: 41_003,
  completion_tokens: 3,
  prompt_tokens_details: { cached_tokens: 38_000 },
};
const ANTHROPIC = {
  input_tokens: 3_000,
  cache_read_input_tokens: 38_000,
  cache_creation_input_tokens: 0,
  output_tokens: 3,
};

const CHAT = {
  ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'm', usage: OPENAI },
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
};
const MESSAGE = {
  ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', usage: ANTHROPIC },
  ...{ content: [{ type: 'text', text: 'hi' }], stop_reason: 'end_turn' },
};
const MESSAGES = [{ role: 'user', content: 'hello' }];
const COUNTED = { tokensIn: 41_000, tokensCached: 38_000, tokensOut: 3 };

const REQUESTS = {
  '/v1/chat/completions': { model: 'cached-chat', messages: MESSAGES },
  '/v1/messages': { model: 'cached-message', max_tokens: 9, messages: MESSAGES },
  '/v1/responses': { model: 'cached-chat', input: 'hello' },
};

describe('tokens that came from the prompt cache', { timeout: 600_000 }, () => {
  let stack: Stack;
  let admin: string;
  let receipts: string;
  const lines = (): Record<string, unknown>[] =>
    stack.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'Request ended');

  before(async () => {
    const transcripts = join(temporaryDirectory('cached-'), 'transcripts.json');
    const answers = {
      'cached-chat': { unary: { body: CHAT } },
      'cached-message': { unary: { body: MESSAGE } },
    };
    writeFileSync(transcripts, JSON.stringify(answers));
    admin = `127.0.0.1:${await freePort()}`;
    const flags = [
      '--disable-prompt-cache=false',
      '--receipts',
      '--responses-api',
      `--admin-address=${admin}`,
    ];
    stack = await startStack({ simulator: { transcripts }, flags });
    receipts = join(stack.directory, 'workspace/receipts');
    for (const [path, members] of Object.entries(REQUESTS)) {
      const body = JSON.stringify(members);
      const response = await fetch(`${stack.url}${path}`, { method: 'POST', body });
      assert.equal(response.status, 200, await response.text());
    }
    await eventually('three lines', () => lines().length === 3);
  });
  after(() => stack.close());

  it('are in the log', () => {
    for (const { tokensIn, tokensCached, tokensOut } of lines())
      assert.deepEqual({ tokensIn, tokensCached, tokensOut }, COUNTED);
  });

  it('are in the metrics', async () => {
    const text = await (await fetch(`http://${admin}/metrics`)).text();
    for (const route of ['chat', 'messages', 'responses']) {
      const total = new RegExp(
        `^privatemode_proxy_tokens_total\\{route="${route}",.*type="cached"\\} 38000$`,
        'm',
      );
      assert.match(text, total);
    }
  });

  it('are in the status', async () => {
    const { traffic } = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    for (const { tokensIn, tokensCached, tokensOut } of traffic.finished)
      assert.deepEqual({ tokensIn, tokensCached, tokensOut }, COUNTED);
    const { stdout } = await runCommand(['status', `--admin-address=${admin}`]);
    assert.match(stdout, /Of 123,000 tokens in, 114,000 came from the cache\./);
  });

  it('are in receipts whose signatures and chain hold, and in the sums of the command usage', async () => {
    const sums = async () => {
      const { stdout } = await runCommand(['usage', `--dir=${receipts}`, '--json']);
      return (JSON.parse(stdout) as UsageReport).total;
    };
    await eventually('three receipts', async () => (await sums()).requests === 3);
    const { tokensIn, tokensCached, tokensOut } = await sums();
    assert.deepEqual([tokensIn, tokensCached, tokensOut], [123_000, 114_000, 9]);
    const { code, stdout } = await runCommand(['receipts', 'verify', `--dir=${receipts}`]);
    assert.equal(code, 35, stdout); // everything holds, under the roots of a simulator
  });
});
