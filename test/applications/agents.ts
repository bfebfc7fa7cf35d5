/**
 * Coding agents as people run them, against proxy and simulator, with the settings that docs/agents.md gives: `npm run
 * test:agents`, not part of `npm test`, because it installs 2 GB into a temporary directory (or uses what is installed below
 * AGENTS_DIR). Whatever else the agents try to reach is refused by an HTTP proxy that remembers it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, it, type TestContext } from 'node:test';
import { type ConnectProxy, serveConnectProxy } from '../support/loopback.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { runAside } from '../support/tools.ts';
import { argumentsOf, type Place, settings, variables } from './settings.ts';

const NPM_PACKAGES = [
  '@anthropic-ai/claude-code@2.1.329',
  'opencode-ai@1.18.33',
  'cline@3.0.65',
  '@continuedev/cli@1.5.47',
];
const PYTHON_PACKAGES = ['aider-chat==0.86.2'];
const CANARY = 'canary-agent-7b15';
const PROMPT = `Say back: ${CANARY}`;

interface Agent {
  /** Below the directory of the installation. */
  readonly program: string;
  /** Arguments of calls before the one that asks. */
  readonly setUp?: (place: Place) => readonly string[];
  readonly args: (place: Place) => readonly string[];
  readonly env: (place: Place) => Readonly<Record<string, string>>;
  /** Files below its home directory; it works in `work`. */
  readonly files: (place: Place) => Readonly<Record<string, string>>;
  readonly endpoint: string;
  /** What it may try to reach beside the proxy, in vain; docs/agents.md says so. */
  readonly mayTry: RegExp;
  readonly callsTools: boolean;
}

const AGENTS: Readonly<Record<string, Agent>> = {
  'Claude Code': {
    program: 'node_modules/.bin/claude',
    args: (place) => [
      ...argumentsOf('claude', settings('Claude Code', 'sh', place)),
      ...['-p', PROMPT, '--tools', 'Read'],
    ],
    env: (place) => variables(settings('Claude Code', 'sh', place)),
    files: () => ({}),
    endpoint: 'POST /v1/messages?beta=true',
    mayTry: /^$/,
    callsTools: true,
  },
  opencode: {
    program: 'node_modules/.bin/opencode',
    args: () => ['run', PROMPT],
    env: (place) => variables(settings('opencode', 'sh', place)),
    files: (place) => ({ 'work/opencode.json': settings('opencode', 'json', place) }),
    endpoint: 'POST /v1/chat/completions',
    mayTry: /^registry\./, // the package registry, for its provider
    callsTools: true,
  },
  Cline: {
    program: 'node_modules/.bin/cline',
    setUp: (place) => argumentsOf('cline', settings('Cline', 'sh', place)),
    args: () => [PROMPT],
    env: () => ({ CLINE_SESSION_BACKEND_MODE: 'local' }), // without a process that outlives it
    files: (place) => ({ '.cline/data/settings/global-settings.json': settings('Cline', 'json', place) }),
    endpoint: 'POST /v1/chat/completions',
    mayTry: /^data\.cline\.bot:/,
    callsTools: true,
  },
  Continue: {
    program: 'node_modules/.bin/cn',
    args: () => ['--auto', '-p', PROMPT],
    env: () => ({}),
    files: (place) => ({ '.continue/config.yaml': settings('Continue', 'yaml', place) }),
    endpoint: 'POST /v1/messages',
    mayTry: /^$/,
    callsTools: true,
  },
  aider: {
    program: 'python/bin/aider',
    args: (place) => [
      ...argumentsOf('aider', settings('aider', 'sh', place)),
      ...['--no-git', '--yes-always', '--message', PROMPT],
    ],
    env: (place) => variables(settings('aider', 'sh', place)),
    files: () => ({}),
    endpoint: 'POST /v1/chat/completions',
    mayTry: /^raw\.githubusercontent\.com:/,
    callsTools: false, // it asks for changes in words
  },
};

describe('coding agents', () => {
  const directory = temporaryDirectory('agents-');
  const installed = process.env['AGENTS_DIR'] ?? join(directory, 'installed');
  let stack: Stack;
  before(async () => {
    if (process.env['AGENTS_DIR'] === undefined) {
      mkdirSync(installed);
      const install = (program: string, ...args: string[]): unknown =>
        execFileSync(program, args, { timeout: 600_000, stdio: 'inherit' });
      install('npm', 'install', '--no-audit', '--no-fund', '--prefix', installed, ...NPM_PACKAGES);
      install('python3', '-m', 'venv', join(installed, 'python'));
      install(join(installed, 'python/bin/pip'), 'install', '--quiet', ...PYTHON_PACKAGES);
    }
    stack = await startStack();
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(async () => {
    await stack?.close();
  });
  beforeEach(() => {
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
  });

  /** Runs one in a home of its own, against the proxy at `url`; resolves with its exit code and what it printed. */
  async function run(
    t: TestContext,
    agent: Agent,
    model: string,
    { url }: Stack = stack,
  ): Promise<{ status: number; output: string; outside: ConnectProxy }> {
    const outside = await serveConnectProxy(t, { route: () => ({ status: 403 }) });
    const home = mkdtempSync(join(directory, 'home-'));
    const work = join(home, 'work');
    mkdirSync(work);
    const place: Place = { model, url };
    for (const [name, content] of Object.entries(agent.files(place))) {
      mkdirSync(dirname(join(home, name)), { recursive: true });
      writeFileSync(join(home, name), content);
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
      ...agent.env(place),
    };
    const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    // env(1) starts it there, with this environment and nothing of ours, where credentials may be.
    const call = async (args: readonly string[]): Promise<{ status: number; output: string }> => {
      const command = ['-i', '-C', work, ...assignments, join(installed, agent.program), ...args];
      const { status, stdout, stderr } = await runAside('/usr/bin/env', command);
      return { status, output: `${stdout}\n${stderr}` };
    };
    if (agent.setUp !== undefined) {
      const { status, output } = await call(agent.setUp(place));
      assert.equal(status, 0, output);
    }
    return { ...(await call(agent.args(place))), outside };
  }

  it('Claude Code ends soon, and shows why, where the service is rejected', async (t) => {
    const rejected = await startStack({
      managedManifest: true,
      simulator: { faults: { 'evidence-debug': true } },
    });
    t.after(() => rejected.close());
    const began = performance.now();
    const { status, output } = await run(t, AGENTS['Claude Code'] as Agent, 'sim-echo', rejected);
    const seconds = (performance.now() - began) / 1000;
    assert.notEqual(status, 0, output);
    assert.match(output, /snp\.id_key/);
    assert.match(output, /Do not trust the remote/);
    const asked = rejected.logLines.filter(
      (line) => line.includes('attestation_failed') && line.includes('/v1/messages'),
    );
    t.diagnostic(`${seconds.toFixed(1)} s, ${asked.length} requests`);
    assert.ok(asked.length >= 1 && asked.length <= 2, asked.join(''));
    assert.ok(seconds < 15, `${seconds} s, the start of Claude Code included`);
    assert.equal(rejected.simulator.counts['inference'], 0);
  });

  for (const [name, agent] of Object.entries(AGENTS)) {
    describe(name, () => {
      const requests = (): string[] =>
        stack.simulator.exchanges.all().map(({ method, target }) => `${method} ${target}`);

      function assertNothingLeaked({ seen }: ConnectProxy): void {
        const { recorder, exchanges } = stack.simulator;
        assert.deepEqual(exchanges.violations(), []);
        for (const words of [
          CANARY,
          'placeholder',
          'claude-cli',
          'opencode/',
          'cline',
          'aider',
          'continue',
        ]) {
          assert.equal(recorder.containing(words).length, 0, words);
        }
        const tried = seen.map(({ target }) => target);
        assert.deepEqual(
          tried.filter((target) => !agent.mayTry.test(target)),
          [],
        );
      }

      it('asks and shows the answer', async (t) => {
        const { status, output, outside } = await run(t, agent, 'sim-echo');
        assert.equal(status, 0, output);
        assert.ok(output.includes(CANARY), output);
        assert.ok(requests().includes(agent.endpoint), requests().join());
        assertNothingLeaked(outside);
      });

      if (!agent.callsTools) return;

      it('runs the tool that the model calls, and goes on with its result', async (t) => {
        const { status, output, outside } = await run(t, agent, 'sim-tools');
        assert.equal(status, 0, output);
        assert.match(output, /The tool has answered\./);
        assert.ok(requests().filter((request) => request === agent.endpoint).length >= 2);
        assertNothingLeaked(outside);
      });
    });
  }
});
