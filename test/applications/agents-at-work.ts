/**
 * A working day of the four agents in small, with the real programs: `npm run test:agents`. Each works in a
 * repository whose settings would take its prompts to a second server, which must hear nothing. Installed
 * once below .tools (or AGENTS_DIR).
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startRemote } from '../support/remote/remote.ts';
import {
  AGENT_VERSIONS,
  type EndedAgent,
  INSTALLED,
  installAgents,
  newHome,
  runAgent,
  TRIED,
} from './installed-agents.ts';
import { type AskedModel, type ModelAnswer, type ScriptedModel, serveModel } from './scripted-model.ts';

const CANARY = 'canary-at-work-5f20';
const DONE = 'DONE-OK';
const SUMMARY =
  /followed by a <summary> block|context summarization (?:agent|assistant)|CONTEXT CHECKPOINT COMPACTION/;
const FULL =
  "This model's maximum context length is 65536 tokens. However, your request has 70000 input tokens. Please reduce the length of the input messages.";

/** pi takes a stream that was cut for the end of its turn. */
const ENDS_AT_A_CUT = ['pi'];
/** Codex loses the turn, and compacts at the next one. */
const COMPACTS_LATER = ['codex'];

describe('four agents at work', { timeout: 900_000 }, () => {
  const directory = temporaryDirectory('at-work-');
  const heard: string[] = [];
  let other: Server;
  let elsewhere = '';
  let stack: Stack;
  let model: ScriptedModel;
  /** What the model says to a request that offers tools; set by each test. */
  let answer: (asked: AskedModel, before: readonly AskedModel[]) => ModelAnswer;

  before(async () => {
    installAgents();
    other = createServer((req, res) => {
      heard.push(`${req.method} ${req.url}`);
      res.writeHead(404).end();
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    elsewhere = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    model = await serveModel((asked, earlier) =>
      asked.request['tools'] === undefined && !SUMMARY.test(asked.text)
        ? { say: 'a title' }
        : answer(asked, earlier),
    );
    stack = await startStack({ simulator: { backend: model.url }, flags: ['--responses-api'] });
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(async () => {
    await stack?.close();
    model?.close();
    other?.close();
  });
  beforeEach(() => {
    model.asked.length = 0;
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
    stack.simulator.faults.clear();
  });

  it('are installed in the versions of AGENT_VERSIONS', (t) => {
    for (const [name, version] of Object.entries(AGENT_VERSIONS)) {
      const { version: installed } = JSON.parse(
        readFileSync(join(INSTALLED, 'node_modules', name, 'package.json'), 'utf8'),
      );
      assert.equal(installed, version, name);
      let newest = 'unknown';
      try {
        newest = execFileSync('npm', ['view', name, 'version'], { timeout: 20_000, encoding: 'utf8' }).trim();
      } catch {
        // Without a registry there is nothing to compare with.
      }
      t.diagnostic(`${name} ${version}${newest === version ? '' : ` (newest: ${newest})`}`);
    }
  });

  it('include a Claude Code that fetches a page and asks nobody else about its host', async () => {
    const reached: string[] = [];
    // An HTTP proxy that lets nobody through, and notes whom it was asked for.
    const way = createServer((req, res) => {
      reached.push(`${req.method} ${req.url}`);
      res.writeHead(502).end();
    }).on('connect', (req, socket) => {
      reached.push(`CONNECT ${req.url}`);
      socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
    });
    await new Promise<void>((resolve) => way.listen(0, '127.0.0.1', resolve));
    const proxy = `http://127.0.0.1:${(way.address() as AddressInfo).port}`;
    const page = 'https://page.example/';
    answer = (asked) =>
      asked.text.includes('tool_result')
        ? { say: DONE }
        : { call: 'WebFetch', with: { url: page, prompt: CANARY } };
    const place = { url: stack.url, model: 'scripted', home: newHome(directory) };
    const ended = await runAgent(TRIED.claude.command(place, `Fetch ${page}`), place.home, {
      env: { HTTPS_PROXY: proxy, HTTP_PROXY: proxy },
    });
    way.close();
    assert.equal(ended.status, 0, ended.output);
    assert.ok(reached.length > 0, 'it fetched nothing');
    assert.deepEqual(
      reached.filter((each) => !each.includes('page.example')),
      [],
    );
  });

  for (const [name, agent] of Object.entries(TRIED)) {
    describe(agent.title, () => {
      const home = () => {
        const files = Object.entries(agent.hostile(elsewhere));
        return newHome(directory, Object.fromEntries(files.map(([file, text]) => [`work/${file}`, text])));
      };
      const ask = (at: string, prompt: string, go?: 'on', url = stack.url): Promise<EndedAgent> =>
        runAgent(agent.command({ url, model: 'scripted', home: at }, prompt, go), at);
      const assertDone = ({ status, output }: EndedAgent): void => {
        assert.equal(status, 0, output);
        assert.ok(output.includes(DONE), output);
      };
      const assertNothingLeaked = (): void => {
        assert.deepEqual(heard, []);
        assert.deepEqual(stack.simulator.exchanges.violations(), []);
        assert.equal(stack.simulator.recorder.containing(CANARY).length, 0);
      };

      it('edits a file, and its conversation is resumed', async () => {
        const at = home();
        const file = join(at, 'work/edited.txt');
        answer = (_, earlier) =>
          earlier.some(({ request }) => request['tools'] !== undefined)
            ? { say: DONE }
            : agent.write(file, CANARY);
        assertDone(await ask(at, `Write ${CANARY} into edited.txt`));
        assert.equal(readFileSync(file, 'utf8').trim(), CANARY);
        model.asked.length = 0;
        answer = () => ({ say: DONE });
        assertDone(await ask(at, 'What did you write?', 'on'));
        const last = model.asked.findLast(({ request }) => request['tools'] !== undefined);
        assert.ok(last?.text.includes(`Write ${CANARY} into edited.txt`));
        assert.ok(last?.text.includes('What did you write?'));
        assertNothingLeaked();
      });

      it('continues after a stream was cut, or exits with an error', async () => {
        const at = home();
        answer = (asked) => {
          if (asked.text.includes('the-tool-ran')) return { say: DONE };
          stack.simulator.faults.set('inference-once', 'truncate:3');
          return agent.run('echo the-tool-ran');
        };
        const ended = await ask(at, `Run the tool ${CANARY}`);
        if (ENDS_AT_A_CUT.includes(name)) assert.notEqual(ended.status, 0, ended.output);
        else assertDone(ended);
        assertNothingLeaked();
      });

      it('compacts a conversation that fills the window', async () => {
        const big = (file: string): string => `${CANARY} ${file}\n`.repeat(1200);
        const at = newHome(directory, {
          ...Object.fromEntries(['a.txt', 'b.txt', 'c.txt'].map((file) => [`work/${file}`, big(file)])),
          ...Object.fromEntries(
            Object.entries(agent.hostile(elsewhere)).map(([file, text]) => [`work/${file}`, text]),
          ),
        });
        let summaries = 0;
        answer = (asked) => {
          if (SUMMARY.test(asked.text)) {
            summaries += 1;
            return { say: '<analysis>Well.</analysis>\n<summary>The files were read.</summary>' };
          }
          if (summaries > 0) return { say: DONE };
          const next = ['a.txt', 'b.txt', 'c.txt'].find((file) => !asked.text.includes(`${CANARY} ${file}`));
          if (next !== undefined) return agent.read(join(at, 'work', next));
          const error = { type: 'BadRequestError', message: FULL };
          return {
            status: 400,
            body: asked.isMessages ? { type: 'error', error } : { error: { ...error, code: 400 } },
          };
        };
        const first = await ask(at, 'Read a.txt, b.txt and c.txt');
        if (COMPACTS_LATER.includes(name)) {
          assert.notEqual(first.status, 0, first.output);
          // A resumed session compacts where Codex knows the window, and is refused again elsewhere.
          writeFileSync(join(at, '.codex/config.toml'), 'model_context_window = 16000\n');
          assertDone(await ask(at, 'Go on', 'on'));
        } else assert.ok(first.output.includes(DONE), first.output);
        assert.ok(summaries >= 1);
        assertNothingLeaked();
      });

      it('continues after the proxy was killed and started again', async () => {
        const at = home();
        const remote = await startRemote({ backend: model.url });
        const flags = [...remote.flags, '--responses-api', `--port=${await freePort()}`];
        let proxy: Program = await startProxyProcess(flags, remote.env);
        const { url } = proxy;
        await eventually('the verification', async () => (await fetch(`${url}/readyz`)).ok);
        let again: Promise<void> | undefined;
        const restart = async (): Promise<void> => {
          proxy.process.kill('SIGKILL');
          await new Promise((resolve) => setTimeout(resolve, 1500));
          proxy = await startProxyProcess(flags, remote.env);
        };
        answer = (asked) => {
          if (asked.text.includes('the-tool-ran')) return { say: DONE };
          again ??= new Promise<void>((resolve) => setTimeout(resolve, 300)).then(restart);
          return agent.run('sleep 1; echo the-tool-ran');
        };
        try {
          assertDone(await ask(at, `Run the tool ${CANARY}`, undefined, url));
          assert.notEqual(again, undefined);
          assert.deepEqual(heard, []);
        } finally {
          await again;
          await proxy.stop();
          await remote.close();
        }
      });
    });
  }
});
