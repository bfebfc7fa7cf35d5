/**
 * Applications with the settings that docs/recipes.md and docs/responses-api.md give, against proxy and
 * simulator: `npm run test:recipes`. Not part of `npm test`, because it installs some 400 MB into a temporary
 * directory (or uses the virtual environment in RECIPES_DIR).
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';

const LITELLM = 'litellm[proxy]==1.106.2';
const KEY = 'sk-a-key-of-its-own-7d30b1c5e2';
const CANARY = 'canary-recipe-5e90';

const page = readFileSync(join(ROOT, 'docs/recipes.md'), 'utf8');
const section = page.split(/^## /m).find((text) => text.startsWith('LiteLLM\n'))!;
const [, config] = /^```yaml\n([^`]+)```$/m.exec(section) as unknown as [string, string];
/**
 * What docs/responses-api.md puts between clients of the Responses API and a proxy without --responses-api.
 */
const responsesApi = readFileSync(join(ROOT, 'docs/responses-api.md'), 'utf8');
const [, bridge] = /^```yaml\nmodel_list:\n([^`]+custom_openai[^`]+)```$/m.exec(responsesApi) as unknown as [
  string,
  string,
];

/** What is asked at each path, and how one reads the words of its answer. */
const APIS = {
  chat: {
    path: '/v1/chat/completions',
    body: { messages: [{ role: 'user', content: CANARY }] },
    last: 'data: [DONE]',
  },
  messages: {
    path: '/v1/messages',
    body: { max_tokens: 100, messages: [{ role: 'user', content: CANARY }] },
    last: 'message_stop',
  },
  responses: { path: '/v1/responses', body: { input: CANARY }, last: 'response.completed' },
} as const;

/** Names of models in LiteLLM, and what of the above they answer. */
const ENTRIES: Readonly<Record<string, { readonly [api in keyof typeof APIS]: boolean }>> = {
  'sim-echo': { chat: true, messages: true, responses: true },
  'sim-echo-bridge': { chat: true, messages: true, responses: true },
  'sim-echo-vllm': { chat: true, messages: true, responses: false },
  // not in the page's block; the page tells why
  'sim-echo-openai': { chat: true, messages: false, responses: false },
};

describe('LiteLLM', { timeout: 900_000 }, () => {
  const directory = temporaryDirectory('recipes-');
  const installed = process.env['RECIPES_DIR'] ?? join(directory, 'python');
  let stack: Stack;
  let child: ChildProcess | undefined;
  let url = '';
  let log = '';

  before(async () => {
    if (process.env['RECIPES_DIR'] === undefined) {
      execFileSync('python3', ['-m', 'venv', installed], { timeout: 120_000 });
      execFileSync(join(installed, 'bin/pip'), ['install', '--quiet', LITELLM], { timeout: 600_000 });
    }
    stack = await startStack();
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
    const written = config
      .replaceAll('http://localhost:8080', stack.url)
      .replaceAll(/\bMODEL\b/g, 'sim-echo');
    const [, vllm] = written.split(/(?=^ {2}- )/m).slice(1) as [string, string];
    const openai = vllm.replace('sim-echo-vllm', 'sim-echo-openai').replace('hosted_vllm/', 'openai/');
    const codex = bridge
      .replaceAll('http://localhost:8080', stack.url)
      .replace('model_name: MODEL', 'model_name: sim-echo-bridge')
      .replace('custom_openai/MODEL', 'custom_openai/sim-echo');
    writeFileSync(join(directory, 'config.yaml'), written + openai + codex);

    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    const program = join(installed, 'bin/litellm');
    child = spawn(program, ['--config', 'config.yaml', '--host', '127.0.0.1', '--port', `${port}`], {
      cwd: directory,
      env: {
        HOME: directory,
        PATH: '/usr/bin:/bin',
        LITELLM_MASTER_KEY: KEY,
        LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const output of [child.stdout, child.stderr]) {
      output?.setEncoding('utf8').on('data', (text: string) => {
        log += text;
      });
    }
    for (const deadline = Date.now() + 120_000; ; await delay(200)) {
      const ready = await fetch(`${url}/health/liveliness`).catch(() => undefined);
      if (ready?.ok === true) return;
      assert.ok(Date.now() < deadline && child.exitCode === null, log);
    }
  });
  after(async () => {
    child?.kill('SIGKILL');
    await stack?.close();
  });

  const ask = async (path: string, body: object): Promise<{ status: number; text: string }> => {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(60_000),
    });
    return { status: response.status, text: await response.text() };
  };

  for (const [model, answers] of Object.entries(ENTRIES)) {
    for (const [name, { path, body, last }] of Object.entries(APIS)) {
      if (answers[name as keyof typeof APIS]) {
        it(`${model} answers ${name}, whole and in a stream`, async () => {
          const whole = await ask(path, { model, ...body });
          assert.equal(whole.status, 200, whole.text);
          assert.ok(whole.text.includes(CANARY), whole.text);
          const stream = await ask(path, { model, stream: true, ...body });
          assert.ok(stream.text.includes(CANARY), stream.text);
          assert.ok(stream.text.includes(last), stream.text);
          assert.equal(stack.simulator.recorder.containing(CANARY).length, 0);
        });
      } else {
        it(`${model} passes ${name} on as the Responses API, which the proxy refuses`, async () => {
          const { status, text } = await ask(path, { model, ...body });
          assert.ok(status >= 400);
          assert.match(text, /not_supported/);
        });
      }
    }
  }

  it('sim-echo-vllm answers embeddings', async () => {
    const { status, text } = await ask('/v1/embeddings', { model: 'sim-echo-vllm', input: CANARY });
    assert.equal(status, 200, text);
    assert.match(text, /"embedding":\[-?\d/);
  });
});
