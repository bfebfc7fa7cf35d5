/**
 * The questions that `run` asks the proxy: which program listens, which API it serves, which models it has,
 * and how large their context windows are.
 */
import { urlToHttpOptions } from 'node:url';
import { aliasIn } from '../api/model-names.ts';
import type { Clock } from '../clock.ts';
import { invalid } from '../config/values.ts';
import { printable } from '../text.ts';
import type { Agent, Model } from './agents/agent.ts';
import { getText, parsedJson } from './ask-proxy.ts';

/** The proxy as `run` reaches it. */
export interface Reached {
  /** The URL of the proxy: http://HOST:PORT, or https://HOST:PORT of a gateway. */
  readonly url: string;
  /** The headers with the key of the agent. The key is the token of --token, if given, or the placeholder. */
  readonly headers: Readonly<Record<string, string>>;
  /** The authorities to trust (PEM); undefined for plain HTTP. */
  readonly ca: readonly string[] | undefined;
}

/** What GET /v1 says about the proxy. `model_aliases`: the aliases that the proxy was started with. */
interface About {
  readonly name?: string;
  readonly endpoints?: readonly string[];
  readonly model_aliases?: readonly string[];
}

export interface Offer {
  /** The listed models whose names may stand in the configuration of an agent. */
  readonly models: readonly Model[];
  /** The aliases of the proxy, which GET /v1/models lists beside the models. */
  readonly aliases: readonly string[];
}

/** Asks which program listens. Throws config_invalid unless the proxy listens. */
export async function aboutProxy(proxy: Reached, clock: Clock): Promise<About> {
  const about = (await ask(proxy, '/v1', clock, clock.times.ownModelsTimeout)) as About | null | undefined;
  if (about?.name === 'privatemode-proxy') return about;
  throw invalid(
    `another program than the proxy answers on ${proxy.url}: start the proxy there, or give its --port, which is not that of --admin-address`,
  );
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

/**
 * Sends a GET with the key of the agent. Returns the parsed response, or undefined if it is no JSON. Throws
 * config_invalid if there is no response, or an error of the proxy; the message says what to do.
 */
async function ask({ url, headers, ca }: Reached, path: string, clock: Clock, timeoutMs: number) {
  const target = { ...urlToHttpOptions(new URL(`${url}${path}`)), headers, ...(ca && { ca: [...ca] }) };
  const { status = 0, body } = await getText(clock, target, timeoutMs).catch((thrown: Error) => {
    throw invalid(
      `the proxy on ${url} does not answer (${printable(thrown.message)}): start it on this port, in another terminal; one with HTTPS is given as --url`,
    );
  });
  const json = parsedJson(body);
  const isProgramKnown = path !== '/v1' || status === 401;
  if (status < 300 || !isProgramKnown) return json;
  const { message = body.trim() } = (json as { error?: { message?: unknown } } | null)?.error ?? {};
  const remedy =
    path === '/v1'
      ? 'Give your token as --token @FILE'
      : 'Start the proxy with --api-key, and not with --api-key-fallback never';
  throw invalid(
    `the proxy on ${url} cannot be used: GET ${path}: status ${status}: ${printable(String(message))}${status === 401 ? `. ${remedy}` : ''}`,
  );
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
