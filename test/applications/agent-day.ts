/**
 * A day of Claude Code in minutes: `npm run day`. 200 turns with a tool call each, against a model of 131,072
 * tokens that counts and refuses as vLLM does; the proxy is killed twice, the service is deployed anew once
 * and loses its secrets once. Fails unless the file that the tools wrote has every line once, in order.
 * Prints what happened when.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { countPrompt, overflowOf } from '../../simulator/inference/models/list.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startRemote } from '../support/remote/remote.ts';
import { AGENT_VERSIONS, installAgents, newHome, runAgent, TRIED } from './installed-agents.ts';
import { type ModelAnswer, serveModel } from './scripted-model.ts';

const TURNS = 200;
const WINDOW = 131_072;
const DONE = 'DONE-OK';
const SUMMARY = /followed by a <summary> block/;
/** Characters that each tool call adds to the conversation: some 1,500 tokens. */
const FILL = 6000;

const began = performance.now();
const tell = (text: string): void => {
  process.stdout.write(`${((performance.now() - began) / 1000).toFixed(1).padStart(6)} s  ${text}\n`);
};

installAgents();
const home = newHome(temporaryDirectory('day-'));
const file = join(home, 'work/lines.txt');
let turn = 0;
let compactions = 0;
let refusals = 0;
/** What goes wrong, by the turn before which it does. */
const events = new Map<number, () => void>();

const model = await serveModel((asked): ModelAnswer => {
  const overflow = overflowOf(WINDOW, asked.request);
  if (overflow !== undefined) {
    refusals += 1;
    return { status: 400, body: { type: 'error', error: { type: 'BadRequestError', message: overflow } } };
  }
  if (SUMMARY.test(asked.text)) {
    compactions += 1;
    tell(`compaction ${compactions}, after turn ${turn}, at ${countPrompt(asked.request)} tokens`);
    return {
      say: `<analysis>It goes on.</analysis>\n<summary>${turn} lines were written to lines.txt.</summary>`,
    };
  }
  if (asked.request['tools'] === undefined) return { say: 'a title' };
  // A turn that was asked for again, since its answer was lost, is answered again.
  const written = readLines().length;
  if (written >= TURNS) return { say: DONE };
  turn = written + 1;
  events.get(turn)?.();
  events.delete(turn);
  if (turn % 20 === 0) tell(`turn ${turn}, ${countPrompt(asked.request)} tokens`);
  return TRIED.claude.run(`echo line ${turn} >> lines.txt; head -c ${FILL} /dev/zero | tr '\\0' x`);
});

function readLines(): string[] {
  try {
    return readFileSync(file, 'utf8').trim().split('\n');
  } catch {
    return []; // not written yet
  }
}

const remote = await startRemote({ backend: model.url });
const port = await freePort();
const flags = [
  ...remote.flags.filter((flag) => !flag.startsWith('--manifest-path')),
  ...[`--cdn-base-url=${remote.simulator.url}`, `--port=${port}`],
];
const startReady = async (): Promise<Program> => {
  const program = await startProxyProcess(flags, remote.env);
  await eventually('the verification', async () => (await fetch(`${program.url}/readyz`)).ok, 30_000);
  return program;
};
let proxy = await startReady();
const { url } = proxy;
let restarted: Promise<unknown> = Promise.resolve();
const restart = (): void => {
  tell(`the proxy is killed, at turn ${turn}`);
  restarted = new Promise<void>((resolve) => setTimeout(resolve, 200)).then(async () => {
    proxy.process.kill('SIGKILL');
    await new Promise((resolve) => setTimeout(resolve, 1500));
    proxy = await startReady();
    tell('the proxy is ready again');
  });
};
events.set(50, restart);
events.set(80, () => {
  tell('the service is deployed anew');
  void remote.simulator.rotateManifest();
});
events.set(120, restart);
events.set(150, () => {
  tell('the service has lost its secrets');
  remote.simulator.secrets.dropAll();
});

tell(`Claude Code ${AGENT_VERSIONS['@anthropic-ai/claude-code']} begins`);
const command = TRIED.claude.command({ url, model: 'scripted', home }, `Write ${TURNS} lines, one a turn`);
const env = { CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(WINDOW) };
const { status, output } = await runAgent(command, home, { timeoutMs: 15 * 60_000, env });
await restarted;
tell(
  `it ended with ${status} after ${model.asked.length} requests, ${compactions} compactions and ${refusals} refusals`,
);
await proxy.stop();
await remote.close();
model.close();
assert.equal(status, 0, output);
assert.ok(output.includes(DONE), output);
assert.deepEqual(
  readLines(),
  Array.from({ length: TURNS }, (_, index) => `line ${index + 1}`),
);
assert.ok(compactions >= 2);
tell('every line is there once, in order');
process.exit(0);
