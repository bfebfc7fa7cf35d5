/** `privatemode-proxy run AGENT`, with programs that stand in for the agents; test/applications/agents.ts runs the real ones. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { printable } from '../../lib/text.ts';
import { runCommand } from '../support/processes/command.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';

/** The last lines after each agent, which one test reads. */
const GO_ON = /^To go on with this conversation: .*\n.* alone .*\n$/m;
const REAL_KEY = 'sk-real-4c1e';

/** Notes how it was started, then does what WHAT says. */
const STAND_IN = `#!${process.execPath}
const { writeFileSync } = require('node:fs');
writeFileSync(process.env.NOTES, JSON.stringify({ args: process.argv.slice(2), env: process.env, cwd: process.cwd() }));
const post = (url) => fetch(url, { method: 'POST', body: '{}' }).then((response) => response.text());
const config = JSON.parse(process.env.OPENCODE_CONFIG_CONTENT ?? '{}');
const codex = /base_url="([^"]+)"/.exec(process.argv.join(' '))?.[1];
const url = process.env.ANTHROPIC_BASE_URL ?? codex ?? Object.values(config.provider)[0].options.baseURL;
(async () => {
  switch (process.env.WHAT) {
    case 'ask': process.stdout.write(await post(url + '/messages')); break;
    case 'fail': await post(url); process.exit(7);
    case 'die': await post(url); process.kill(process.pid, 'SIGKILL'); break;
    case 'wait': process.on('SIGTERM', () => process.exit(9)); setInterval(() => {}, 1000); process.stdout.write('waiting'); break;
    case 'whole': await post(url).catch(() => process.exit(8)); break;
    case 'look': await fetch(url + '/v1/models'); break;
  }
})();
`;

describe('privatemode-proxy run', { timeout: 120_000 }, () => {
  const directory = temporaryDirectory('run-test-');
  const programs = join(directory, 'bin');
  const notes = join(directory, 'notes.json');
  let port = 0;
  let answer: RequestListener;
  const asked: string[] = [];
  const server = createServer((req, res) => {
    asked.push(`${req.method} ${req.url}`);
    answer(req, res);
  });
  let endpoints: readonly string[] = [];
  let aliases: readonly string[] = [];
  /** What the proxy says about itself; gives whether it was asked for that. */
  const own: (...args: Parameters<RequestListener>) => boolean = (req, res) => {
    if (req.url === '/readyz') res.writeHead(204).end();
    else if (req.url === '/v1')
      res.end(JSON.stringify({ name: 'privatemode-proxy', endpoints, model_aliases: aliases }));
    else return false;
    return true;
  };
  before(async () => {
    mkdirSync(programs);
    for (const name of ['claude', 'opencode', 'codex'])
      writeFileSync(join(programs, name), STAND_IN, { mode: 0o755 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  beforeEach(() => {
    asked.length = 0;
    aliases = [];
    endpoints = ['POST /v1/messages', 'POST /v1/responses'];
    answer = (req, res) => {
      if (own(req, res)) return;
      if (req.url === '/v1/models') res.end('{"data":[{"id":"model-a"},{"id":"model-b"}]}');
      else res.end('answered');
    };
    writeFileSync(notes, '{}');
  });

  const started = (): {
    readonly args: string[];
    readonly env: Record<string, string>;
    readonly cwd: string;
  } => JSON.parse(readFileSync(notes, 'utf8'));
  const environment = (env: Record<string, string>): Record<string, string> =>
    cleanEnvironment({
      NOTES: notes,
      PATH: `${programs}:/usr/bin:/bin`,
      XDG_STATE_HOME: join(directory, 'state'),
      PRIVATEMODE_PROXY_PORT: String(port),
      ...env,
    });

  function start(args: readonly string[], env: Record<string, string> = {}) {
    const child = spawn(process.execPath, [join(ROOT, 'bin/privatemode-proxy.ts'), 'run', ...args], {
      env: environment(env),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const written = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text) => (written.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (written.stderr += text));
    const ended = once(child, 'close').then(([code]) => ({
      ...{ code, stdout: written.stdout },
      stderr: written.stderr.replace(GO_ON, ''),
    }));
    return { child, ended };
  }
  const run = (args: readonly string[], env?: Record<string, string>) => start(args, env).ended;

  const MODEL = ['--model', 'model-a'];

  describe('claude', () => {
    it('asks the proxy, by variables and by settings that win over its files', async () => {
      const { code, stdout, stderr } = await run(['claude', ...MODEL, '--', '-p', 'x y'], { WHAT: 'ask' });
      assert.deepEqual([code, stdout, stderr], [0, 'answered', '']);
      assert.ok(asked.includes('POST /messages'), asked.join());
      const { args, env } = started();
      assert.deepEqual([args[0], args.slice(2)], ['--settings', ['-p', 'x y']]);
      const settings = JSON.parse(args[1] as string);
      assert.match(env['ANTHROPIC_BASE_URL'] as string, /^http:\/\/127\.0\.0\.1:\d+$/);
      assert.equal(env['CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST'], '1');
      for (const variables of [env, settings.env]) {
        assert.equal(variables['ANTHROPIC_BASE_URL'], env['ANTHROPIC_BASE_URL']);
        assert.equal(variables['ANTHROPIC_AUTH_TOKEN'], 'placeholder');
        assert.equal(variables['ANTHROPIC_MODEL'], 'model-a');
        assert.equal(variables['ANTHROPIC_DEFAULT_HAIKU_MODEL'], 'model-a');
        assert.equal(variables['CLAUDE_CODE_ENABLE_TELEMETRY'], '0');
        assert.equal(variables['OTEL_LOGS_EXPORTER'], 'none');
        assert.match(variables['NO_PROXY'], /127\.0\.0\.1/);
      }
      const unset = [
        'ANTHROPIC_API_KEY',
        'CLAUDE_CODE_USE_BEDROCK',
        'ANTHROPIC_CUSTOM_HEADERS',
        'BETA_TRACING_ENDPOINT',
      ];
      for (const name of unset) assert.equal(settings.env[name], '', name);
      assert.equal(settings.apiKeyHelper, '');
    });
  });

  it('opencode asks the proxy, by a provider whose name stays the same and which is the only one', async () => {
    const names = [];
    for (const _ of [1, 2]) {
      const { code, stdout, stderr } = await run(['opencode', ...MODEL, '--', 'run', 'x'], { WHAT: 'ask' });
      assert.deepEqual([code, stdout, stderr], [0, 'answered', '']);
      assert.ok(asked.includes('POST /v1/messages'), asked.join());
      const { args, env } = started();
      assert.deepEqual(args, ['run', 'x']);
      const config = JSON.parse(env['OPENCODE_CONFIG_CONTENT'] as string);
      const [name] = Object.keys(config.provider);
      assert.deepEqual(config.enabled_providers, [name]);
      assert.deepEqual([config.model, config.small_model], [`${name}/model-a`, `${name}/model-a`]);
      assert.deepEqual([config.share, config.experimental], ['disabled', { openTelemetry: false }]);
      names.push(name);
    }
    assert.equal(names[0], names[1]);
  });

  describe('codex', () => {
    it('asks the proxy, by settings that win over its files, with a provider whose name stays the same', async () => {
      const names = [];
      for (const _ of [1, 2]) {
        const { code, stdout, stderr } = await run(['codex', ...MODEL, '--', 'exec', 'x'], { WHAT: 'ask' });
        assert.deepEqual([code, stdout, stderr], [0, 'answered', '']);
        const { args, env } = started();
        assert.deepEqual(args.slice(-2), ['exec', 'x']);
        const settings = args.slice(0, -2).filter((_, i) => i % 2 === 1);
        assert.ok(
          settings.includes('model="model-a"') && settings.includes('otel.exporter="none"'),
          settings.join(),
        );
        const [, name] = /^model_provider="(privatemode-[0-9a-f]{16})"$/m.exec(settings.join('\n')) ?? [];
        const provider = settings.find((setting) => setting.startsWith(`model_providers.${name}={`)) ?? '';
        assert.match(
          provider,
          /base_url="http:\/\/127\.0\.0\.1:\d+\/v1",wire_api="responses",env_key="LOCAL_PROXY_KEY"\}$/,
        );
        assert.equal(env['LOCAL_PROXY_KEY'], 'placeholder');
        names.push(name);
      }
      assert.equal(names[0], names[1]);
    });

    it('is not started where the proxy has no Responses API', async () => {
      endpoints = ['POST /v1/messages'];
      const { code, stderr } = await run(['codex', ...MODEL]);
      const words =
        'codex needs POST /v1/responses, which this proxy does not serve: start it with --responses-api';
      assert.deepEqual([code, stderr, started()], [1, `Error: ${words}\n`, {}]);
    });
  });

  const inProject = 'Write them to .claude/settings.json of the project';
  const ownWay = 'Leave it out: such a session has its own way to a model';
  const ofRun = 'Leave it out: run sets the provider and switches off telemetry';
  for (const [agent, args, named, instead] of [
    ['claude', ['--settings', 'x'], '--settings', inProject],
    ['claude', ['--settings={}', 'x'], '--settings', inProject],
    ['claude', ['--cloud', 'x'], '--cloud', ownWay],
    ['claude', ['--sdk-url', 'ws://x'], '--sdk-url', ownWay],
    ['claude', ['--model', '--', '--settings', 'x'], '--settings', inProject],
    ['opencode', ['run', '--attach=http://x'], '--attach', ownWay],
    ['codex', ['-c', 'model_provider="evil"', 'x'], '-c model_provider', ofRun],
    ['codex', ['exec', '-c', ' \u0085model_provider = "evil"', 'x'], '-c model_provider', ofRun],
    ['codex', ['-cmodel_provider=evil'], '-c model_provider', ofRun],
    ['codex', ['-c=model_provider =evil'], '-c model_provider', ofRun],
    ['codex', ['--config', '\tmodel_providers.evil={}'], '-c model_providers', ofRun],
    ['codex', ['-c', '--config=model_providers.evil={}', 'x'], '-c model_providers', ofRun],
    ['codex', ['-c', '-cotel.exporter="x"', 'x'], '-c otel', ofRun],
    ['codex', ['-c', 'profile="evil"'], '-c profile', ofRun],
    ['codex', ['-c', 'profiles.a.model_provider="evil"'], '-c profiles', ofRun],
    ['codex', ['-c', '--oss', 'x'], '--oss', 'Choose the model in front of --, with --model'],
    ['codex', ['-c', '--remote', 'x'], '--remote', ownWay],
  ] as const) {
    it(`starts no ${agent} with ${args.join(' ')}, by which prompts could bypass the proxy`, async () => {
      const { code, stderr } = await run([agent, ...MODEL, '--', ...args]);
      const why = `${agent} cannot run with ${named}: its prompts could bypass the proxy. ${instead}`;
      assert.deepEqual([code, stderr, started()], [1, `Error: ${why}\n`, {}]);
    });
  }

  it('starts codex with settings and prompts that only look like those by which prompts could bypass the proxy', async () => {
    const args = [
      'exec',
      '-c',
      'model_reasoning_effort="low"',
      '--config=tools.otel=1',
      'model_provider = x?',
    ];
    assert.equal((await run(['codex', ...MODEL, '--', ...args], { WHAT: 'ask' })).code, 0);
    assert.deepEqual(started().args.slice(-args.length), args);
  });

  it('withholds from the agent every key, and what chooses another way for prompts', async () => {
    const others = {
      ANTHROPIC_API_KEY: REAL_KEY,
      ANTHROPIC_BEDROCK_BASE_URL: 'http://127.0.0.1:1',
      CLAUDE_CODE_USE_BEDROCK: '1',
      CLAUDE_CODE_USE_VERTEX: '1',
      OPENAI_API_KEY: REAL_KEY,
      OPENAI_BASE_URL: 'http://127.0.0.1:1',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
      PRIVATEMODE_API_KEY: REAL_KEY,
    };
    for (const agent of ['claude', 'opencode', 'codex']) {
      const { code } = await run([agent, ...MODEL], {
        WHAT: 'ask',
        ...others,
        HTTP_PROXY: 'http://127.0.0.1:1',
        NO_PROXY: 'a.example',
      });
      assert.equal(code, 0);
      const { args, env } = started();
      for (const name of Object.keys(others)) assert.equal(env[name], undefined, name);
      assert.ok(!JSON.stringify({ args, env }).includes(REAL_KEY));
      for (const name of ['NO_PROXY', 'no_proxy']) assert.equal(env[name], 'a.example,127.0.0.1', name);
      if (agent === 'claude') assert.match(args[1] as string, /"NO_PROXY":"a\.example,127\.0\.0\.1"/);
      assert.equal(env['HTTP_PROXY'], 'http://127.0.0.1:1', 'its tools may need it');
    }
  });

  it('starts the agent where the caller of npm stood, not in the checkout', async () => {
    assert.equal((await run(['claude', ...MODEL], { WHAT: 'ask', INIT_CWD: programs })).code, 0);
    assert.deepEqual([started().cwd, started().env['PWD']], [programs, programs]);
  });

  it('breaks a response off for the agent where it breaks off', async () => {
    answer = (req, res) => {
      if (!own(req, res)) res.write('half', () => res.destroy());
    };
    assert.equal((await run(['claude', ...MODEL], { WHAT: 'whole' })).code, 8);
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

  for (const [what, name] of [
    ['ask', 'asked'],
    ['look', 'only looked at the models'],
    ['', 'did nothing'],
  ] as const) {
    it(`${what === 'ask' ? 'does not warn' : 'warns'} where an agent that ended ${name}`, async () => {
      const { code, stderr } = await run(['claude', ...MODEL], { WHAT: what });
      assert.equal(code, 0);
      if (what === 'ask') assert.equal(stderr, '');
      else
        assert.match(
          stderr,
          /^Warning: nothing came from claude to the proxy\..* that prompt went elsewhere/,
        );
    });
  }

  it('--print shows a command for a shell, and starts nothing', async () => {
    const env = { ANTHROPIC_API_KEY: REAL_KEY, WHAT: 'ask' };
    const { code, stdout } = await run(['claude', ...MODEL, '--print', '--', '-p', "it's"], env);
    assert.deepEqual([code, started()], [0, {}]);
    assert.match(stdout, /^env .*-u ANTHROPIC_API_KEY .* claude --settings '\{.*\}' -p 'it'\\''s'\n$/);
    assert.ok(!stdout.includes(REAL_KEY));
    const { PATH, NOTES } = environment({});
    const shell = `export PATH=${PATH} NOTES=${NOTES} WHAT=ask; ${stdout}`;
    assert.equal((await runAside('/bin/sh', ['-c', shell])).stdout, 'answered');
    assert.ok(asked.includes('POST /messages'));
    assert.deepEqual(started().args.slice(2), ['-p', "it's"]);
  });

  it('refuses an agent it does not know, with the variables that other clients take', async () => {
    const { code, stderr } = await run(['aider', '--', 'x']);
    assert.equal(code, 1);
    assert.equal((await run([])).stderr, stderr, 'the same for none');
    const url = `http://127.0.0.1:${port}`;
    assert.ok(stderr.startsWith('Error: run starts claude, opencode, codex.'), stderr);
    for (const words of [
      `OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=placeholder`,
      `ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=placeholder`,
      'To start the proxy itself, give no command',
    ])
      assert.ok(stderr.includes(words), stderr);
  });

  for (const [word, meant] of [
    ['Claude', 'claude'],
    ['claude-code', 'claude'],
    ['codex-cli', 'codex'],
  ] as const) {
    it(`names the agent that was meant by ${word}`, async () => {
      const { code, stderr } = await run([word]);
      assert.deepEqual([code, stderr], [1, `Error: run knows no agent ${word}. Did you mean ${meant}?\n`]);
    });
  }

  it('warns of a model that neither the service nor an alias has, and of no other', async () => {
    aliases = ['claude-*'];
    const { code, stderr } = await run(['claude', '--model', 'model-c'], { WHAT: 'ask' });
    const warning = 'Warning: the service lists no model model-c, but model-a, model-b.\n';
    assert.deepEqual([code, stderr], [0, warning]);
    assert.equal((await run(['claude', '--model', 'claude-x'], { WHAT: 'ask' })).stderr, '');
  });

  it('leaves Claude Code the names that an alias covers where no model was chosen', async () => {
    aliases = ['claude-*'];
    const { code, stderr } = await run(['claude'], { WHAT: 'ask' });
    assert.deepEqual([code, stderr], [0, '']);
    const { args, env } = started();
    assert.match(env['ANTHROPIC_BASE_URL'] as string, /^http:/);
    assert.ok(![...Object.keys(env), args[1]].some((text) => /ANTHROPIC_\w*MODEL/.test(text as string)));
    const words = 'Error: choose the model for the agent with --model: model-a, model-b\n';
    assert.equal((await run(['codex'])).stderr, words);
  });

  it('believes no list of models that a name is an alias', async () => {
    const entry = '{"id":"model-a","owned_by":"privatemode-proxy: alias of model-a"}';
    answer = (req, res) =>
      own(req, res) || res.end(req.url === '/v1/models' ? `{"data":[${entry},${entry}]}` : entry);
    const { stderr } = await run(['claude']);
    assert.equal(stderr, 'Error: choose the model for the agent with --model: model-a, model-a\n');
    assert.deepEqual(started(), {});
  });

  for (const forged of [
    '{env:GITHUB_TOKEN}',
    '{file:~/.npmrc}',
    '-c',
    '--settings',
    '__proto__',
    'a b',
    'a\n',
    'a"b',
    '$(id)',
    'a'.repeat(257),
  ]) {
    it(`asks for --model where the only one of the service is ${printable(forged, 20)}`, async () => {
      answer = (req, res) => own(req, res) || res.end(JSON.stringify({ data: [{ id: forged }] }));
      for (const agent of ['claude', 'opencode', 'codex'])
        assert.deepEqual(await run([agent]), {
          code: 1,
          stdout: '',
          stderr: `Error: choose the model for the agent with --model: ${printable(forged)}\n`,
        });
      assert.deepEqual(started(), {});
    });
  }

  it('lets no agent replace a part of the model that the user chose, as started and as printed', async () => {
    const model = 'x{env:GITHUB_TOKEN}{file:/a}"{';
    const flags = ['--model', model];
    const written = new Map<string, string>();
    for (const agent of ['claude', 'opencode', 'codex']) {
      assert.equal((await run([agent, ...flags], { WHAT: 'ask' })).code, 0);
      const { args, env } = started();
      written.set(agent, [...args, env['OPENCODE_CONFIG_CONTENT']].join('\n'));
      written.set(`${agent} --print`, (await run([agent, ...flags, '--print'])).stdout);
    }
    const config = JSON.parse(started().env['OPENCODE_CONFIG_CONTENT'] ?? '{}');
    assert.deepEqual(config, {}, 'codex gets none');
    for (const [what, text] of written) {
      assert.ok(text.includes('x\\u007benv:GITHUB_TOKEN}\\u007bfile:/a}'), `${what}: ${text}`);
      const settings = text.replace(/'ANTHROPIC_\w+=[^']*'/g, ''); // variables, in which nothing is replaced
      assert.ok(!/\{(?:env|file):/.test(settings), `${what}: ${text}`);
    }
  });

  it('says what is wrong where the proxy has no key of its own, or does not use it', async () => {
    let sent: string | undefined;
    answer = (req, res) => {
      if (own(req, res)) return;
      sent = req.headers.authorization;
      res.writeHead(401).end('{"error":{"message":"the service rejects the API key"}}');
    };
    for (const model of [[], MODEL]) {
      const { code, stderr } = await run(['claude', ...model]);
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^Error: the proxy on \S+ has no API key of its own, or does not use it: the key "placeholder", which run gives to agents, is rejected\. Start the proxy with --api-key, and --api-key-fallback always or if-placeholder\n$/,
      );
    }
    assert.deepEqual([sent, started()], ['Bearer placeholder', {}]);
  });

  it('says why there is no list to choose a model from', async () => {
    answer = (req, res) =>
      own(req, res) || res.writeHead(502).end('{"error":{"message":"the service cannot be reached"}}');
    const { code, stderr } = await run(['claude']);
    const why = 'the proxy lists none (GET /v1/models: status 502: the service cannot be reached)';
    assert.deepEqual([code, stderr], [1, `Error: choose the model for the agent with --model: ${why}\n`]);
    assert.equal((await run(['claude', ...MODEL], { WHAT: 'ask' })).code, 0);
  });

  for (const [agent, again, alone] of [
    ['claude', '--continue', 'claude alone sends the whole conversation to its own service.'],
    [
      'opencode',
      '--continue',
      'opencode alone ("opencode -s …") opens the conversation with another provider, without a login with a free one, and sends it there.',
    ],
    [
      'codex',
      'resume --last',
      'codex alone does not use the proxy: "codex exec resume --last" begins a new conversation at OpenAI.',
    ],
  ] as const) {
    it(`says at last how to go on with ${agent}, and what it would do alone, on a terminal or not`, async () => {
      for (const stderrIsTTY of [true, false]) {
        const { stderr } = await runCommand(['run', agent, ...MODEL], {
          env: environment({ WHAT: 'ask' }),
          stderrIsTTY,
        });
        const line = `privatemode-proxy run ${agent} --model=model-a -- ${again}`;
        assert.ok(stderr.endsWith(`To go on with this conversation: ${line}\n${alone}\n`), stderr);
      }
    });
  }

  it('says that a session cannot be resumed where the key of its name cannot be kept, and starts the agent', async () => {
    const { code, stderr } = await run(['codex', ...MODEL], { WHAT: 'ask', XDG_STATE_HOME: '/dev/null' });
    const words = "the key for its provider's name cannot be kept (ENOTDIR)";
    const warning = `Warning: codex cannot go on with this session in a later run: ${words}.\n`;
    assert.deepEqual([code, stderr], [0, warning]);
  });

  it('says how to go on as it was started and with the flags that were given', async () => {
    const flags = [`--port=${port}`, ...MODEL];
    for (const [env, program] of [
      [{}, 'privatemode-proxy'],
      [{ npm_lifecycle_event: 'start', INIT_CWD: process.cwd() }, 'npm start --'],
      [{ npm_lifecycle_event: 'start', INIT_CWD: directory }, `npm --prefix ${process.cwd()} start --`],
    ] as const) {
      const { code, stderr } = await runCommand(['run', 'claude', ...flags, '--', '-p', 'x'], {
        env: { ...environment({ WHAT: 'fail' }), ...env },
        stderrIsTTY: true,
      });
      assert.equal(code, 7);
      const again = `${program} run claude --port=${port} --model=model-a -- --continue`;
      assert.ok(
        stderr.endsWith(
          `\nTo go on with this conversation: ${again}\nclaude alone sends the whole conversation to its own service.\n`,
        ),
        stderr,
      );
    }
    const { stderr } = await runCommand(['run', 'claude', ...MODEL], {
      env: environment({ WHAT: 'fail' }),
      stderrIsTTY: true,
    });
    assert.match(stderr, /: privatemode-proxy run claude --model=model-a -- --continue\n/, 'no variables');
  });

  it('says where flags in front of the agent, and arguments of the agent, belong', async () => {
    const early = await run(['--port', '18080', 'claude']);
    assert.equal(early.code, 1);
    assert.match(early.stderr, /; the agent comes first, as in run claude --port 8080 -- ARGS\n$/);
    const { code, stderr } = await run(['claude', '-p', 'x']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /unknown shorthand flag: 'p' .*; write arguments for the agent after --, as in run claude -- ARGS\n$/,
    );
  });

  it('names the models of the service where none was chosen, and takes the only one', async () => {
    const { code, stderr } = await run(['claude']);
    assert.deepEqual(
      [code, stderr],
      [1, 'Error: choose the model for the agent with --model: model-a, model-b\n'],
    );
    answer = (req, res) => own(req, res) || res.end('{"data":[{"id":"one"}]}');
    assert.equal((await run(['claude'], { WHAT: 'ask' })).code, 0);
    assert.equal(started().env['ANTHROPIC_MODEL'], 'one');
  });

  it('starts nothing where no proxy listens, or where it is not ready', async () => {
    const ready = (rest: RequestListener): RequestListener => {
      return (req, res) => (req.url === '/readyz' ? res.writeHead(204).end() : rest(req, res));
    };
    const answers: readonly (readonly [answer: RequestListener, words: RegExp])[] = [
      [
        (_, res) => res.writeHead(400, { 'privatemode-proxy-error': 'malformed_request' }).end(),
        /^Error: run needs a proxy that serves plain HTTP .* start one more without --tls-cert-path, or set the variables of claude yourself/,
      ],
      [
        ready((_, res) => res.writeHead(401).end('{}')),
        /asks for a token of --clients, which run does not have: set the variables of claude/,
      ],
      [ready((_, res) => res.end('<html>')), /the program that listens on \S+ is not privatemode-proxy/],
      [
        (_, res) => res.writeHead(503).end('failing: attestation_failed\n'),
        /cannot be used: not ready \(status 503\): failing: attestation_failed\n$/,
      ],
    ];
    for (const [answered, words] of answers) {
      answer = answered;
      assert.match((await run(['claude', ...MODEL])).stderr, words);
    }
    assert.match(
      (await run(['claude', ...MODEL], { PRIVATEMODE_PROXY_PORT: '1' })).stderr,
      /^Error: the proxy on http:\/\/127\.0\.0\.1:1 cannot be used: nothing listens .* Start it first/,
    );
    const onFile = await run(['claude', ...MODEL, '--listen-address=unix:/tmp/proxy.sock']);
    assert.match(onFile.stderr, /^Error: run needs a proxy that listens on a port/);
    assert.deepEqual(started(), {});
  });

  it('says how to install an agent that is not there', async () => {
    const { code, stderr } = await run(['claude', ...MODEL], { PATH: '/usr/bin:/bin' });
    assert.deepEqual(
      [code, stderr],
      [1, 'Error: claude is not installed, or not on the PATH: npm install -g @anthropic-ai/claude-code\n'],
    );
  });
});
