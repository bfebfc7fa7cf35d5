/** The SDK settings of docs/sdks.md as they are written there; what follows them here asks a question. */
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

const LANGUAGES = {
  ts: { skip: false, command: [process.execPath, '--input-type=module-typescript', '--eval'] },
  python: { skip: PYTHON.skip, command: [PYTHON.path, '-c'] },
} as const;

interface Words {
  /** A client that is told nothing, and takes everything from variables. */
  readonly bare: string;
  /** Asks `client` twice, the second time in a stream; prints both answers. */
  readonly ask: string;
}

const SDKS: Readonly<Record<string, Readonly<Record<keyof typeof LANGUAGES, Words>>>> = {
  'OpenAI SDK': {
    ts: {
      bare: `import OpenAI from 'openai'; const client = new OpenAI();`,
      ask: `
const asked = { model: 'sim-echo', messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.chat.completions.create(asked)).choices[0].message.content);
console.log(await client.chat.completions.stream(asked).finalContent());`,
    },
    python: {
      bare: 'from openai import OpenAI; client = OpenAI()',
      ask: `
asked = dict(model="sim-echo", messages=[{"role": "user", "content": "${CANARY}"}])
print(client.chat.completions.create(**asked).choices[0].message.content)
stream = client.chat.completions.create(**asked, stream=True)
print("".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices))`,
    },
  },
  'Anthropic SDK': {
    ts: {
      bare: `import Anthropic from '@anthropic-ai/sdk'; const client = new Anthropic();`,
      ask: `
const asked = { model: 'sim-echo', max_tokens: 100, messages: [{ role: 'user', content: '${CANARY}' }] };
console.log((await client.messages.create(asked)).content[0].text);
console.log(await client.messages.stream(asked).finalText());`,
    },
    python: {
      bare: 'from anthropic import Anthropic; client = Anthropic()',
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
    for (const [language, { skip, command }] of Object.entries(LANGUAGES)) {
      const { bare, ask } = words[language as keyof typeof LANGUAGES];

      /** Runs a program of that language with these variables and none of ours that a client would read. */
      async function assertAnswers(source: string, env: Readonly<Record<string, string>>): Promise<void> {
        stack.simulator.recorder.clear();
        const kept = Object.entries(cleanEnvironment()).filter(
          ([name]) => !/^(OPENAI|ANTHROPIC)_/.test(name),
        );
        const assignments = Object.entries({ ...Object.fromEntries(kept), ...env }).map(
          ([name, value]) => `${name}=${value}`,
        );
        const args = ['-i', '-C', ROOT, ...assignments, ...command, `${source}\n${ask}`];
        const { status, stdout, stderr } = await runAside('/usr/bin/env', args);
        assert.equal(status, 0, stderr);
        assert.equal(stdout, `${CANARY}\n${CANARY}\n`);
        const { recorder } = stack.simulator;
        for (const secret of [CANARY, 'placeholder'])
          assert.equal(recorder.containing(secret).length, 0, secret);
      }
      const place = () => ({ url: stack.url, model: 'sim-echo' });

      it(`${heading}: a client made with the ${language} lines works`, { skip }, () =>
        assertAnswers(settings(heading, language, place()), {}),
      );

      it(`${heading}: a client in ${language} works with the environment variables alone`, { skip }, () =>
        assertAnswers(bare, variables(settings(heading, 'sh', place()))),
      );
    }
  }
});
