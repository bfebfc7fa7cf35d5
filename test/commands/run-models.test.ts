/** Which models the user of an agent can change to under `run`, and which one it begins with. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runCommand } from '../support/processes/command.ts';
import { standInAgents } from '../support/processes/stand-in-agents.ts';

describe('privatemode-proxy run', { timeout: 600_000 }, () => {
  const { proxy, environment, start, started } = standInAgents();

  it('asks the proxy itself where the environment makes fetch use an HTTP proxy', async () => {
    const env = { NODE_USE_ENV_PROXY: '1', http_proxy: 'http://127.0.0.1:1', WHAT: 'ask' };
    const { code, stdout, stderr } = await start(['claude', '--model=model-a'], env).ended;
    assert.deepEqual([code, stdout, stderr], [0, 'answered', '']);
  });

  async function run(agent: string, flags: readonly string[] = []) {
    const argv = ['run', agent, ...flags];
    const { code, stderr } = await runCommand(argv, { env: environment({ WHAT: 'look' }) });
    assert.equal(code, 0, stderr);
    return started();
  }
  const openCodeConfig = async (flags: readonly string[]) => {
    const { env } = await run('opencode', flags);
    const config = JSON.parse(env['OPENCODE_CONFIG_CONTENT'] as string);
    const [name] = config.enabled_providers as [string];
    return { name, config, ...config.provider[name] };
  };

  it('offers in opencode the chosen model and the listed ones with plain names, each with its limits', async () => {
    const forged = ['{env:GITHUB_TOKEN}', '-c', '__proto__', 'a b', '', 'a'.repeat(257), 7, null];
    const listed = [
      { id: 'one', max_model_len: 40_000 },
      { id: 'maker/two:v2', max_model_len: 200_000 },
      { id: 'three', max_model_len: '1' },
    ];
    proxy.models = { data: [...forged.map((id) => ({ id })), ...listed] };
    const { name, config, models, whitelist } = await openCodeConfig([
      '--model=three',
      '--context-window=9000',
    ]);
    assert.deepEqual([config.model, config.small_model], [`${name}/three`, `${name}/three`]);
    const limits = Object.entries(models as Record<string, { limit?: object }>).map(([model, { limit }]) => [
      model,
      limit,
    ]);
    assert.deepEqual(Object.fromEntries(limits), {
      three: { context: 9_000, output: 2_250 },
      one: { context: 40_000, output: 10_000 },
      'maker/two:v2': { context: 200_000, output: 32_000 },
    });
    assert.deepEqual(whitelist.toSorted(), Object.keys(models).toSorted());
  });
});
