/** How `run` starts opencode: with a configuration of one provider. */
import { type Agent, literal, PROVIDER } from './agent.ts';

export const OPENCODE: Agent = {
  install: 'npm install -g opencode-ai',
  env: ({ url, key, model, models }) => {
    const baseURL = `${url}/v1`;
    const npm = '@ai-sdk/openai-compatible';
    // opencode merges this provider with a provider of the same name in a configuration file. The file could
    // add members to this provider.
    const provider = {
      npm,
      api: baseURL,
      options: { baseURL, apiKey: key },
      whitelist: models.map((each) => each.name),
      models: Object.fromEntries(
        models.map(({ name: id, limits: limit }) => [id, { id, provider: { npm, api: baseURL }, limit }]),
      ),
    };
    const name = `${PROVIDER}/${model.name}`;
    const chosen = { model: name, small_model: name };
    const own = { share: 'disabled', autoupdate: false, experimental: { openTelemetry: false } };
    const config = { ...chosen, ...own, enabled_providers: [PROVIDER] };
    return {
      OPENCODE_CONFIG_CONTENT: literal({ ...config, provider: { [PROVIDER]: provider } }),
      OPENCODE_DISABLE_MODELS_FETCH: '1',
    };
  },
  args: () => [],
  refused: /^--attach(?==|$)/,
  goOn: '--continue',
};
