/**
 * The SDK settings of docs/applications.md as they are written there; what follows them here asks questions.
 * One program for each SDK tries the lines first, and then the variables.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { python } from '../support/processes/foreign-programs.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';
import { assertHidden } from './ask.ts';
import { settings, variables } from './settings.ts';

const CANARY = 'canary-settings-41c8';
const PYTHON = python([join(ROOT, '.tools/python/bin')]);

const LANGUAGES = {
  ts: {
    skip: false,
    command: [process.execPath, '--input-type=module-typescript', '--eval'],
    program: (lines: string, env: string, bare: string, ask: string) =>
      `${lines}\n{${ask}}\nObject.assign(process.env, ${env});\n{const client = new ${bare}();\n${ask}}`,
  },
  python: {
    skip: PYTHON.skip,
    command: [PYTHON.path, '-c'],
    program: (lines: string, env: string, bare: string, ask: string) =>
      `${lines}\n${ask}\nimport os; os.environ.update(${env})\nclient = ${bare}()\n${ask}`,
  },
} as const;

/**
 * By the class of a client, which may be told nothing and take everything from variables: lines that ask
 * `client` twice, the second time in a stream, and print both answers.
 */
const ASKS: Readonly<Record<string, Readonly<Record<keyof typeof LANGUAGES, string>>>> = {
  OpenAI: {
    ts: `
const asked = { model: 'sim-echo', messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.chat.completions.create(asked)).choices[0].message.content);
console.log(await client.chat.completions.stream(asked).finalContent());`,
    python: `
asked = dict(model="sim-echo", messages=[{"role": "user", "content": "${CANARY}"}])
print(client.chat.completions.create(**asked).choices[0].message.content)
stream = client.chat.completions.create(**asked, stream=True)
print("".join(chunk.choices[0].delta.content or "" for chunk in stream))`,
  },
  Anthropic: {
    ts: `
const asked = { model: 'sim-echo', max_tokens: 100, messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.messages.create(asked)).content[0].text);
console.log(await client.messages.stream(asked).finalText());`,
    python: `
asked = dict(model="sim-echo", max_tokens=100, messages=[{"role": "user", "content": "${CANARY}"}])
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print(stream.get_final_text())`,
  },
};

describe('settings of docs/applications.md', { timeout: 600_000 }, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(async () => {
    assertHidden(stack.simulator, [CANARY, 'placeholder']);
    await stack.close();
  });

  for (const [name, asks] of Object.entries(ASKS)) {
    for (const language of ['ts', 'python'] as const) {
      const { skip, command, program } = LANGUAGES[language];
      it(`${name} SDK: a client works that is made with the ${language} lines, and one with the environment variables alone`, {
        skip,
      }, async () => {
        const place = { url: stack.url, model: 'sim-echo' };
        const lines = settings(`${name} SDK`, language, place);
        const env = JSON.stringify(variables(settings(`${name} SDK`, 'sh', place)));
        // None of the variables that a client would read.
        const kept = Object.entries(cleanEnvironment({}, /^(OPENAI|ANTHROPIC)_/));
        const assignments = kept.map(([variable, value]) => `${variable}=${value}`);
        const source = program(lines, env, name, asks[language]);
        const args = ['-i', '-C', ROOT, ...assignments, ...command, source];
        const { status, stdout, stderr } = await runAside('/usr/bin/env', args);
        assert.equal(status, 0, stderr);
        assert.equal(stdout, `${CANARY}\n`.repeat(4));
      });
    }
  }
});
