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
  const { proxy, environment, start, started } = standInAgents();

  async function run(agent: string, flags: readonly string[] = []) {
    const argv = ['run', agent, ...flags];
    const { code, stderr } = await runCommand(argv, { env: environment({ WHAT: 'look' }) });
    const [first = ''] = stderr.split('\n');
    return { code, stderr, first };
  }

  for (const [agent, found] of Object.entries(LIMITS)) {
    const output = (tokens: number) => (agent === 'codex' ? undefined : tokens);

    it(`gives ${agent} the window of the list, or of --context-window, and a response of at most a quarter`, async () => {
      proxy.models = { data: [{ id: 'one', max_model_len: 131_072 }] };
      assert.equal((await run(agent)).code, 0);
      assert.deepEqual(found(started()), [131_072, output(32_000)]);
      assert.equal((await run(agent, ['--context-window=8195'])).code, 0);
      assert.deepEqual(found(started()), [8_195, output(2_048)]);
    });

    it(`gives ${agent} no limits if nobody states them, and warns of that once`, async () => {
      proxy.models = { data: [{ id: 'one' }] };
      const { code, stderr, first } = await run(agent);
      const words = `the context window of one is not known, so ${agent} may send more than fits`;
      assert.equal(first, `Warning: ${words}. If you know it, add --context-window TOKENS.`);
      assert.equal(stderr.match(/context window/g)?.length, 1, stderr);
      assert.deepEqual([code, ...found(started())], [0, undefined, undefined]);
    });
  }

  for (const listed of [1_000, 10_000_000, '131072', 131_072.5, 999, 10_000_001, '{env:X}']) {
    const isCredible = listed === 1_000 || listed === 10_000_000;
    it(`${isCredible ? 'takes' : 'does not take'} a window of ${JSON.stringify(listed)} from the list`, async () => {
      proxy.models = { data: [{ id: 'one', max_model_len: listed }] };
      await run('claude');
      assert.equal(LIMITS['claude']?.(started())[0], isCredible ? listed : undefined);
    });
  }

  it('offers in opencode the chosen model and the listed ones with plain names, each with its limits', async () => {
    const forged = ['{env:GITHUB_TOKEN}', '-c', '__proto__', 'a b', '', 'a'.repeat(257), 7, null];
    const listed = [
      { id: 'one', max_model_len: 40_000 },
      { id: 'maker/two:v2', max_model_len: 200_000 },
      { id: 'three', max_model_len: '1' },
    ];
    proxy.models = { data: [...forged.map((id) => ({ id })), ...listed] };
    await run('opencode', ['--model=three', '--context-window=9000']);
    const config = JSON.parse(started().env['OPENCODE_CONFIG_CONTENT'] as string);
    const [name] = config.enabled_providers as [string];
    const { models, whitelist } = config.provider[name];
    assert.deepEqual([config.model, config.small_model], [`${name}/three`, `${name}/three`]);
    const limits = Object.entries<{ limit?: object }>(models).map(([model, { limit }]) => [model, limit]);
    assert.deepEqual(Object.fromEntries(limits), {
      three: { context: 9_000, output: 2_250 },
      one: { context: 40_000, output: 10_000 },
      'maker/two:v2': { context: 200_000, output: 32_000 },
    });
    assert.deepEqual(whitelist.toSorted(), Object.keys(models).toSorted());
  });

  it('asks the proxy itself where the environment makes fetch use an HTTP proxy', async () => {
    const env = { NODE_USE_ENV_PROXY: '1', http_proxy: 'http://127.0.0.1:1', WHAT: 'ask' };
    const { code, stdout, stderr } = await start(['claude', '--model=model-a'], env).ended;
    assert.deepEqual([code, stdout, stderr], [0, 'answered', '']);
  });
});
