/**
 * `privatemode-proxy run AGENT`, with programs that stand in for the agents; test/applications/agents.ts runs
 * the real ones.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { AGENT_NAMES } from '../../lib/commands/run-agents.ts';
import { printable } from '../../lib/text.ts';
import { runCommand } from '../support/processes/command.ts';
import { standInAgents } from '../support/processes/stand-in-agents.ts';
import { runAside } from '../support/processes/tools.ts';

const REAL_KEY = 'sk-real-4c1e';

describe('privatemode-proxy run', { timeout: 600_000 }, () => {
  const { directory, proxy, environment, start, run, started } = standInAgents();
  const MODEL = ['--model', 'model-a'];

  for (const [agent, path] of [
    ['claude', '/messages'],
    ['opencode', '/v1/messages'],
    ['codex', '/v1/messages'],
    ['pi', '/messages'],
  ] as const) {
    it(`${agent} asks the proxy, and gets its arguments at the end`, async () => {
      const { code, stderr } = await run([agent, ...MODEL, '--', '-x', 'y z'], { WHAT: 'ask' });
      assert.deepEqual([code, started().answer, stderr], [0, 'answered', '']);
      assert.ok(proxy.asked.includes(`POST ${path}`), proxy.asked.join());
      assert.deepEqual(started().args.slice(-2), ['-x', 'y z']);
    });
  }

  for (const agent of AGENT_NAMES) {
    it(`hands ${agent} the arguments, variables and files that agents/${agent}.txt records`, async () => {
      const env = environment({ WHAT: 'look' });
      const { code, stderr } = await runCommand(['run', agent, ...MODEL, '--', 'ARGS'], { env });
      assert.equal(code, 0, stderr);
      const { args, env: given } = started();
      const added = Object.entries(given).filter(([name, value]) => env[name] !== value);
      const found = [
        ...args.map(shown),
        'environment:',
        ...added.map(([name, value]) => `${name}=${shown(value)}`).sort(),
        ...args
          .filter((arg) => arg.startsWith(directory))
          .map((file) => `${file}:\n${readFileSync(file, 'utf8')}`),
        '',
      ]
        .join('\n')
        .replaceAll(/127\.0\.0\.1:\d+/g, '127.0.0.1:PORT')
        .replaceAll(directory, 'DIRECTORY');
      const file = join(import.meta.dirname, `agents/${agent}.txt`);
      if (process.env['RECORD_AGENTS'] === '1') writeFileSync(file, found);
      assert.equal(
        found,
        readFileSync(file, 'utf8'),
        'if that is meant: RECORD_AGENTS=1 npx node --test test/commands/run.test.ts',
      );
    });
  }

  it('codex is not started if the proxy has no Responses API', async () => {
    proxy.endpoints = ['POST /v1/messages'];
    const { code, stderr } = await run(['codex', ...MODEL]);
    const words =
      'codex needs POST /v1/responses, which this proxy does not serve: start it with --responses-api';
    assert.deepEqual([code, stderr, started()], [1, `Error: ${words}\n`, {}]);
  });

  for (const [agent, args, named] of [
    ['claude', ['--settings', 'x'], '--settings'],
    ['claude', ['--settings={}', 'x'], '--settings'],
    ['claude', ['--sdk-url', 'ws://x'], '--sdk-url'],
    ['claude', ['--model', '--', '--settings', 'x'], '--settings'],
    ['opencode', ['run', '--attach=http://x'], '--attach'],
    ['pi', ['--provider', 'groq', '-p', 'x'], '--provider'],
    ['pi', ['--model', 'groq/x'], '--model'],
    ['pi', ['--api-key', 'x'], '--api-key'],
    ['codex', ['-c', 'model_provider="evil"', 'x'], '-c=model_provider'],
    ['codex', ['exec', '-c', ' \u0085"otel" = {}', 'x'], '-c= \\u{85}"otel" '],
    ['codex', ['-cmodel_provider=evil'], '-cmodel_provider'],
    ['codex', ['-c=model_provider =evil'], '-c=model_provider '],
    ['codex', ['--config', '\tmodel_providers.evil={}'], '--config=\\u{9}model_providers'],
    ['codex', ['-c', '--config=model_providers.evil={}', 'x'], '--config=model_providers'],
    ['codex', ['-c', '-cotel.exporter="x"', 'x'], '-cotel'],
    ['codex', ['-c', 'profile="evil"'], '-c=profile'],
    ['codex', ['-c', '--oss', 'x'], '--oss'],
  ] as const) {
    it(`starts no ${agent} with ${args.join(' ')}, by which prompts could bypass the proxy`, async () => {
      const { code, stderr } = await run([agent, ...MODEL, '--', ...args]);
      const why = `Error: ${agent} cannot run with ${named}: its prompts could bypass the proxy. `;
      assert.deepEqual([code, stderr.slice(0, why.length), started()], [1, why, {}]);
    });
  }

  it('starts codex with harmless settings and a prompt that resemble those that could bypass the proxy', async () => {
    const settings = ['-c', 'model_reasoning_effort="low"', '--config=tools.otel=1'];
    const args = ['exec', ...settings, 'model_provider = x?'];
    assert.equal((await run(['codex', ...MODEL, '--', ...args], { WHAT: 'ask' })).code, 0);
    assert.deepEqual(started().args.slice(-args.length), args);
  });

  it('removes from the environment of the agent API keys and variables that would send prompts elsewhere', async () => {
    const elsewhere = 'http://127.0.0.1:1';
    const others = {
      ...{ ANTHROPIC_API_KEY: REAL_KEY, ANTHROPIC_BEDROCK_BASE_URL: elsewhere, CLAUDE_CODE_USE_BEDROCK: '1' },
      ...{ OPENAI_API_KEY: REAL_KEY, OPENAI_BASE_URL: elsewhere, PRIVATEMODE_API_KEY: REAL_KEY },
      OTEL_EXPORTER_OTLP_ENDPOINT: elsewhere,
    };
    for (const agent of ['claude', 'opencode', 'codex', 'pi']) {
      const more = { WHAT: 'ask', HTTP_PROXY: elsewhere, NO_PROXY: 'a.example' };
      assert.equal((await run([agent, ...MODEL], { ...others, ...more })).code, 0);
      const { args, env } = started();
      for (const name of Object.keys(others)) assert.equal(env[name], undefined, name);
      assert.ok(!JSON.stringify({ args, env }).includes(REAL_KEY));
      for (const name of ['NO_PROXY', 'no_proxy']) assert.equal(env[name], 'a.example,127.0.0.1', name);
      if (agent === 'claude') assert.match(args[1] as string, /"NO_PROXY":"a\.example,127\.0\.0\.1"/);
      assert.equal(env['HTTP_PROXY'], 'http://127.0.0.1:1', 'its tools may need it');
    }
  });

  it('ends with the exit code of the agent, or with 128 and the number of the signal that ended it', async () => {
    const { code, stderr } = await run(['claude', ...MODEL], { WHAT: 'fail' });
    assert.deepEqual([code, stderr], [7, '']);
    assert.equal((await run(['claude', ...MODEL], { WHAT: 'die' })).code, 128 + 9);
  });

  it('passes signals on to the agent', async () => {
    const { child, ended } = start(['claude', ...MODEL], { WHAT: 'wait' });
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    assert.equal((await ended).code, 9);
  });

  for (const what of ['look', '']) {
    it(`warns that prompts went elsewhere if none came from the agent, which did ${what || 'nothing'}`, async () => {
      const { code, stderr } = await run(['claude', ...MODEL], { WHAT: what });
      const words = /^Warning: nothing came from claude to the proxy\..* that prompt went elsewhere/;
      assert.match(stderr, words);
      assert.equal(code, 0);
    });
  }

  it('says at the end how many requests the proxy did not answer', async () => {
    const { answer } = proxy;
    proxy.answer = (req, res) => (req.method === 'POST' ? res.destroy() : answer(req, res));
    const { stderr } = await run(['claude', ...MODEL], { WHAT: 'lose', REQUESTS: '2' });
    const words = `The proxy on http://127.0.0.1:${proxy.port} did not answer 2 requests of claude.\n`;
    assert.equal(stderr, words);
  });

  it('--print shows a command for a shell, and starts nothing', async () => {
    const env = { ANTHROPIC_API_KEY: REAL_KEY, WHAT: 'ask' };
    const { code, stdout } = await run(['claude', ...MODEL, '--print', '--', '-p', "it's"], env);
    assert.deepEqual([code, started()], [0, {}]);
    assert.match(stdout, /^env .*-u ANTHROPIC_API_KEY .* claude --settings '\{.*\}' -p 'it'\\''s'\n$/);
    assert.ok(!stdout.includes(REAL_KEY));
    const { PATH, NOTES } = environment({});
    const shell = `export PATH=${PATH} NOTES=${NOTES} WHAT=ask; ${stdout}`;
    assert.equal((await runAside('/bin/sh', ['-c', shell])).stdout, 'answered');
    assert.ok(proxy.asked.includes('POST /messages'));
    assert.deepEqual(started().args.slice(2), ['-p', "it's"]);
  });

  it('warns of a model that is neither in the list of the service nor covered by an alias', async () => {
    proxy.aliases = ['claude-*'];
    const { code, stderr } = await run(['claude', '--model', 'model-c'], { WHAT: 'ask' });
    const warning =
      'Warning: the service lists no model model-c, so requests will probably fail: end claude, and give --model one of model-a, model-b.\n';
    assert.deepEqual([code, stderr.startsWith(warning)], [0, true], stderr);
    const flags = ['--model=claude-x', '--context-window=131072'];
    assert.equal((await run(['claude', ...flags], { WHAT: 'ask' })).stderr, '');
  });

  it('gives Claude Code the model for each family that no alias with * covers', async () => {
    proxy.aliases = ['claude-sonnet-*', 'claude-o*', 'claude-haiku-4-5'];
    assert.equal((await run(['claude'], { WHAT: 'ask' })).code, 0);
    const { args, env } = started();
    for (const variables of [env, JSON.parse(args[1] as string).env]) {
      const set = Object.entries(variables).filter(([name]) => name.startsWith('ANTHROPIC_DEFAULT_'));
      assert.deepEqual(Object.fromEntries(set), {
        ANTHROPIC_DEFAULT_FABLE_MODEL: 'claude-sonnet-4-5',
        ANTHROPIC_DEFAULT_HAIKU_MODEL: 'claude-sonnet-4-5',
      });
    }
  });

  for (const forged of ['{env:GITHUB_TOKEN}', '-c', '__proto__', 'a b', '$(id)', 'a'.repeat(257)]) {
    it(`does not take a model named ${printable(forged, 20)} from the list`, async () => {
      proxy.models = { data: [{ id: forged }] };
      const { code, stderr } = await run(['claude']);
      const words = 'choose the model for the agent with --model: the proxy lists none';
      assert.deepEqual([code, stderr, started()], [1, `Error: ${words}\n`, {}]);
    });
  }

  it('lets no agent expand {env:…} or {file:…} in the name of the chosen model, also with --print', async () => {
    const model = 'x{env:GITHUB_TOKEN}{file:/a}"{';
    const flags = ['--model', model];
    const written = new Map<string, string>();
    for (const agent of ['claude', 'opencode', 'codex', 'pi']) {
      assert.equal((await run([agent, ...flags], { WHAT: 'ask' })).code, 0);
      const { args, env } = started();
      written.set(agent, [...args, env['OPENCODE_CONFIG_CONTENT'], env['LOCAL_PROXY_PROVIDER']].join('\n'));
      written.set(`${agent} --print`, (await run([agent, ...flags, '--print'])).stdout);
    }
    const config = JSON.parse(started().env['OPENCODE_CONFIG_CONTENT'] ?? '{}');
    assert.deepEqual(config, {}, 'pi gets none');
    for (const [what, text] of written) {
      assert.ok(text.includes('x\\u007benv:GITHUB_TOKEN}\\u007bfile:/a}'), `${what}: ${text}`);
      // Variables, and the argument of pi, in which nothing is replaced.
      const settings = text.replace(/'ANTHROPIC_\w+=[^']*'|--model\s'?x\{[^\n']*/g, '');
      assert.ok(!/\{(?:env|file):/.test(settings), `${what}: ${text}`);
    }
  });

  it('starts nothing if the service rejects the key that the agent will send, and says what to do', async () => {
    let sent: string | undefined;
    proxy.answer = (req, res) => {
      if (proxy.own(req, res)) return;
      sent = req.headers.authorization;
      res.writeHead(401).end('{"error":{"message":"the service rejects the API key"}}');
    };
    const { code, stderr } = await run(['claude', ...MODEL]);
    const words =
      /cannot be used: GET \/v1\/models: status 401: the service rejects the API key\. Start the proxy with --api-key, /;
    assert.match(stderr, words);
    assert.deepEqual([code, sent, started()], [1, 'Bearer placeholder', {}]);
  });

  for (const [agent, again] of Object.entries({
    claude: '--continue',
    opencode: '--continue',
    codex: 'resume --last',
    pi: '--continue',
  })) {
    it(`says at the end how to resume ${agent} through the proxy`, async () => {
      const env = environment({ WHAT: 'ask' });
      const { stderr } = await runCommand(['run', agent, ...MODEL], { env });
      const line = `privatemode-proxy run ${agent} --model=model-a -- ${again}`;
      const words = `To go on with this conversation: ${line}\nWithout run, ${agent} would use another service.\n`;
      assert.equal(stderr, words);
    });
  }

  it('starts nothing if no proxy listens, or if the proxy is not ready or asks for a token', async () => {
    const answers: readonly (readonly [answer: RequestListener, words: RegExp])[] = [
      [
        (_, res) => res.writeHead(401).end('{}'),
        /GET \/v1: status 401: \{\}\. Give your token as --token @FILE\n$/,
      ],
      [
        (_, res) => res.writeHead(404).end('<html>'),
        /another program than the proxy answers on \S+: start the proxy there, or give its --port/,
      ],
      [
        (req, res) =>
          req.url === '/readyz'
            ? res.writeHead(503).end('failing: attestation_failed\n')
            : proxy.own(req, res),
        /cannot be used: GET \/readyz: status 503: failing: attestation_failed\n$/,
      ],
    ];
    for (const [answered, words] of answers) {
      proxy.answer = answered;
      assert.match((await run(['claude', ...MODEL])).stderr, words);
    }
    assert.match(
      (await run(['claude', ...MODEL], { PRIVATEMODE_PROXY_PORT: '1' })).stderr,
      /^Error: the proxy on http:\/\/127\.0\.0\.1:1 does not answer \(connect ECONNREFUSED .*\): start it/,
    );
    const onFile = await run(['claude', ...MODEL, '--listen-address=unix:/tmp/proxy.sock']);
    assert.match(onFile.stderr, /^Error: agents cannot use a socket file/);
    assert.deepEqual(started(), {});
  });

  for (const [version, shown, output] of [
    ['0.73.1', '0.73.1', '1'],
    ['0.84.2', '0.84.2', '2'],
    ['pi', 'of an unknown version', '1'],
  ] as const) {
    it(`does not start pi with the version ${version} on output ${output}, which may run extensions of a repository without asking, or change settings`, async () => {
      const { code, stderr } = await run(['pi', ...MODEL], { PI_VERSION: version, PI_OUTPUT: output });
      assert.deepEqual([code, started()], [1, {}]);
      assert.ok(stderr.startsWith(`Error: pi ${shown} cannot run: versions before 0.84.3 `), stderr);
    });
  }

  it('starts pi with the oldest version that will do, and with newer ones', async () => {
    for (const version of ['0.84.3', '1.0.0', 'v0.100.0'])
      assert.equal((await run(['pi', ...MODEL], { PI_VERSION: version, WHAT: 'ask' })).code, 0, version);
  });

  it('starts pi with an extension file that only the user can read, and replaces an older file', async () => {
    const file = join(directory, 'state/privatemode-proxy/pi-extension.ts');
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, 'other', { mode: 0o666 });
    assert.equal((await run(['pi', ...MODEL, '--', '-p', 'x'], { WHAT: 'ask' })).code, 0);
    assert.deepEqual(started().args.slice(0, 2), ['-e', file]);
    assert.match(readFileSync(file, 'utf8'), /registerProvider/);
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  const noToken = '--token goes with an https --url, and not with --print: nobody else may get the token';
  for (const [flags, words] of [
    [['--url=http://a.example'], '--url wants an https URL without a query, not "http://a.example"'],
    [['--token=pmp_CANARY'], '--token wants @FILE, the file that holds the token'],
    [['--token=@t'], noToken],
    [['--token=@t', '--url=http://127.0.0.1:1'], noToken],
    [['--token=@t', '--url=https://localhost:1', '--print'], noToken],
  ] as const) {
    it(`refuses ${flags.join(' ')}`, async () => {
      const { code, stderr } = await run(['claude', ...MODEL, ...flags]);
      assert.deepEqual([code, stderr, proxy.asked], [1, `Error: ${words}\n`, []]);
    });
  }
});

/** JSON over several lines, anything else as it is. */
function shown(text: string): string {
  return text.startsWith('{') ? JSON.stringify(JSON.parse(text), undefined, 2) : text;
}
