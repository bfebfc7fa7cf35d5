/**
 * The real Codex CLI in front of proxy and simulator, with the settings of docs/responses-api.md: `npm run
 * test:clients` runs it; not part of `npm test`, because it installs 300 MB below .tools. What else it tries
 * to reach is refused by an HTTP proxy that remembers it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it, type TestContext } from 'node:test';
import { callPiece, chatStream, type Json } from '../responses-api/chat-side.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';
import { serveConnectProxy } from '../support/remote/loopback.ts';
import { settings } from './settings.ts';

const VERSION = '0.169.0';
const INSTALLED = join(ROOT, '.tools/codex', VERSION);
const PROGRAM = join(INSTALLED, 'node_modules/.bin/codex');
const CANARY = 'canary-codex-9e41';
/** For plugins and their catalogue, in vain; docs/responses-api.md says so. */
const MAY_TRY = /^(?:(?:api\.)?github\.com|(?:ab\.)?chatgpt\.com):443$/;

const script = (deltas: readonly Json[], finish: string): Json => ({
  events: chatStream(deltas, finish).map((event) => ({ data: event.slice('data: '.length, -2) })),
});
/** A call of the tool by which Codex runs commands, in pieces. */
const running = (cmd: string, id: string, finish = 'tool_calls'): Json => {
  const args = JSON.stringify({ cmd });
  const pieces = [
    callPiece(0, '', id, 'exec_command'),
    callPiece(0, args.slice(0, 9)),
    callPiece(0, args.slice(9)),
  ];
  return script([{ content: 'I run it.' }, ...pieces], finish);
};
const saying = (text: string): Json => script([{ content: text }], 'stop');

const SCRIPTS: Json = {
  task: {
    turns: [
      running('echo one > one.txt', 'call_1'),
      running('tr o O < one.txt > two.txt', 'call_2'),
      saying(`Both files are there: ${CANARY}`),
    ],
  },
  touch: { turns: [running('touch canary.txt', 'call_1'), saying('It is there.')] },
  'touch-by-length': { turns: [running('touch canary.txt', 'call_1', 'length')] },
  'touch-by-filter': { turns: [running('touch canary.txt', 'call_1', 'content_filter')] },
};

describe(`Codex CLI ${VERSION}`, { timeout: 900_000 }, () => {
  const directory = temporaryDirectory('codex-');
  let stack: Stack;
  before(async () => {
    if (!existsSync(PROGRAM)) {
      mkdirSync(INSTALLED, { recursive: true });
      const install = [
        'install',
        '--no-audit',
        '--no-fund',
        '--prefix',
        INSTALLED,
        `@openai/codex@${VERSION}`,
      ];
      execFileSync('npm', install, { timeout: 600_000, stdio: 'inherit' });
    }
    const transcripts = join(directory, 'scripts.json');
    writeFileSync(transcripts, JSON.stringify(SCRIPTS));
    const aliases = '--model-alias=my-model=task,gpt-5*=task';
    stack = await startStack({ simulator: { transcripts }, flags: ['--responses-api', aliases] });
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(() => stack?.close());
  beforeEach(() => {
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
  });
  afterEach(() => {
    const { exchanges, recorder } = stack.simulator;
    assert.deepEqual(exchanges.violations(), []);
    assert.equal(recorder.containing(CANARY).length, 0);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  /** Runs one task in a home of its own. */
  async function run(t: TestContext, model: string) {
    const outside = await serveConnectProxy(t, { route: () => ({ status: 403 }) });
    const home = mkdtempSync(join(directory, 'home-'));
    const work = join(home, 'work');
    mkdirSync(work);
    mkdirSync(join(home, '.codex'));
    const place = { model, url: stack.url };
    const toml = settings('Codex CLI', 'toml', place);
    writeFileSync(join(home, '.codex/config.toml'), `${toml}stream_max_retries = 1\n`);
    const elsewhere = `http://127.0.0.1:${outside.port}`;
    const env = {
      PATH: `${join(process.execPath, '..')}:/usr/bin:/bin`,
      ...{ HOME: home, LANG: 'C.UTF-8', TERM: 'dumb' },
      ...{ HTTPS_PROXY: elsewhere, HTTP_PROXY: elsewhere, NO_PROXY: '127.0.0.1' },
    };
    const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const args = [
      'exec',
      '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox',
      `Do it: ${CANARY}`,
    ];
    const ended = await runAside('/usr/bin/env', ['-i', '-C', work, ...assignments, PROGRAM, ...args]);
    return { ...ended, home, work, outside };
  }

  for (const model of ['task', 'my-model', 'gpt-5-codex']) {
    it(`does a task with two tool calls with the model ${model}, and sends no data of the machine`, async (t) => {
      const { status, stdout, stderr, home, work, outside } = await run(t, model);
      assert.equal(status, 0, stderr);
      assert.ok(stdout.includes(CANARY), stdout);
      assert.equal(readFileSync(join(work, 'two.txt'), 'utf8'), 'One\n');
      const { exchanges, recorder } = stack.simulator;
      const asked = exchanges.all().filter(({ method }) => method === 'POST');
      assert.deepEqual(
        asked.map(({ model: real, target }) => [real, target]),
        Array(3).fill(['task', '/v1/chat/completions']),
      );
      for (const { opened } of asked)
        assert.doesNotMatch(opened, /client_metadata|installation_id|prompt_cache_key/);
      const id = readFileSync(join(home, '.codex/installation_id'), 'utf8').trim();
      assert.match(id, /^[0-9a-f-]{36}$/);
      for (const words of [id, home, 'x-codex', 'codex_exec', 'session-id', 'originator'])
        assert.equal(recorder.containing(words).length, 0, words);
      assert.deepEqual(
        outside.seen.filter(({ target }) => !MAY_TRY.test(target)),
        [],
      );
    });
  }

  it('runs the tool call of a complete stream', async (t) => {
    const { work } = await run(t, 'touch');
    assert.deepEqual(readdirSync(work), ['canary.txt']);
  });

  const ends = ['truncate:5', 'missing_terminal', 'flip_tag:4', 'reset_mid_event:5', 'error_event:5'];
  const models = [...ends.map((fault) => `touch+fault=${fault}`), 'touch-by-length', 'touch-by-filter'];
  for (const model of models) {
    it(`runs no tool call of a stream that ends with a fault (${model}), and shows an error`, async (t) => {
      const { status, stderr, work } = await run(t, model);
      assert.deepEqual(readdirSync(work), []);
      assert.match(stderr, /ERROR/);
      assert.notEqual(status, 0);
    });
  }
});
