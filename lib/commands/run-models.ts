/**
 * The questions that `run` asks the proxy before it starts an agent: which API it serves, which models, and
 * how large their context windows are.
 */
import type { OutgoingHttpHeaders } from 'node:http';
import { urlToHttpOptions } from 'node:url';
import { aliasIn } from '../api/model-aliases.ts';
import type { Clock } from '../clock.ts';
import { invalid } from '../config/values.ts';
import { printable } from '../text.ts';
import { type Agent, KEY, type Model, type ModelLimits } from './agents/agent.ts';
import { getText, parsedJson, probe } from './ask-proxy.ts';

/** Where the proxy is asked, and by which clock. */
interface Asked {
  /** http://HOST:PORT, under which agents on this machine reach the proxy. */
  readonly url: string;
  readonly clock: Clock;
}

interface ProxyAddress extends Asked {
  readonly listenAddress: string;
  readonly port: number;
}

/**
 * Returns the aliases that the proxy was started with. `name`: the agent's. Throws config_invalid if there is
 * no ready proxy that this agent can use.
 */
export async function demand(
  { url, listenAddress, port, clock }: ProxyAddress,
  name: string,
  needs: Agent['needs'],
): Promise<readonly string[]> {
  const { ready, message, failure } = await probe({ listenAddress, port, tls: false, clock });
  if (failure === 'needs-tls')
    throw invalid(
      `run needs a proxy that serves plain HTTP on this machine, and the one on port ${port} serves HTTPS: start one more without ` +
        `--tls-cert-path, or set the variables of ${name} yourself (docs/agents.md)`,
    );
  if (!ready)
    throw invalid(
      `the proxy on ${url} cannot be used: ${message}` +
        `${failure === 'nothing-listens' ? '. Start it first, in another terminal' : ''}`,
    );
  const { status, body, text } = await ask({ url, clock }, '/v1', {
    timeoutMs: clock.times.ownModelsTimeout,
  });
  if (status === 0) throw invalid(`the proxy on ${url} cannot be used: GET /v1: ${text}`);
  if (status === 401)
    throw invalid(
      `the proxy on ${url} asks for a token of --clients, which run does not have: set the variables of ${name} yourself (docs/agents.md)`,
    );
  const about = body as { name?: string; endpoints?: string[]; model_aliases?: string[] } | null | undefined;
  if (about?.name !== 'privatemode-proxy')
    throw invalid(
      `the program that listens on ${url} is not privatemode-proxy; give the --port of the proxy, not that of its --admin-address`,
    );
  if (needs !== undefined && !about.endpoints?.includes(needs[0]))
    throw invalid(`${name} needs ${needs[0]}, which this proxy does not serve: start it with ${needs[1]}`);
  return about.model_aliases ?? [];
}

/**
 * The response to a GET, by default with the key that the agent will send. `text`: its status and the message
 * of its error, or why there is no response; `status` is then 0.
 */
async function ask(
  { url, clock }: Asked,
  path: string,
  { timeoutMs, headers = {} }: { readonly timeoutMs: number; readonly headers?: OutgoingHttpHeaders } = {
    timeoutMs: clock.times.serviceModelsTimeout,
    headers: { authorization: `Bearer ${KEY}` },
  },
): Promise<{ status: number; body: unknown; text: string }> {
  const target = { ...urlToHttpOptions(new URL(`${url}${path}`)), headers };
  const answer = await getText(clock, target, timeoutMs).catch((thrown: Error) => thrown);
  if (answer instanceof Error) return { status: 0, body: undefined, text: printable(answer.message) };
  const status = answer.status as number;
  const body = parsedJson(answer.body) as { error?: { message?: unknown } } | null | undefined;
  const message = body?.error?.message;
  const words = typeof message === 'string' ? `: ${printable(message)}` : '';
  return { status, body, text: `status ${status}${words}` };
}

export interface Listed {
  readonly names: readonly string[];
  /** Context windows in tokens, by model name; only windows that the list states credibly. */
  readonly windows: ReadonlyMap<string, number>;
  /** Why there are no names: the HTTP status of the list, and its error. */
  readonly why: string;
}

/**
 * The models that the proxy lists. Throws config_invalid if the proxy rejects the key of the agent, because
 * it would then reject prompts too.
 */
export async function modelsOf(proxy: Asked): Promise<Listed> {
  const { status, body, text } = await ask(proxy, '/v1/models');
  if (status === 401)
    throw invalid(
      `the proxy on ${proxy.url} has no API key of its own, or does not use it: the key "${KEY}", which run gives to agents, is rejected. ` +
        'Start the proxy with --api-key, and --api-key-fallback always or if-placeholder',
    );
  const data: unknown = (body as { data?: unknown } | undefined)?.data;
  const names: string[] = [];
  const windows = new Map<string, number>();
  for (const entry of (Array.isArray(data) ? data : []) as readonly Entry[]) {
    if (typeof entry?.id !== 'string') continue;
    names.push(entry.id);
    const window = windowIn(entry);
    if (window !== undefined) windows.set(entry.id, window);
  }
  return { names, windows, why: text };
}

type Entry = { readonly id?: unknown; readonly max_model_len?: unknown } | null | undefined;

/**
 * Credible context windows, in tokens. Nothing authenticates the list, and no honest one states a smaller or
 * larger window.
 */
const SMALLEST_WINDOW = 1_000;
const LARGEST_WINDOW = 10_000_000;

/**
 * The context window of a model in the list, which vLLM calls `max_model_len`; undefined if it is not
 * credible.
 */
function windowIn(entry: Entry): number | undefined {
  const window: unknown = entry?.max_model_len;
  return Number.isInteger(window) &&
    (window as number) >= SMALLEST_WINDOW &&
    (window as number) <= LARGEST_WINDOW
    ? (window as number)
    : undefined;
}

/** Tokens. Claude Code and opencode ask for this many if nobody sets a limit. */
const LONGEST_OUTPUT = 32_000;

/** Tokens. To make room for an agent's first request, `run` limits responses to no fewer. */
export const SHORTEST_OUTPUT = 4_000;

/**
 * The limits of a model. A response may fill a quarter of the window, at most 32,000 tokens, and no more than
 * the agent has room for.
 */
const limitsOf = (context: number, { leastWindow = () => 0 }: Pick<Agent, 'leastWindow'>): ModelLimits => {
  const room = Math.max(SHORTEST_OUTPUT, context - leastWindow(0));
  return { context, output: Math.min(LONGEST_OUTPUT, Math.floor(context / 4), room) };
};

/**
 * The model of that name. Its context window is `given`, or else what the list states, or else what the proxy
 * states for the model behind an alias. Throws config_invalid if `output` does not fit into the window.
 */
export async function modelOf(
  proxy: Asked,
  name: string,
  { names, windows }: Listed,
  {
    agent,
    given,
    output,
  }: { readonly agent: Agent; readonly given: number | undefined; readonly output: number | undefined },
): Promise<Model> {
  const ofAlias = async (): Promise<number | undefined> =>
    windowIn((await ask(proxy, `/v1/models/${encodeURIComponent(name)}`)).body as Entry);
  const context = given ?? windows.get(name) ?? (names.includes(name) ? undefined : await ofAlias());
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
export function offered(chosen: Model, agent: Agent, { names, windows }: Listed): readonly Model[] {
  const others = new Set(names.filter((name) => name !== chosen.name && isPlainName(name)));
  const models = [...others].map((name) => {
    const window = windows.get(name);
    return { name, limits: window === undefined ? undefined : limitsOf(window, agent) };
  });
  return [chosen, ...models].slice(0, MOST_OFFERED);
}

export const isCovered = (aliases: readonly string[], model: string): boolean =>
  aliasIn(new Map(aliases.map((name) => [name, ''])), model) !== undefined;

/** Model names that the service lists, made safe to print. */
export const shown = (names: readonly string[]): string => names.map((name) => printable(name)).join(', ');

/**
 * The name of the model to use if none was chosen: the only model of the service, or else the agent's own
 * name if an alias covers it. The list of the proxy has aliases too, which are no models. Throws
 * config_invalid with the names of all models.
 */
export function nameFor({ ownModel }: Agent, aliases: readonly string[], { names, why }: Listed): string {
  const own = names.length === 1 ? names : names.filter((name) => !aliases.includes(name));
  const [only = ''] = own;
  if (own.length === 1 && isPlainName(only)) return only;
  if (ownModel !== undefined && isCovered(aliases, ownModel)) return ownModel;
  throw invalid(
    `choose the model for the agent with --model: ${shown(names) || `the proxy lists none (GET /v1/models: ${why})`}`,
  );
}
