/** How `run` starts the agent pi: with an extension that registers a provider and keeps the session on it. */
import { type Agent, literal, PROVIDER } from './agent.ts';

const VARIABLE = 'LOCAL_PROXY_PROVIDER';

/** The limits that pi gets for a model without limits: pi's configuration needs numbers. */
const ASSUMED = { context: 128_000, output: 16_384 };

/**
 * The text of the extension is the same for every session; LOCAL_PROXY_PROVIDER holds what differs. In pi,
 * users can switch to any provider that they are logged in to. If they do, the extension switches back to the
 * proxy, and empties a request that would go to another provider.
 */
const EXTENSION = `export default (pi) => {
  const { name, model, config } = JSON.parse(process.env.${VARIABLE});
  pi.registerProvider(name, config);
  pi.on('model_select', async (event, ctx) => {
    if (event.model.provider === name) return;
    const ours = event.previousModel?.provider === name ? event.previousModel : ctx.modelRegistry.find(name, model);
    if (ours !== undefined) await pi.setModel(ours);
    ctx.ui.notify('privatemode-proxy run keeps this session on the proxy', 'warning');
  });
  pi.on('before_provider_request', (event, ctx) => (ctx.model?.provider === name ? undefined : {}));
};
`;

export const PI: Agent = {
  // With an older Node, npm installs an older version of pi, and does not say so.
  install: 'npm install -g @earendil-works/pi-coding-agent, with Node 22.19 or newer',
  // Before 0.84.3, pi saved each choice of a model as the default of all sessions, even a choice that the
  // extension made. Before 0.79.0, pi ran the extensions of a repository without asking.
  oldest: '0.84.3',
  file: { name: 'pi-extension.ts', text: EXTENSION },
  env: ({ url, key, model, models }) => {
    const config = {
      name: PROVIDER,
      baseUrl: url,
      apiKey: key,
      api: 'anthropic-messages',
      models: models.map(({ name: id, limits: { context, output } = ASSUMED }) => ({
        id,
        name: id,
        reasoning: false,
        input: ['text', 'image'],
        contextWindow: context,
        maxTokens: output,
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
        compat: { supportsEagerToolInputStreaming: false },
      })),
    };
    const provider = literal({ name: PROVIDER, model: model.name, config });
    return { [VARIABLE]: provider, PI_OFFLINE: '1', PI_TELEMETRY: '0' };
  },
  args: ({ file, model }) => ['-e', file, '--provider', PROVIDER, '--model', model.name],
  refused: /^--(?:provider|model|models|api-key)(?==|$)/,
  goOn: '--continue',
};
