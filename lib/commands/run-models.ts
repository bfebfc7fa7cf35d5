/**
 * The questions that `run` asks the proxy before it starts an agent: which API it serves, which models, and
 * how large their context windows are.
 */
import { urlToHttpOptions } from 'node:url';
import { aliasIn } from '../api/model-aliases.ts';
import type { Clock } from '../clock.ts';
import { invalid } from '../config/values.ts';
import { printable } from '../text.ts';
import { type Agent, KEY, type Model, type ModelLimits } from './agents/agent.ts';
import { getText, parsedJson } from './ask-proxy.ts';
import type { Reached } from './run-relay.ts';

export interface Offer {
  readonly names: readonly string[];
  /** Context windows in tokens, by model name; only windows that the list states credibly. */
  readonly windows: ReadonlyMap<string, number>;
  /** The aliases that the proxy was started with. The list has them too, which are no models. */
  readonly aliases: readonly string[];
  /** Why there are no names: the HTTP status of the list, and its error. */
  readonly why: string;
}

/**
 * What a ready proxy offers. `name`: the agent's. Throws config_invalid if there is no such proxy, if the
 * agent cannot use it, and if it rejects the key of the agent, because it would then reject prompts too.
 */
export async function offerOf(proxy: Reached, name: string, { needs }: Agent, clock: Clock): Promise<Offer> {
  const { url } = proxy;
  const { ownModelsTimeout, serviceModelsTimeout } = clock.times;
  const own = await ask(proxy, '/v1', clock, ownModelsTimeout);
  if (own.status === 0)
    throw invalid(
      `the proxy on ${url} cannot be used: GET /v1: ${own.text}. Start it first, in another terminal; one that serves HTTPS is given as --url https://HOST:PORT`,
    );
  if (own.status === 401)
    throw invalid(
      `the proxy on ${url} asks for a token of its --clients: name it as --url https://HOST:PORT, and yours as --token @FILE (${own.text})`,
    );
  const about = own.body as { name?: string; endpoints?: string[]; model_aliases?: string[] } | null;
  if (about?.name !== 'privatemode-proxy')
    throw invalid(
      `the program that listens on ${url} is not privatemode-proxy; give the --port of the proxy, not that of its --admin-address`,
    );
  if (needs !== undefined && !about.endpoints?.includes(needs[0]))
    throw invalid(`${name} needs ${needs[0]}, which this proxy does not serve: start it with ${needs[1]}`);
  const ready = await ask(proxy, '/readyz', clock, ownModelsTimeout);
  if (ready.status !== 204) throw invalid(`the proxy on ${url} cannot be used: not ready (${ready.text})`);

  const list = await ask(proxy, '/v1/models', clock, serviceModelsTimeout);
  if (list.status === 401)
    throw invalid(
      `the proxy on ${url} has no API key of its own, or does not use it: the key "${KEY}", which run gives to agents, is rejected. ` +
        'Start the proxy with --api-key, and --api-key-fallback always or if-placeholder',
    );
  const data: unknown = (list.body as { data?: unknown } | null | undefined)?.data;
  const entries = ((Array.isArray(data) ? data : []) as readonly Entry[]).filter(
    (entry) => typeof entry?.id === 'string',
  ) as readonly { id: string; max_model_len?: unknown }[];
  const windows = entries.flatMap(({ id, max_model_len: window }): [string, number][] =>
    isCredible(window) ? [[id, window]] : [],
  );
  const names = entries.map(({ id }) => id);
  return { names, windows: new Map(windows), aliases: about.model_aliases ?? [], why: list.text };
}

type Entry = { readonly id?: unknown } | null | undefined;

/**
 * The response to a GET with the key that the agent will have. `text`: its status and what it says about an
 * error, or why there is no response; `status` is then 0.
 */
async function ask({ url, headers, ca }: Reached, path: string, clock: Clock, timeoutMs: number) {
  try {
    const target = { ...urlToHttpOptions(new URL(`${url}${path}`)), headers, ...(ca && { ca: [...ca] }) };
    const { status = 0, body: said } = await getText(clock, target, timeoutMs);
    const body = parsedJson(said) as { error?: { message?: unknown } } | null | undefined;
    const words = body === undefined ? said.trim() : body?.error?.message;
    return {
      status,
      body,
      text: `status ${status}${typeof words === 'string' ? `: ${printable(words)}` : ''}`,
    };
  } catch (thrown) {
    return { status: 0, body: undefined, text: printable((thrown as Error).message) };
  }
}

/** Nothing authenticates the list, and no honest one states a smaller or larger window (`max_model_len`). */
const isCredible = (window: unknown): window is number =>
  Number.isInteger(window) && (window as number) >= 1_000 && (window as number) <= 10_000_000;

/** Tokens. Claude Code and opencode ask for this many if nobody sets a limit. */
const LONGEST_OUTPUT = 32_000;

/** Tokens. To make room for an agent's first request, `run` limits responses to no fewer. */
export const SHORTEST_OUTPUT = 4_000;

/**
 * The limits of a model. A response may fill a quarter of the window, at most 32,000 tokens, and no more than
 * the agent has room for.
 */
const limitsOf = (context: number, { leastWindow = () => 0 }: Agent): ModelLimits => {
  const room = Math.max(SHORTEST_OUTPUT, context - leastWindow(0));
  return { context, output: Math.min(LONGEST_OUTPUT, Math.floor(context / 4), room) };
};

/**
 * The model of that name. Its context window is `given`, or else what the list states. Throws config_invalid
 * if `output` does not fit into the window.
 */
export function modelOf(
  name: string,
  { windows }: Offer,
  agent: Agent,
  given?: number,
  output?: number,
): Model {
  const context = given ?? windows.get(name);
  if (context === undefined && output !== undefined)
    throw invalid(`--max-output needs --context-window: the proxy does not know that of ${printable(name)}`);
  if (context === undefined) return { name, limits: undefined };
  if (output !== undefined && output >= context)
    throw invalid(
      `--max-output has to be less than the context window of ${printable(name)}, which is ${context} tokens`,
    );
  return { name, limits: output === undefined ? limitsOf(context, agent) : { context, output } };
}

/**
 * Whether the name of a model, which nothing authenticates, may stand in a configuration. Agents give some
 * texts a meaning: opencode replaces `{env:NAME}` by the variable NAME.
 */
const isPlainName = (name: string): boolean => /^[A-Za-z0-9][\w.:@/+-]{0,255}$/.test(name);

/** No honest service has a longer list, and a longer one would not fit into an environment variable. */
const MOST_OFFERED = 100;

/** The models that an agent offers to its user: the chosen one, and the listed ones with plain names. */
export function offered(chosen: Model, agent: Agent, offer: Offer): readonly Model[] {
  const others = new Set(offer.names.filter((name) => name !== chosen.name && isPlainName(name)));
  return [chosen, ...[...others].map((name) => modelOf(name, offer, agent))].slice(0, MOST_OFFERED);
}

export const isCovered = (aliases: readonly string[], model: string): boolean =>
  aliasIn(new Map(aliases.map((name) => [name, ''])), model) !== undefined;

/** Model names that the service lists, made safe to print. */
export const shown = (names: readonly string[]): string => names.map((name) => printable(name)).join(', ');

/**
 * The name of the model to use if none was chosen: the only model of the service, or else the agent's own
 * name if an alias covers it. Throws config_invalid with the names of all models.
 */
export function nameFor({ ownModel }: Agent, { names, aliases, why }: Offer): string {
  const own = names.length === 1 ? names : names.filter((name) => !aliases.includes(name));
  const [only = ''] = own;
  if (own.length === 1 && isPlainName(only)) return only;
  if (ownModel !== undefined && isCovered(aliases, ownModel)) return ownModel;
  throw invalid(
    `choose the model for the agent with --model: ${shown(names) || `the proxy lists none (GET /v1/models: ${why})`}`,
  );
}
