/**
 * The four agents at work, with the real programs: `npm run test:agents`, not part of `npm test`. Each works
 * where the user, the repository and the environment would take its prompts to a second server, which must
 * hear nothing of them. Installed once below .tools (or AGENTS_DIR). `npm run day` is the last test of Claude
 * Code alone, with 200 turns against a model that counts tokens and refuses as vLLM does.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PROVIDER } from '../../lib/commands/agents/agent.ts';
import { countPrompt, overflowOf } from '../../simulator/inference/models/list.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Listening, opened } from '../support/remote/loopback.ts';
import { startRemote } from '../support/remote/remote.ts';
import {
  type AskedModel,
  type EndedAgent,
  installAgents,
  type ModelAnswer,
  modelServer,
  newHome,
  REAL_KEY,
  runAgent,
  SUMMARY,
  TRIED,
} from './agent-kit.ts';

const CANARY = 'canary-at-work-5f20';
const DONE = 'DONE-OK';
const FULL =
  "This model's maximum context length is 65536 tokens. However, your request has 70000 input tokens. Please reduce the length of the input messages.";
const WINDOW = 131_072;
const TURNS = Number(process.env['AGENT_TURNS'] ?? 8);
/** Characters that each turn adds to the conversation: some 1,500 tokens. */
const FILL = 6_000;
const NAMES = Object.keys(TRIED) as (keyof typeof TRIED)[];

describe('four agents at work', { timeout: 1_800_000 }, () => {
  const directory = temporaryDirectory('at-work-');
  const heard: string[] = [];
  const asked: AskedModel[] = [];
  /** What the model says to a request that offers tools; set by each test. */
  let answer: (asked: AskedModel, before: readonly AskedModel[]) => ModelAnswer;
  const model = modelServer(asked, (now, earlier) =>
    now.request['tools'] === undefined && !SUMMARY.test(now.text) ? { say: 'a title' } : answer(now, earlier),
  );
  const other: Server = createServer((req, res) => {
    heard.push(`${req.method} ${req.url}`);
    res.writeHead(404).end('{}');
  }).on('connect', (req, socket) => {
    heard.push(`CONNECT ${req.url}`);
    socket.on('error', () => {}).end('HTTP/1.1 403 No\r\n\r\n');
  });
  let servers: readonly Listening[] = [];
  let elsewhere = '';
  let backend = '';
  let stack: Stack;

  before(async () => {
    installAgents();
    servers = [await opened(other), await opened(model)];
    [elsewhere = '', backend = ''] = servers.map(({ port }) => `http://127.0.0.1:${port}`);
    stack = await startStack({ simulator: { backend }, flags: ['--responses-api'] });
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(async () => {
    await stack?.close();
    for (const server of servers) await server.close();
  });
  beforeEach(() => {
    asked.length = 0;
    heard.length = 0;
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
    stack.simulator.faults.clear();
  });

  for (const name of NAMES) {
    describe(`${name} ${TRIED[name].version}`, () => {
      const agent = TRIED[name];
      const ask = (home: string, prompt: string, goOn = false, url = stack.url): Promise<EndedAgent> =>
        runAgent(name, { url, home, args: agent.args(prompt, goOn) }, agent.env(elsewhere));
      const assertDone = ({ status, output }: EndedAgent): void => {
        assert.equal(status, 0, output);
        assert.ok(output.includes(DONE), output);
      };
      const assertNothingLeaked = (): void => {
        const others = heard.filter((each) => !agent.mayTry.test(each));
        assert.deepEqual(others, []);
        const { exchanges, recorder } = stack.simulator;
        assert.deepEqual(exchanges.violations(), []);
        for (const words of [CANARY, REAL_KEY]) assert.equal(recorder.containing(words).length, 0, words);
        assert.ok(!stack.logLines.join('').includes(REAL_KEY));
        const models = exchanges.all().flatMap((each) => (each.method === 'POST' ? [each.model] : []));
        const foreign = [...new Set(models)].filter((each) => each !== 'scripted');
        assert.deepEqual(foreign, []);
      };

      it('edits a file, and its conversation is resumed; settings of others stay as they were', async () => {
        const files = agent.files(elsewhere);
        const home = newHome(directory, files);
        const file = join(home, 'work/edited.txt');
        answer = (_, earlier) =>
          earlier.some(({ request }) => request['tools'] !== undefined)
            ? { say: DONE }
            : agent.write(file, CANARY);
        assertDone(await ask(home, `Write ${CANARY} into edited.txt`));
        assert.equal(readFileSync(file, 'utf8').trim(), CANARY);
        asked.length = 0;
        answer = () => ({ say: DONE });
        assertDone(await ask(home, 'What did you write?', true));
        const last = asked.findLast(({ request }) => request['tools'] !== undefined);
        assert.ok(last?.text.includes(`Write ${CANARY} into edited.txt`));
        assert.ok(last?.text.includes('What did you write?'));
        for (const [path, text] of Object.entries(files))
          assert.equal(readFileSync(join(home, path), 'utf8'), text);
        assertNothingLeaked();
      });

      it('continues after a stream was cut', async () => {
        answer = (now) => {
          if (now.text.includes('the-tool-ran')) return { say: DONE };
          stack.simulator.faults.set('inference-once', 'truncate:3');
          return agent.run('echo the-tool-ran');
        };
        const ended = await ask(newHome(directory, agent.files(elsewhere)), `Run the tool ${CANARY}`);
        assertDone(ended);
        assertNothingLeaked();
      });

      it('compacts a conversation that fills the window', async () => {
        const NOTES = ['a.txt', 'b.txt', 'c.txt'];
        const notes = NOTES.map((file) => [`work/${file}`, `${CANARY} ${file}\n`.repeat(1200)]);
        const home = newHome(directory, { ...agent.files(elsewhere), ...Object.fromEntries(notes) });
        let summaries = 0;
        answer = (now) => {
          if (SUMMARY.test(now.text)) {
            summaries += 1;
            return { say: '<analysis>Well.</analysis>\n<summary>The files were read.</summary>' };
          }
          if (summaries > 0) return { say: DONE };
          const next = NOTES.find((file) => !now.text.includes(`${CANARY} ${file}`));
          return next === undefined ? { refuse: FULL } : agent.run(`cat ${next}`);
        };
        const first = await ask(home, 'Read a.txt, b.txt and c.txt');
        if (name === 'codex') {
          // It loses the turn. The next one compacts where Codex knows the window, and is refused elsewhere.
          assert.notEqual(first.status, 0, first.output);
          const settings = join(home, '.codex/config.toml');
          writeFileSync(settings, `model_context_window = 16000\n${readFileSync(settings, 'utf8')}`);
          assertDone(await ask(home, 'Go on', true));
        } else assert.ok(first.output.includes(DONE), first.output);
        assert.ok(summaries >= 1);
        assertNothingLeaked();
      });

      it('writes a line in each turn, through a killed proxy, a new deployment and lost secrets', async (t) => {
        const home = newHome(directory, agent.files(elsewhere));
        const file = join(home, 'work/lines.txt');
        const lines = (): string[] => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
        const remote = await startRemote({ backend });
        const flags = [
          ...remote.flags.filter((flag) => !flag.startsWith('--manifest-path')),
          ...['--responses-api', `--cdn-base-url=${remote.simulator.url}`, `--port=${await freePort()}`],
        ];
        const start = async (): Promise<Program> => {
          const program = await startProxyProcess(flags, remote.env);
          await eventually('the verification', async () => (await fetch(`${program.url}/readyz`)).ok);
          return program;
        };
        let proxy = await start();
        let restarted: Promise<void> | undefined;
        const restart = async (): Promise<void> => {
          await delay(200); // into the answer
          proxy.process.kill('SIGKILL');
          await delay(1_500);
          proxy = await start();
        };
        /** What goes wrong, by the turn before which it does. */
        const events = new Map<number, () => void>([
          [Math.ceil(TURNS / 4), () => (restarted = restart())],
          [Math.ceil(TURNS / 2), () => void remote.simulator.rotateManifest()],
          [Math.ceil((3 * TURNS) / 4), () => remote.simulator.secrets.dropAll()],
        ]);
        let [turn, summaries] = [0, 0];
        answer = (now) => {
          const refuse = overflowOf(WINDOW, now.request);
          if (refuse !== undefined) return { refuse };
          if (SUMMARY.test(now.text)) {
            summaries += 1;
            return { say: `<analysis>On.</analysis>\n<summary>${turn} lines were written.</summary>` };
          }
          // A turn that was asked for again, since its answer was lost, is answered again.
          turn = lines().length + 1;
          if (turn > TURNS) return { say: DONE };
          events.get(turn)?.();
          events.delete(turn);
          if (turn % 20 === 0) t.diagnostic(`turn ${turn}, ${countPrompt(now.request)} tokens`);
          return agent.run(`echo line ${turn} >> lines.txt; head -c ${FILL} /dev/zero | tr '\\0' x`);
        };
        try {
          const place = { url: proxy.url, home, args: agent.args(`Write ${TURNS} lines: ${CANARY}`, false) };
          const env = { ...agent.env(elsewhere), CLAUDE_CODE_MAX_CONTEXT_TOKENS: `${WINDOW}` };
          assertDone(await runAgent(name, place, env, TURNS * 6_000 + 60_000));
          const written = Array.from({ length: TURNS }, (_, index) => `line ${index + 1}`);
          assert.deepEqual(lines(), written);
          assert.equal(events.size, 0);
          if (TURNS >= 200) assert.ok(summaries >= 2, `${summaries} compactions`);
          assertNothingLeaked();
        } finally {
          await restarted;
          await proxy.stop();
          await remote.close();
        }
      });
    });
  }

  it('claude fetches a page, and asks nobody else about its host', async () => {
    const page = 'https://page.example/';
    answer = (now) =>
      now.text.includes('tool_result')
        ? { say: DONE }
        : { call: 'WebFetch', with: { url: page, prompt: CANARY } };
    const args = TRIED.claude.args(`Fetch ${page}`, false);
    const place = { url: stack.url, home: newHome(directory), args };
    const { status, output } = await runAgent('claude', place, { HTTPS_PROXY: elsewhere });
    assert.equal(status, 0, output);
    assert.deepEqual([...new Set(heard)], ['CONNECT page.example:443']);
  });

  it('opencode does not ask for a model that a project adds to the provider of run', async () => {
    const settings = JSON.parse(TRIED.opencode.files(elsewhere)['work/opencode.json'] as string);
    const text = JSON.stringify({ ...settings, agent: { build: { model: `${PROVIDER}/m` } } });
    const place = { url: stack.url, home: newHome(directory, { 'work/opencode.json': text }) };
    const ended = await runAgent('opencode', { ...place, args: TRIED.opencode.args(CANARY, false) });
    assert.notEqual(ended.status, 0, ended.output);
    assert.deepEqual([asked, heard], [[], []]);
  });
});
