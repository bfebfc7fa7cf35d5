/** Which models the proxy offers to an agent, how large their context windows are, and which one to use. */
import { aliasIn } from '../api/model-names.ts';
import type { Clock } from '../clock.ts';
import { invalid } from '../config/values.ts';
import type { Agent, Model } from './agents/agent.ts';
import { aboutProxy, ask, type Reached } from './ask-proxy.ts';

export interface Offer {
  /** The listed models whose names may stand in the configuration of an agent. */
  readonly models: readonly Model[];
  /** The aliases of the proxy, which GET /v1/models lists beside the models. */
  readonly aliases: readonly string[];
}

/**
 * What a ready proxy offers. `name`: the agent's name. Throws config_invalid if no proxy is ready, and if the
 * agent cannot use the proxy. Also throws if the proxy rejects the agent's key, because the proxy would then
 * reject prompts, too.
 */
export async function offerOf(proxy: Reached, name: string, { needs }: Agent, clock: Clock): Promise<Offer> {
  const { endpoints, model_aliases: aliases = [] } = await aboutProxy(proxy, clock);
  if (needs !== undefined && !endpoints?.includes(needs[0]))
    throw invalid(`${name} needs ${needs[0]}, which this proxy does not serve: start it with ${needs[1]}`);
  const { ownModelsTimeout, serviceModelsTimeout } = clock.times;
  await ask(proxy, '/readyz', clock, ownModelsTimeout);
  const list = (await ask(proxy, '/v1/models', clock, serviceModelsTimeout)) as { data?: unknown } | null;
  const entries: readonly unknown[] = Array.isArray(list?.data) ? list.data : [];
  return { models: entries.flatMap((entry) => modelsIn(entry ?? {})).slice(0, MOST_MODELS), aliases };
}

/** The most models that `run` passes to an agent, because an environment variable cannot hold more. */
const MOST_MODELS = 100;

/** The most tokens of a response: Claude Code and opencode ask for 32,000 if nobody sets a limit. */
const LONGEST_OUTPUT = 32_000;

/** The output may fill a quarter of the context window, but never more than 32,000 tokens. */
export const limitsOf = (context: number): Model['limits'] => ({
  context,
  output: Math.min(LONGEST_OUTPUT, Math.floor(context / 4)),
});

/**
 * The model of a list entry. Returns no model if an agent's configuration must not have its name. Nothing
 * authenticates the list, and agents interpret some texts. For example, opencode replaces `{env:NAME}` by the
 * variable NAME. Context windows that no honest list would state are ignored.
 */
function modelsIn({ id, max_model_len: window }: { id?: unknown; max_model_len?: unknown }): Model[] {
  if (typeof id !== 'string' || !/^[A-Za-z0-9][\w.:@/+-]{0,255}$/.test(id)) return [];
  const isCredible = typeof window === 'number' && window >= 1_000 && window <= 10_000_000;
  return [{ name: id, limits: isCredible && Number.isInteger(window) ? limitsOf(window) : undefined }];
}

export const isCovered = (aliases: readonly string[], model: string): boolean =>
  aliasIn(new Map(aliases.map((name) => [name, ''])), model) !== undefined;

/** The names of models, as part of a message. */
export const shown = (models: readonly Model[]): string => models.map(({ name }) => name).join(', ');

/**
 * The model to use by default: the only model of the service, or else the agent's own model if an alias
 * stands for the agent's model. Throws config_invalid with the names of all models.
 */
export function nameFor({ ownModel }: Agent, { models, aliases }: Offer): string {
  const [only, ...others] = models.filter(({ name }) => !aliases.includes(name));
  if (only !== undefined && others.length === 0) return only.name;
  if (ownModel !== undefined && isCovered(aliases, ownModel)) return ownModel;
  throw invalid(`choose the model for the agent with --model: ${shown(models) || 'the proxy lists none'}`);
}
