/**
 * Coding agents as people run them, against proxy and simulator: `npm run test:agents`, not part of `npm test`, because it
 * installs 700 MB from npm into a temporary directory (or uses what is installed below AGENTS_DIR). Whatever else the agents
 * try to reach is refused by an HTTP proxy that remembers it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it, type TestContext } from 'node:test';
import { type ConnectProxy, serveConnectProxy } from '../support/loopback.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { runAside } from '../support/tools.ts';

const PACKAGES = ['@anthropic-ai/claude-code@2.1.329', 'opencode-ai@1.18.33'];
const CANARY = 'canary-agent-7b15';
const PROMPT = `Say back: ${CANARY}`;

interface Asked {
  readonly model: string;
  readonly url: string;
  /** The working directory of the agent. */
  readonly work: string;
}

interface Agent {
  readonly program: string;
  readonly args: (asked: Asked) => readonly string[];
  readonly env: (asked: Asked) => Readonly<Record<string, string>>;
  /** Files of the working directory. */
  readonly files: (asked: Asked) => Readonly<Record<string, object>>;
  readonly endpoint: string;
  /** What it may try to reach beside the proxy, in vain. */
  readonly mayTry: RegExp;
}

/** Settings as docs of the makers give them; docs/agents.md repeats them. */
const AGENTS: Readonly<Record<string, Agent>> = {
  'Claude Code': {
    program: 'claude',
    args: ({ model }) => ['-p', PROMPT, '--model', model, '--tools', 'Read'],
    env: ({ url }) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: 'placeholder',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    }),
    files: () => ({}),
    endpoint: 'POST /v1/messages?beta=true',
    mayTry: /^$/,
  },
  opencode: {
    program: 'opencode',
    args: () => ['run', PROMPT],
    env: () => ({ OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' }),
    files: ({ url, model }) => ({
      'opencode.json': {
        share: 'disabled',
        provider: {
          privatemode: {
            npm: '@ai-sdk/openai-compatible',
            options: { baseURL: `${url}/v1`, apiKey: 'placeholder' },
            models: { [model]: {} },
          },
        },
        model: `privatemode/${model}`,
        small_model: `privatemode/${model}`,
      },
    }),
    endpoint: 'POST /v1/chat/completions',
    mayTry: /^registry\./, // the package registry, for its provider
  },
};

describe('coding agents', () => {
  const directory = mkdtempSync(join(tmpdir(), 'agents-'));
  const installed = process.env['AGENTS_DIR'] ?? join(directory, 'installed');
  let stack: Stack;
  before(async () => {
    if (process.env['AGENTS_DIR'] === undefined) {
      mkdirSync(installed);
      const options = { timeout: 600_000, stdio: 'inherit' } as const;
      execFileSync(
        'npm',
        ['install', '--no-audit', '--no-fund', '--prefix', installed, ...PACKAGES],
        options,
      );
    }
    stack = await startStack();
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(async () => {
    await stack?.close();
    rmSync(directory, { recursive: true, force: true });
  });
  beforeEach(() => {
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
  });

  /** Runs one in a home of its own; resolves with what it printed. */
  async function run(
    t: TestContext,
    agent: Agent,
    model: string,
  ): Promise<{ stdout: string; outside: ConnectProxy }> {
    const outside = await serveConnectProxy(t, { route: () => ({ status: 403 }) });
    const home = mkdtempSync(join(directory, 'home-'));
    const work = join(home, 'work');
    mkdirSync(work);
    const asked: Asked = { model, url: stack.url, work };
    for (const [name, content] of Object.entries(agent.files(asked))) {
      writeFileSync(join(work, name), JSON.stringify(content));
    }
    const elsewhere = `http://127.0.0.1:${outside.port}`;
    const env = {
      PATH: '/usr/bin:/bin',
      HOME: home,
      LANG: 'C.UTF-8',
      TERM: 'dumb',
      HTTPS_PROXY: elsewhere,
      HTTP_PROXY: elsewhere,
      NO_PROXY: '127.0.0.1',
      ...agent.env(asked),
    };
    const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const program = join(installed, 'node_modules/.bin', agent.program);
    // env(1) starts it there, with this environment and nothing of ours, where credentials may be.
    const { status, stdout, stderr } = await runAside('/usr/bin/env', [
      ...['-i', '-C', work],
      ...assignments,
      program,
      ...agent.args(asked),
    ]);
    assert.equal(status, 0, `${stdout}\n${stderr}`);
    return { stdout, outside };
  }

  for (const [name, agent] of Object.entries(AGENTS)) {
    describe(name, () => {
      const requests = (): string[] =>
        stack.simulator.exchanges.all().map(({ method, target }) => `${method} ${target}`);

      function assertNothingLeaked({ seen }: ConnectProxy): void {
        const { recorder, exchanges } = stack.simulator;
        assert.deepEqual(exchanges.violations(), []);
        for (const words of [CANARY, 'placeholder', 'claude-cli', 'opencode/']) {
          assert.equal(recorder.containing(words).length, 0, words);
        }
        const tried = seen.map(({ target }) => target);
        assert.deepEqual(
          tried.filter((target) => !agent.mayTry.test(target)),
          [],
        );
      }

      it('asks and shows the answer', async (t) => {
        const { stdout, outside } = await run(t, agent, 'sim-echo');
        assert.ok(stdout.includes(CANARY), stdout);
        assert.ok(requests().includes(agent.endpoint), requests().join());
        assertNothingLeaked(outside);
      });

      it('runs the tool that the model calls, and goes on with its result', async (t) => {
        const { stdout, outside } = await run(t, agent, 'sim-tools');
        assert.match(stdout, /The tool has answered\./);
        assert.ok(requests().filter((request) => request === agent.endpoint).length >= 2);
        assertNothingLeaked(outside);
      });
    });
  }
});
