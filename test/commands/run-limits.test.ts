/**
 * The context window and the longest response that `run` sets for each agent, from the list of models or
 * flags.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runCommand } from '../support/processes/command.ts';
import { type Started, standInAgents } from '../support/processes/stand-in-agents.ts';

type Found = readonly [context: number | undefined, output: number | undefined];

/** What an agent was given, where it reads it. */
const LIMITS: Readonly<Record<string, (started: Started) => Found>> = {
  claude: ({ args, env }) => {
    const settings = JSON.parse(args[1] as string).env;
    for (const name of ['CLAUDE_CODE_MAX_CONTEXT_TOKENS', 'CLAUDE_CODE_MAX_OUTPUT_TOKENS'])
      assert.equal(settings[name], env[name], name);
    return [number(env['CLAUDE_CODE_MAX_CONTEXT_TOKENS']), number(env['CLAUDE_CODE_MAX_OUTPUT_TOKENS'])];
  },
  opencode: ({ env }) => {
    const config = JSON.parse(env['OPENCODE_CONFIG_CONTENT'] as string);
    const { models } = config.provider[config.enabled_providers[0]];
    const { context, output } = models[config.model.split('/')[1]].limit ?? {};
    return [context, output];
  },
  pi: ({ env }) => {
    const { model, config } = JSON.parse(env['LOCAL_PROXY_PROVIDER'] as string);
    const { contextWindow, maxTokens } = config.models.find((each: { id: string }) => each.id === model);
    const isAssumed = contextWindow === 128_000 && maxTokens === 16_384; // pi takes no model without numbers
    return isAssumed ? [undefined, undefined] : [contextWindow, maxTokens];
  },
  codex: ({ args }) => [
    number(args.map((arg) => /^model_context_window=(.*)$/.exec(arg)?.[1]).find(Boolean)),
    undefined,
  ],
};

const number = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : Number(text);

describe('privatemode-proxy run', { timeout: 600_000 }, () => {
  const { proxy, environment, started } = standInAgents();

  async function run(agent: string, flags: readonly string[] = []) {
    const argv = ['run', agent, ...flags];
    const { code, stderr } = await runCommand(argv, { env: environment({ WHAT: 'look' }) });
    const [first = ''] = stderr.split('\n');
    return { code, stderr, first, last: stderr.trimEnd().split('\n').at(-1) };
  }

  for (const [agent, found] of Object.entries(LIMITS)) {
    for (const [what, listed, flags, context, output] of [
      ['if the list says 65536', 65_536, [], 65_536, 16_384],
      ['if the list says 131072', 131_072, [], 131_072, 32_000],
      ['if a quarter of the window is no whole number', 8_195, [], 8_195, 2_048],
      ['if the list says the smallest window', 1_000, [], 1_000, 250],
      ['if the list says the largest window', 10_000_000, [], 10_000_000, 32_000],
      ['by --context-window alone', undefined, ['--context-window=40000'], 40_000, 10_000],
      ['by --context-window, not the list', 131_072, ['--context-window=40000'], 40_000, 10_000],
    ] as const) {
      it(`gives ${agent} a window of ${context}${agent === 'codex' ? '' : ` and a response of ${output}`} tokens ${what}`, async () => {
        proxy.models = { data: [{ id: 'one', max_model_len: listed }] };
        assert.equal((await run(agent, flags)).code, 0);
        assert.deepEqual(found(started()), [context, agent === 'codex' ? undefined : output]);
      });
    }

    for (const listed of ['131072', 131_072.5, 999, 10_000_001, -1, null, {}, '{env:HOME}']) {
      it(`gives ${agent} no limits if the list says ${JSON.stringify(listed)}, and warns of that once`, async () => {
        proxy.models = { data: [{ id: 'one', max_model_len: listed }] };
        const { code, stderr, first } = await run(agent);
        const words = `the context window of one is not known, so ${agent} assumes one`;
        assert.equal(first, `Warning: ${words}. If you know it, add --context-window TOKENS.`);
        assert.equal(stderr.match(/context window/g)?.length, 1, stderr);
        assert.deepEqual([code, ...found(started())], [0, undefined, undefined]);
      });
    }
  }

  for (const agent of ['claude', 'opencode', 'pi']) {
    it(`limits a response of ${agent} to the tokens of --max-output`, async () => {
      assert.equal((await run(agent, ['--model=model-a', '--max-output=5000'])).code, 0);
      assert.deepEqual(LIMITS[agent]?.(started()), [131_072, 5_000]);
    });

    for (const [what, flags, words] of [
      [
        'as large as the context window',
        ['--max-output=131072'],
        '--max-output has to be less than the context window of model-a, which is 131072 tokens',
      ],
      [
        'for a model whose context window is not known',
        ['--model=other', '--max-output=5000'],
        '--max-output needs --context-window: the proxy does not know that of other',
      ],
    ] as const) {
      it(`starts no ${agent} with a --max-output ${what}`, async () => {
        const { code, last } = await run(agent, ['--model=model-a', ...flags]);
        assert.deepEqual([code, last, started()], [1, `Error: ${words}`, {}]);
      });
    }
  }

  it('starts no codex with --max-output, for which codex has no setting', async () => {
    const { code, first } = await run('codex', ['--model=model-a', '--max-output=5000']);
    const words = 'Error: codex has no setting for the longest response: leave out --max-output';
    assert.deepEqual([code, first, started()], [1, words, {}]);
  });

  for (const [window, output] of [
    [32_768, 4_000],
    [34_000, 4_000],
    [36_000, 6_000],
    [40_000, 10_000],
  ] as const) {
    it(`gives claude a response of ${output} tokens in a window of ${window}, so that its first request fits`, async () => {
      assert.equal((await run('claude', ['--model=other', `--context-window=${window}`])).code, 0);
      assert.deepEqual(LIMITS['claude']?.(started()), [window, output]);
    });
  }

  for (const [agent, window, flags, least] of [
    ['claude', 8_000, [], 34_000],
    ['claude', 33_999, [], 34_000],
    ['claude', 34_000, [], undefined],
    ['claude', 65_536, ['--max-output=50000'], 80_000],
    ['codex', 23_999, [], 24_000],
    ['codex', 24_000, [], undefined],
    ['opencode', 8_000, [], 14_000],
    ['opencode', 14_000, [], undefined],
    ['pi', 8_000, [], undefined],
  ] as const) {
    const warned = least === undefined ? 'no warning' : `a warning that names ${least} tokens`;
    it(`prints ${warned} for ${[agent, ...flags].join(' ')} if the context window has ${window}`, async () => {
      proxy.models = { data: [{ id: 'one', max_model_len: window }] };
      const { first } = await run(agent, flags);
      const words = `the context window of one has ${window} tokens, in which ${agent} cannot work`;
      const warning = `Warning: ${words}. Choose a model with at least ${least}.`;
      assert.equal(first.startsWith('Warning: the context window'), least !== undefined, first);
      if (least !== undefined) assert.equal(first, warning);
    });
  }
});
