/** What the simulated model says to a person, and the one edit that it may have an agent make. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createModel } from '../../simulator/inference/model.ts';
import { turnOf } from '../../simulator/inference/models/turn.ts';

const WHO = 'I am a simulated model: I understand nothing, and only repeat what you say.';

/** What sim-chat says to this text, whole. */
function saidTo(content: unknown, more: Record<string, unknown> = {}, edits?: string): string {
  const turn = turnOf('sim-chat', { messages: [{ role: 'user', content }], ...more }, edits);
  assert.equal(turn.kind, 'text', JSON.stringify(turn));
  return turn.kind === 'text' ? [...turn.tokens].join('') : '';
}

describe('the simulated model that answers a person', () => {
  for (const [what, content, said] of [
    ['a word', 'hello', `You said: hello. ${WHO}`],
    ['a sentence with its end', 'Who are you?', `You said: Who are you? ${WHO}`],
    ['nothing', '', `You said nothing. ${WHO}`],
    [
      'the blocks of Claude Code beside the words',
      [
        { type: 'text', text: '<system-reminder>\nAttribute each commit.\n</system-reminder>\n' },
        { type: 'text', text: 'hello' },
        { type: 'text', text: '<system-reminder>More.</system-reminder>' },
      ],
      `You said: hello. ${WHO}`,
    ],
    [
      'the block of Codex',
      '<environment_context><cwd>/home</cwd></environment_context>\nhello',
      `You said: hello. ${WHO}`,
    ],
    ['a long text', 'a'.repeat(5_000), `You said: ${'a'.repeat(200)} … ${WHO}`],
  ] as const) {
    it(`answers ${what}`, () => assert.equal(saidTo(content), said));
  }

  it('answers for the model name of the examples; for an unknown name it lists its models with status 404', async () => {
    const model = createModel({ anyName: false }, Date.now);
    const ask = (name: string) =>
      model.respond(
        {
          endpoint: { name: 'chat' },
          target: '/v1/chat/completions',
          model: name,
          stream: false,
          body: {
            kind: 'json',
            text: '{}',
            value: { model: name, messages: [{ role: 'user', content: 'hello' }] },
          },
        } as unknown as Parameters<typeof model.respond>[0],
        AbortSignal.timeout(10_000),
      );
    const known = await ask('gpt-oss-120b');
    assert.ok(known.kind === 'unary' && known.body.includes('You said: hello. '), JSON.stringify(known));
    const unknown = await ask('gpt-5');
    assert.ok(unknown.kind === 'unary' && unknown.status === 404);
    assert.match(
      unknown.body,
      /The model `gpt-5` does not exist\. This simulator has sim-chat, gpt-oss-120b, /,
    );
  });
});

const anthropic = (name: string, ...names: string[]) => ({
  name,
  input_schema: { properties: Object.fromEntries(names.map((key) => [key, { type: 'string' }])) },
});
const openai = (name: string, ...names: string[]) => ({
  type: 'function',
  function: { name, parameters: anthropic(name, ...names).input_schema },
});
const CLAUDE = [anthropic('Bash', 'command'), anthropic('Write', 'file_path', 'content')];

/** What sim-chat does with this prompt; `edits` as the demo gives it. */
function callFor(prompt: string, tools: unknown, edits: string | undefined = '/scratch') {
  const turn = turnOf('sim-chat', { messages: [{ role: 'user', content: prompt }], tools }, edits);
  return turn.kind === 'tool' ? [turn.call.name, turn.call.arguments] : turn.kind;
}

describe('the edit of the simulated model', () => {
  for (const [agent, tools, call] of [
    ['Claude Code', CLAUDE, ['Write', { file_path: '/scratch/note.txt', content: 'hello\n' }]],
    [
      'opencode',
      [openai('bash', 'command'), openai('write', 'content', 'filePath')],
      ['write', { filePath: '/scratch/note.txt', content: 'hello\n' }],
    ],
    [
      'pi',
      [openai('write', 'path', 'content')],
      ['write', { path: '/scratch/note.txt', content: 'hello\n' }],
    ],
    [
      'Codex',
      [openai('exec_command', 'cmd', 'workdir')],
      ['exec_command', { cmd: "printf '%s\\n' hello > /scratch/note.txt" }],
    ],
  ] as const) {
    it(`is the call of ${agent} that writes a file`, () =>
      assert.deepEqual(callFor('Write hello to note.txt', tools), call));
  }

  it('takes text and file name from the prompt, with or without quotes', () => {
    for (const prompt of [
      'Write "hello, world" to `a-b.md`.',
      "write 'hello, world' into a-b.md",
      '<system-reminder>Rules.</system-reminder>Write hello, world to a-b.md',
      '"Write hello, world to a-b.md"',
    ])
      assert.deepEqual(callFor(prompt, CLAUDE), [
        'Write',
        { file_path: '/scratch/a-b.md', content: 'hello, world\n' },
      ]);
    const [, { cmd }] = callFor('Write $(id); "x" to a.md', [openai('exec_command', 'cmd')]) as [
      string,
      { cmd: string },
    ];
    assert.equal(cmd, `printf '%s\\n' '$(id); "x"' > /scratch/a.md`);
  });

  it('stays in the directory: a path, a hidden file or a parent directory is not taken as a file name', () => {
    for (const file of [
      '../a',
      '/etc/passwd',
      'a/b',
      '.bashrc',
      '..',
      '.',
      '~/a',
      'a/../../b',
      'a\\b',
      '-rf',
    ])
      assert.equal(callFor(`Write hello to ${file}`, CLAUDE), 'text', file);
  });

  it('is made only if the demo allows it, the prompt asks for it and a tool can write files', () => {
    assert.equal(
      turnOf('sim-chat', { messages: [{ role: 'user', content: 'Write hello to note.txt' }], tools: CLAUDE })
        .kind,
      'text',
    );
    for (const prompt of ['hello', 'Please delete note.txt', 'What if you write hello to note.txt?'])
      assert.equal(callFor(prompt, CLAUDE), 'text', prompt);
    for (const tools of [undefined, [], [anthropic('Read', 'file_path')], [anthropic('Write', 'file_path')]])
      assert.equal(callFor('Write hello to note.txt', tools), 'text');
    assert.equal(turnOf('sim-echo', { messages: [], tools: CLAUDE }, '/scratch').kind, 'text');
  });
});
