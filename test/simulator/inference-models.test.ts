import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { createModel } from '../../simulator/inference/model.ts';
import { turnOf } from '../../simulator/inference/models/turn.ts';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { type AskedModel, modelServer } from '../applications/agent-kit.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import {
  clientOf,
  DIALECTS,
  type Dialect,
  type Members,
  membersOf,
} from '../support/remote/literal-client.ts';
import { listening } from '../support/remote/loopback.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';
import { breaches } from '../support/remote/transcripts/grammar.ts';
import type { TranscriptEvent } from '../support/remote/transcripts/transcript.ts';

/** Asks a simulator, and gives the status and the opened response. */
async function asking(t: TestContext, options: SimulatorOptions = {}) {
  const simulator = await startTestSimulator({ apiKey: 'key', ...options });
  t.after(() => simulator.close());
  const client = clientOf(simulator);
  const ask = async (dialect: Dialect, members: Members) => {
    const { attempt, answer } = await client.ask(dialect, members);
    const [text, plain] = [answer.body.toString(), DIALECTS[dialect].answer];
    const isStream = answer.headers['content-type']?.includes('event-stream');
    if (answer.headers['privatemode-encrypted'] !== undefined) return { status: answer.status, body: text };
    const body = isStream ? attempt.openEvents(text, plain) : attempt.openValue(text, plain);
    return { status: answer.status, body };
  };
  return { simulator, client, ask };
}

const CALL = { type: 'function', function: { name: 'look_up', parameters: { properties: {} } } };

describe('a simulated model', () => {
  it('answers as docs/protocol/grammar.md says, as a whole and in a stream', async (t) => {
    const { ask } = await asking(t);
    for (const [dialect, model, more] of [
      ['chat', 'sim-5x0', {}],
      ['chat', 'sim-echo', { n: 3 }],
      ['chat', 'sim-tools', { tools: [CALL], n: 2 }],
      ['completions', 'sim-0x0', {}],
      ['completions', 'sim-echo', { prompt: ['a', '', 'c d e'], n: 2 }],
      ['completions', 'sim-echo', { prompt: [1, 2, 3] }],
      ['messages', 'sim-5x0', {}],
      ['messages', 'sim-tools', { tools: [{ name: 'look_up', input_schema: {} }] }],
      ['messages', 'sim-error-503', {}],
      ['embeddings', 'm', { input: ['a', 'b'], encoding_format: 'base64' }],
    ] as [Dialect, string, Members][]) {
      for (const stream of [false, true]) {
        const members = { ...membersOf(dialect, model, 'x', stream), ...more };
        const { status, body } = await ask(dialect, members);
        const response = Array.isArray(body)
          ? { kind: 'stream' as const, events: body as TranscriptEvent[] }
          : { kind: 'whole' as const, status, body: body as Members };
        assert.deepEqual(breaches(dialect, members, response), [], `${dialect} ${model} ${stream}`);
      }
    }
  });

  it('ends where max_tokens says, and refuses what does not fit or is no request of vLLM', async (t) => {
    const { ask } = await asking(t, { anyName: false });
    const cut = await ask('chat', { ...membersOf('chat', 'sim-4x0', 'x'), max_tokens: 3 });
    assert.match(JSON.stringify(cut.body), /"t0 t1 t2".*"finish_reason":"length"/);
    const broken = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}}' } };
    for (const [model, more, words] of [
      ['sim-64k', { max_tokens: 65_536 }, /'max_tokens' or 'max_completion_tokens' is too large: 65536/],
      ['sim-64k', { messages: ['abc '.repeat(70_000)] }, /maximum context length is 65536 tokens\. However/],
      ['gpt-oss-120b', { messages: ['abc '.repeat(140_000)] }, /^.{9,60}Input length \(14\d{4}\) exceeds/],
      ['sim-echo', { messages: 'hello' }, /messages: Input should be a valid list/],
      ['sim-echo', { messages: [{ role: 'assistant', tool_calls: [broken] }] }, /not a JSON object/],
      ['sim-echo', { n: 0 }, /400/],
    ] as const) {
      const { status, body } = await ask('chat', { ...membersOf('chat', model, 'x'), ...more });
      assert.equal(status, 400, model);
      assert.match(JSON.stringify(body), words);
    }
    const unknown = await ask('chat', membersOf('chat', 'gpt-5', 'x'));
    assert.equal(unknown.status, 404);
    assert.match(JSON.stringify(unknown.body), /This simulator has sim-chat, gpt-oss-120b/);
  });
});

describe('the simulated model that answers a person', () => {
  const write = { name: 'Write', input_schema: { properties: { file_path: {}, content: {} } } };
  const shell = {
    type: 'function',
    function: { name: 'exec_command', parameters: { properties: { cmd: {} } } },
  };
  /** What sim-chat does with this text: what it says, or the arguments of its call. */
  const does = (content: string, tools: unknown = [write], edits: string | undefined = '/scratch') => {
    const turn = turnOf('sim-chat', { messages: [{ role: 'user', content }], tools }, edits);
    assert.notEqual(turn.kind, 'error');
    return turn.kind === 'text' ? [...turn.tokens].join('') : turn.kind === 'tool' ? turn.call.arguments : '';
  };

  it('says back the words of the person, without the blocks of an agent', () => {
    const who = 'I am a simulated model: I understand nothing, and only repeat what you say.';
    assert.equal(does('<environment_context>x</environment_context>\nhello'), `You said: hello. ${who}`);
    assert.equal(does('a'.repeat(5_000)), `You said: ${'a'.repeat(200)} … ${who}`);
  });

  it('makes the edit that the prompt asks for, if the demo allows it and a tool can write', () => {
    const edit = { file_path: '/scratch/note.txt', content: 'hello\n' };
    for (const prompt of ['Write hello to note.txt', `<a-b>x</a-b>"write 'hello' into \`note.txt\`"`])
      assert.deepEqual(does(prompt), edit);
    const cmd = `printf '%s\\n' '$(id); "x"' > /scratch/a.md`;
    assert.deepEqual(does('Write $(id); "x" to a.md', [shell]), { cmd });
    for (const prompt of ['hello', 'What if you write hello to note.txt?'])
      assert.match(String(does(prompt)), /^You/);
    for (const tools of [[], [{ name: 'Read', input_schema: {} }]])
      assert.match(String(does('Write hello to note.txt', tools)), /^You/);
    const turn = turnOf('sim-chat', {
      messages: [{ role: 'user', content: 'Write a to b' }],
      tools: [write],
    });
    assert.equal(turn.kind, 'text', 'without the directory of the demo');
  });

  it('stays in the directory: a path, a hidden file or a parent directory is not taken as a file name', () => {
    for (const file of ['../a', '/etc/passwd', 'a/b', '.bashrc', '..', '~/a', 'a/../../b', 'a\\b', '-rf'])
      assert.match(String(does(`Write hello to ${file}`)), /^You said/, file);
  });
});

describe('a model server behind the simulator', () => {
  it('gets the decrypted request without its faults, with usage in every chunk of a stream, over a connection of its own', async (t) => {
    const asked: AskedModel[] = [];
    const connections: unknown[] = [];
    const server = modelServer(asked, () => ({ say: 'so it is' }));
    server.on('request', ({ headers }) => connections.push(headers.connection));
    const { port } = await listening(t, server);
    const { ask, client } = await asking(t, { backend: `http://127.0.0.1:${port}` });
    const members = membersOf('chat', 'llama+fault=informational:1', 'hello', true);
    assert.match(JSON.stringify((await ask('chat', members)).body), /"so ".*"is".*DONE/);
    const usage = { include_usage: true, continuous_usage_stats: true };
    assert.deepEqual(asked[0]?.request, { ...members, model: 'llama', stream_options: usage });
    assert.match((await client.models()).body.toString(), /"scripted"/);
    assert.deepEqual(connections, ['close', 'close']);
  });

  it('becomes a bare 502 in clear if it cannot be reached', async (t) => {
    const { ask } = await asking(t, { backend: 'http://127.0.0.1:2' });
    const { status, body } = await ask('chat', membersOf('chat', 'm', 'x', true));
    assert.deepEqual([status, /the backend cannot be reached/.test(String(body))], [502, true]);
  });
});

describe('a file of scripted answers for the simulator', () => {
  const path = join(temporaryDirectory('transcripts-'), 'transcripts.json');

  it('is replayed with event names and statuses, one turn per tool result, and only for its models', async (t) => {
    const choice = { index: 0, delta: { reasoning: 'hm' } };
    const events = [{ delayMs: 1, event: 'odd', data: { id: 'a', choices: [choice] } }, { data: '[DONE]' }];
    const second = { unary: { status: 418, body: { id: 'c', choices: [] } } };
    writeFileSync(path, JSON.stringify({ script: { turns: [{ events }, second] } }));
    const { ask } = await asking(t, { transcripts: path });
    const mirrored = { index: 0, delta: { reasoning: 'hm', reasoning_content: 'hm' } };
    const streamed = await ask('chat', membersOf('chat', 'script', 'x', true));
    const first = { event: 'odd', data: { id: 'a', choices: [mirrored] } };
    assert.deepEqual(streamed.body, [first, { data: '[DONE]' }]);
    const messages = [{ role: 'tool', tool_call_id: 'c', content: 'x' }];
    assert.equal((await ask('chat', { ...membersOf('chat', 'script', 'x'), messages })).status, 418);
    assert.equal((await ask('chat', membersOf('chat', 'sim-1x0', 'x'))).status, 200);
  });

  for (const content of ['{', '[]', '{"m":{"events":1}}', '{"m":{"unary":{}}}']) {
    it(`is refused at the start if it holds ${content}`, () => {
      writeFileSync(path, content);
      assert.throws(() => createModel({ transcripts: path }, Date.now), { code: 'config_invalid' });
    });
  }
});
