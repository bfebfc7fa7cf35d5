/**
 * The SDK settings of docs/sdks.md as they are written there; what follows them here asks questions. One
 * program for each SDK tries the lines first, and then the variables.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { python } from '../support/processes/foreign-programs.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';
import { settings, variables } from './settings.ts';

const CANARY = 'canary-settings-41c8';
const PYTHON = python([join(ROOT, '.tools/python/bin')]);

interface Words {
  /** A client that is told nothing, and takes everything from variables; after the lines of the page. */
  readonly bare: string;
  /** Asks `client` twice, the second time in a stream; prints both answers. */
  readonly ask: string;
}

const LANGUAGES = {
  ts: {
    skip: false,
    command: [process.execPath, '--input-type=module-typescript', '--eval'],
    program: (lines: string, env: string, { bare, ask }: Words) =>
      `${lines}\n{${ask}}\nObject.assign(process.env, ${env});\n{${bare}\n${ask}}`,
  },
  python: {
    skip: PYTHON.skip,
    command: [PYTHON.path, '-c'],
    program: (lines: string, env: string, { bare, ask }: Words) =>
      `${lines}\n${ask}\nimport os; os.environ.update(${env})\n${bare}\n${ask}`,
  },
} as const;

const SDKS: Readonly<Record<string, Readonly<Record<keyof typeof LANGUAGES, Words>>>> = {
  'OpenAI SDK': {
    ts: {
      bare: 'const client = new OpenAI();',
      ask: `
const asked = { model: 'sim-echo', messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.chat.completions.create(asked)).choices[0].message.content);
console.log(await client.chat.completions.stream(asked).finalContent());`,
    },
    python: {
      bare: 'client = OpenAI()',
      ask: `
asked = dict(model="sim-echo", messages=[{"role": "user", "content": "${CANARY}"}])
print(client.chat.completions.create(**asked).choices[0].message.content)
stream = client.chat.completions.create(**asked, stream=True)
print("".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices))`,
    },
  },
  'Anthropic SDK': {
    ts: {
      bare: 'const client = new Anthropic();',
      ask: `
const asked = { model: 'sim-echo', max_tokens: 100, messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.messages.create(asked)).content[0].text);
console.log(await client.messages.stream(asked).finalText());`,
    },
    python: {
      bare: 'client = Anthropic()',
      ask: `
asked = dict(model="sim-echo", max_tokens=100, messages=[{"role": "user", "content": "${CANARY}"}])
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print(stream.get_final_text())`,
    },
  },
};

describe('settings of docs/sdks.md', { timeout: 600_000 }, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  for (const [heading, words] of Object.entries(SDKS)) {
    for (const [language, { skip, command, program }] of Object.entries(LANGUAGES)) {
      it(`${heading}: a client works that is made with the ${language} lines, and one with the environment variables alone`, {
        skip,
      }, async () => {
        const place = { url: stack.url, model: 'sim-echo' };
        const source = program(
          settings(heading, language, place),
          JSON.stringify(variables(settings(heading, 'sh', place))),
          words[language as keyof typeof LANGUAGES],
        );
        // None of the variables that a client would read.
        const kept = Object.entries(cleanEnvironment()).filter(
          ([name]) => !/^(OPENAI|ANTHROPIC)_/.test(name),
        );
        const assignments = kept.map(([name, value]) => `${name}=${value}`);
        stack.simulator.recorder.clear();
        const args = ['-i', '-C', ROOT, ...assignments, ...command, source];
        const { status, stdout, stderr } = await runAside('/usr/bin/env', args);
        assert.equal(status, 0, stderr);
        assert.equal(stdout, `${CANARY}\n`.repeat(4));
        const { recorder } = stack.simulator;
        for (const secret of [CANARY, 'placeholder'])
          assert.equal(recorder.containing(secret).length, 0, secret);
      });
    }
  }
});
