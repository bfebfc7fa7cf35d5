/** `npm run demo`, the first thing that a newcomer types: it says what it does, and never hangs. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const ROOT = join(import.meta.dirname, '../..');

interface Demo {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly ended: Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>;
}

describe('npm run demo', { timeout: 120_000 }, () => {
  let temporary: string;
  before(() => {
    temporary = temporaryDirectory('privatemode-demo-test-');
  });

  const demo = (...flags: string[]): Demo => demoIn({}, ...flags);

  function demoIn(env: Record<string, string>, ...flags: string[]): Demo {
    const child = spawn(process.execPath, [join(ROOT, 'bin/demo.ts'), ...flags], {
      env: cleanEnvironment({ TMPDIR: temporary, ...env }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
    return { child, stdout: () => stdout, ended };
  }

  it('--help names the flags and starts nothing', async () => {
    const { code, stdout, stderr } = await demo('--help').ended;
    assert.deepEqual([code, stderr], [0, '']);
    for (const flag of ['--port PORT', '--once', '--agent AGENT', '--help'])
      assert.ok(stdout.includes(flag), flag);
    assert.doesNotMatch(stdout, /Starting/);
  });

  it('refuses a flag that it does not have, and says how to see those it has', async () => {
    const { code, stdout, stderr } = await demo('--prot=1').ended;
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /The demo failed: unknown flag: --prot/);
    assert.match(stderr, /npm run demo -- --help lists the flags\.\n$/);
  });

  const withoutDashes: [name: string, env: Record<string, string>, flags: string[], stderr: string][] = [
    [
      'npm run demo --port 9090',
      { npm_config_port: 'true' },
      ['9090'],
      'npm took --port for a flag of its own: put -- in front, as in npm run demo -- --port',
    ],
    [
      'npm run demo --once',
      { npm_config_once: 'true' },
      [],
      'npm took --once for a flag of its own: put -- in front, as in npm run demo -- --once',
    ],
    ['npm run demo 9090', {}, ['9090'], 'the demo takes flags only, such as --port 9090'],
    ['npm run demo serve', {}, ['serve'], 'the demo takes flags only, such as --port 9090'],
  ];
  for (const [name, env, flags, words] of withoutDashes) {
    it(`refuses "${name}": ${words}`, async () => {
      const { code, stdout, stderr } = await demoIn(env, ...flags).ended;
      assert.deepEqual([code, stdout], [1, '']);
      assert.equal(stderr, `\nThe demo failed: ${words}\nnpm run demo -- --help lists the flags.\n`);
    });
  }

  it('refuses an agent that it does not know, or that is not installed, before it starts anything', async () => {
    const unknown = await demo('--agent', 'cursor').ended;
    const missing = await demoIn({ PATH: '/usr/bin:/bin' }, '--agent', 'codex').ended;
    for (const [{ code, stdout, stderr }, words] of [
      [
        unknown,
        '--agent takes claude, opencode, codex; without it the demo prints the settings of other clients',
      ],
      [missing, 'codex is not installed, or not on the PATH: npm install -g @openai/codex'],
    ] as const) {
      assert.deepEqual([code, stdout], [1, '']);
      assert.equal(stderr, `\nThe demo failed: ${words}\nnpm run demo -- --help lists the flags.\n`);
    }
  });

  it('--once says that all is simulated, streams an answer to each client, leaves nothing behind and ends with 0', async () => {
    const { code, stdout, stderr } = await demo('--once').ended;
    assert.deepEqual([code, stderr], [0, ''], stdout);
    assert.match(stdout, /^Everything here is simulated: /);
    const checks = /: (\d+) checks of its evidence passed/.exec(stdout)?.[1];
    const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
    assert.ok(
      readme.includes(`![The status page of the demo: ${checks} checks held,`),
      'npm run screenshots draws it',
    );
    for (const client of ['OpenAI', 'Anthropic'])
      assert.match(
        stdout,
        new RegExp(`through the official ${client} client:\\n\\n  Every byte of this sentence `),
      );
    assert.match(stdout, /Requests in which the remote's wire saw the prompt in clear: 0\./);
    assert.deepEqual(readdirSync(temporary), []);
  });

  it('--agent runs an agent in an empty directory, against the proxy, and ends with its exit code', async () => {
    const bin = temporaryDirectory('demo-agent-');
    const program = `#!/bin/sh\npwd; ls -A; echo "$@"; exec ${process.execPath} -e '
      const body = JSON.stringify({ model: process.env.ANTHROPIC_MODEL, max_tokens: 9, messages: [{ role: "user", content: "x" }] });
      fetch(process.env.ANTHROPIC_BASE_URL + "/v1/messages", { method: "POST", body }).then(({ status }) => process.exit(status === 200 ? 7 : 1))'\n`;
    writeFileSync(join(bin, 'claude'), program, { mode: 0o755 });
    const env = { PATH: `${bin}:/usr/bin:/bin`, XDG_STATE_HOME: temporaryDirectory('demo-state-') };
    const { code, stdout, stderr } = await demoIn(env, '--agent', 'claude', '--', '-p', 'x').ended;
    assert.equal(code, 7, stdout);
    assert.match(
      stderr,
      /^To go on with this conversation: .*\nclaude alone sends the whole conversation to its own service\.\n$/,
    );
    assert.match(
      stdout,
      /^The model is sim-echo, which repeats what it is sent instead of answering it\.\nStarting claude in (\S+\/scratch), .*\n\n\1\n--settings \{.*\} -p x\n\nRequests of claude: 1\. Those in which the remote's wire saw a conversation in clear: 0\.\n$/m,
    );
    assert.match(stdout, /^The status page: http:/m);
    assert.deepEqual(readdirSync(temporary), []);
  });

  describe('npm run demo where its port is taken', () => {
    let occupied: Server | undefined;
    before(async () => {
      // Where another program has 8080 already, that will do.
      const server = createServer();
      const listening = await new Promise<boolean>((resolve) => {
        server.once('error', () => resolve(false));
        server.listen(8080, '127.0.0.1', () => resolve(true));
      });
      occupied = listening ? server : undefined;
    });
    after(() => occupied?.close());

    it('takes the next free one instead of 8080, says so, and how to find out who has it; the status page and a line show each request', async () => {
      const run = demo();
      const said = await eventually(run.stdout, () => {
        assert.equal(run.child.exitCode, null, run.stdout());
        return run.stdout().includes('until you press Ctrl-C') && run.stdout();
      });
      const port = /!! Port 8080 is taken by another program, so the proxy listens on port (\d+)\./.exec(
        said,
      )?.[1];
      assert.ok(Number(port) > 8080, said);
      assert.match(said, /!! To see which program it is: lsof -nP -iTCP:8080 -sTCP:LISTEN/);
      assert.ok(said.includes(`The proxy listens on http://127.0.0.1:${port} until you press Ctrl-C.`));
      const page = /^The status page: (http:\/\/127\.0\.0\.1:\d+\/)$/m.exec(said)?.[1];
      assert.match(await (await fetch(page as string)).text(), /<title>/);
      for (const agent of ['claude', 'opencode', 'codex'])
        assert.ok(said.includes(` npm start -- run ${agent} --port ${port} --model sim-echo\n`), agent);
      await fetch(`http://127.0.0.1:${port}/v1/models`);
      const body = JSON.stringify({
        model: 'gpt-5',
        max_tokens: 1,
        messages: [{ role: 'user', content: 'x' }],
      });
      const refused = await fetch(`http://127.0.0.1:${port}/v1/messages`, { method: 'POST', body });
      assert.equal(refused.status, 404, 'a model that is none of the simulator');
      run.child.kill('SIGINT');
      const { code, stderr } = await run.ended;
      assert.equal(code, 0);
      const lines = [...stderr.matchAll(/msg="Request ended".* path=(\S+) .*outcome=answered/g)];
      assert.deepEqual(
        lines.map(([, path]) => path),
        ['/v1/chat/completions', '/v1/messages', '/v1/models'],
      );
      assert.deepEqual(readdirSync(temporary), []);
    });

    it('does not leave a port that was asked for: it ends with 1 and says who to ask', async () => {
      const { code, stderr } = await demo('--port=8080').ended;
      assert.equal(code, 1);
      assert.match(stderr, /The demo failed: listening on 127\.0\.0\.1 port 8080: EADDRINUSE/);
      assert.match(stderr, /lsof -nP -iTCP:8080 -sTCP:LISTEN/);
      assert.deepEqual(readdirSync(temporary), []);
    });
  });
});
