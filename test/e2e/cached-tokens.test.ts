import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { UsageReport } from '../../lib/receipts/usage.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { startStack } from '../support/doors/stack.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const CHAT = {
  ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'm' },
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
  usage: {
    ...{ prompt_tokens: 41_000, total_tokens: 41_003, completion_tokens: 3 },
    prompt_tokens_details: { cached_tokens: 38_000 },
  },
};
const COUNTED = { tokensIn: 41_000, tokensCached: 38_000, tokensOut: 3 };

it('tokens that came from the prompt cache are in the log, the metrics, the status, and in receipts and their sums', {
  timeout: 600_000,
}, async (t) => {
  const transcripts = join(temporaryDirectory('cached-'), 'transcripts.json');
  writeFileSync(transcripts, JSON.stringify({ cached: { unary: { body: CHAT } } }));
  const admin = `127.0.0.1:${await freePort()}`;
  const flags = ['--disable-prompt-cache=false', '--receipts', `--admin-address=${admin}`];
  const stack = await startStack({ simulator: { transcripts }, flags });
  t.after(() => stack.close());
  assert.equal((await askChat(stack, { model: 'cached' })).status, 200);
  const { traffic } = await eventually('the end of the request', async () => {
    const status = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    return status.traffic.finished.length > 0 && status;
  });
  const lines = stack.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'Request ended');
  assert.equal(lines.length, 1);
  for (const { tokensIn, tokensCached, tokensOut } of [...lines, ...traffic.finished])
    assert.deepEqual({ tokensIn, tokensCached, tokensOut }, COUNTED);
  const metrics = await (await fetch(`http://${admin}/metrics`)).text();
  assert.match(metrics, /_tokens_total\{route="chat",.*type="cached"\} 38000$/m);
  const receipts = join(stack.directory, 'workspace/receipts');
  const { tokensIn, tokensCached, tokensOut } = await eventually('the receipt', async () => {
    const { stdout } = await runCommand(['usage', `--dir=${receipts}`, '--json']);
    const { total } = JSON.parse(stdout) as UsageReport;
    return total.requests > 0 && total;
  });
  assert.deepEqual({ tokensIn, tokensCached, tokensOut }, COUNTED);
});
