/** `npm run demo`, the first thing that a newcomer types: it says what it does, and never hangs. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const ROOT = join(import.meta.dirname, '../..');

describe('npm run demo', { timeout: 600_000 }, () => {
  const temporary = temporaryDirectory('privatemode-demo-test-');

  function demo(t: TestContext, flags: readonly string[], env: Record<string, string> = {}) {
    const child = spawn(process.execPath, [join(ROOT, 'scripts/demo.ts'), ...flags], {
      env: cleanEnvironment({ TMPDIR: temporary, ...env }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.after(() => child.kill('SIGKILL'));
    const said = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const)
      child[name].setEncoding('utf8').on('data', (text: string) => (said[name] += text));
    return { child, said, ended: once(child, 'close').then(([code]) => ({ code, ...said })) };
  }

  it('refuses what it does not take before it starts anything, and has a help', async (t) => {
    for (const [flags, words] of [
      [['--prot=1'], /^Unknown option '--prot'/],
      [['--agent', 'cursor'], /^--agent takes claude, opencode, codex, pi\./],
      [['9090'], /^Only an agent takes arguments: add --agent claude\./],
    ] as const) {
      const { code, stdout, stderr } = await demo(t, flags).ended;
      assert.deepEqual([code, stdout], [2, '']);
      assert.match(stderr, words);
    }
    assert.match((await demo(t, ['--help']).ended).stdout, /^--agent AGENT/m);
  });

  it('--once says that all is simulated, streams an answer to each client, leaves nothing behind and ends with 0', async (t) => {
    const { code, stdout, stderr } = await demo(t, ['--once']).ended;
    assert.deepEqual([code, stderr], [0, ''], stdout);
    assert.match(stdout, /^Everything here is simulated: /);
    assert.match(stdout, /: \d+ checks of its evidence passed/);
    for (const client of ['OpenAI', 'Anthropic']) {
      const answer = 'You said: Every byte of this sentence .* I am a simulated model';
      assert.match(stdout, new RegExp(`through the official ${client} client:\\n\\n  ${answer}`));
    }
    const watched =
      /^We watched the wire of the simulated service: your prompt was readable in 0 of 2 requests\.$/m;
    assert.match(stdout, watched);
    assert.match(stdout, /^ {2}! Hardware +\d+ checks +NOT genuine AMD or Intel hardware/m);
    assert.deepEqual(readdirSync(temporary), []);
  });

  it('with --agent runs the agent in an empty directory, where the model has it write a file, then shows the errors of the proxy, and ends with 1 if the conversation was readable', async (t) => {
    const bin = temporaryDirectory('demo-agent-');
    const program = `#!/bin/sh\npwd; ls -A; echo "$@"; exec ${process.execPath} -e '
      process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
      const input_schema = { properties: { file_path: { type: "string" }, content: { type: "string" } } };
      const chat = (model, more) => JSON.stringify({ model, max_tokens: 9, ...more,
        messages: [{ role: "user", content: "Write hello to note.txt" }] });
      const url = process.env.ANTHROPIC_BASE_URL + "/v1/messages";
      (async () => {
        const tools = [{ name: "Write", input_schema }];
        const answer = await fetch(url, { method: "POST", body: chat(process.env.ANTHROPIC_MODEL, { tools }) });
        const { content: [{ name, input }] } = await answer.json();
        console.log(name, JSON.stringify(input));
        await fetch(url, { method: "POST", body: chat("sim-chat+fault=plain_member") }).catch(() => {});
        const { options } = await import(process.cwd() + "/../service.mjs");
        await fetch(options.apiEndpoint + "/v1/messages", { method: "POST", body: chat("sim-chat") });
      })()'\n`;
    writeFileSync(join(bin, 'claude'), program, { mode: 0o755 });
    const env = { PATH: `${bin}:/usr/bin:/bin`, XDG_STATE_HOME: temporaryDirectory('demo-state-') };
    const { code, stdout, stderr } = await demo(t, ['--agent', 'claude', '--', '-p', 'x'], env).ended;
    assert.match(
      stdout,
      /^The model is sim-chat, which only says back what you say\. .*\n"Write hello to note\.txt", .*\nStarting claude in (\S+\/scratch), .*\n\n\1\n--settings \{.*\} -p x\nWrite \{"file_path":"\1\/note\.txt","content":"hello\\n"\}\n\nWe watched the wire of the simulated service: your conversation was readable in 1 of 3 requests\.\n$/m,
    );
    assert.match(stdout, /^The status page: http:/m);
    assert.match(stderr, /^Without run, claude would use another service\.\n/m);
    assert.match(stderr, /level=ERROR/);
    assert.equal(code, 1);
    assert.deepEqual(readdirSync(temporary), []);
  });

  it('says how to find which program has port 8080 if it is taken, takes the next free port, serves the status page and logs each answered request', async (t) => {
    // Where another program has 8080 already, that will do.
    const occupied = createServer()
      .on('error', () => {})
      .listen(8080, '127.0.0.1');
    t.after(() => occupied.close());
    const run = demo(t, []);
    const isUp = (): string | false => {
      assert.equal(run.child.exitCode, null, run.said.stdout);
      return run.said.stdout.includes('until you press Ctrl-C') && run.said.stdout;
    };
    const said = await eventually(() => run.said.stdout, isUp, 120_000);
    const port = /!! Port 8080 is taken by another program, so the proxy listens on port (\d+)\./.exec(
      said,
    )?.[1];
    assert.ok(Number(port) > 8080, said);
    assert.match(said, /!! To see which program it is: lsof -nP -iTCP:8080 -sTCP:LISTEN/);
    assert.ok(said.includes(`The proxy listens on http://127.0.0.1:${port} until you press Ctrl-C.`));
    const page = /^The status page: (http:\/\/127\.0\.0\.1:\d+\/)$/m.exec(said)?.[1];
    assert.match(await (await fetch(page as string)).text(), /<title>/);
    for (const agent of ['claude', 'opencode', 'codex', 'pi'])
      assert.ok(
        said.includes(` ${ROOT}/privatemode-proxy run ${agent} --port ${port} --model sim-chat\n`),
        `${agent}: not in the directory of the checkout, where its tools would work on the proxy`,
      );
    assert.doesNotMatch(said, /exit code/);
    await fetch(`http://127.0.0.1:${port}/v1/models`);
    const messages = [{ role: 'user', content: 'x' }];
    const body = JSON.stringify({ model: 'gpt-5', max_tokens: 1, messages });
    const refused = await fetch(`http://127.0.0.1:${port}/v1/messages`, { method: 'POST', body });
    assert.equal(refused.status, 404, 'a model that is none of the simulator');
    run.child.kill('SIGINT');
    const { code, stderr } = await run.ended;
    assert.equal(code, 0);
    const lines = [...stderr.matchAll(/msg="Request ended".* path=(\S+) .*outcome=answered/g)];
    const paths = lines.map(([, path]) => path);
    assert.deepEqual(paths, ['/v1/chat/completions', '/v1/messages', '/v1/models']);
    assert.deepEqual(readdirSync(temporary), []);
  });
});
