/**
 * Tokens that came from the prompt cache, from the answer of the service to everything that counts them, by
 * each API.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { UsageReport } from '../../lib/receipts/usage.ts';
import { startStack } from '../support/doors/stack.ts';
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

it('tokens that came from the prompt cache are in the log, the metrics, the status, and in receipts and their sums', {
  timeout: 600_000,
}, async (t) => {
  const transcripts = join(temporaryDirectory('cached-'), 'transcripts.json');
  const answers = {
    'cached-chat': { unary: { body: CHAT } },
    'cached-message': { unary: { body: MESSAGE } },
  };
  writeFileSync(transcripts, JSON.stringify(answers));
  const admin = `127.0.0.1:${await freePort()}`;
  const own = ['--disable-prompt-cache=false', '--receipts', '--responses-api', `--admin-address=${admin}`];
  const stack = await startStack({ simulator: { transcripts }, flags: own });
  t.after(() => stack.close());
  for (const [path, members] of Object.entries(REQUESTS)) {
    const response = await fetch(`${stack.url}${path}`, { method: 'POST', body: JSON.stringify(members) });
    assert.equal(response.status, 200, await response.text());
  }
  const { traffic } = await eventually('three requests', async () => {
    const status = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    return status.traffic.finished.length === 3 && status;
  });
  const lines = stack.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'Request ended');
  assert.equal(lines.length, 3);
  for (const { tokensIn, tokensCached, tokensOut } of [...lines, ...traffic.finished])
    assert.deepEqual({ tokensIn, tokensCached, tokensOut }, COUNTED);
  const metrics = await (await fetch(`http://${admin}/metrics`)).text();
  for (const route of ['chat', 'messages', 'responses'])
    assert.match(metrics, new RegExp(`_tokens_total\\{route="${route}",.*type="cached"\\} 38000$`, 'm'));
  const receipts = join(stack.directory, 'workspace/receipts');
  const total = await eventually('three receipts', async () => {
    const { stdout } = await runCommand(['usage', `--dir=${receipts}`, '--json']);
    const sums = (JSON.parse(stdout) as UsageReport).total;
    return sums.requests === 3 && sums;
  });
  const { tokensIn, tokensCached, tokensOut } = total;
  assert.deepEqual([tokensIn, tokensCached, tokensOut], [123_000, 114_000, 9]);
});
