/**
 * Exchanges that are attacked and recorded: transcripts under names of their own, one for each shape that the
 * API has, and the part of each that a client of the API reads.
 */
import { type EndpointName, literalEndpoint } from './endpoints.ts';
import { choicesOf } from './transcripts/grammar.ts';
import { type Members, TRANSCRIPTS } from './transcripts/transcript.ts';

export interface HonestExchange {
  /** It begins with the endpoint. */
  readonly name: string;
  readonly api: EndpointName;
  /**
   * Members of the request, or fields of its form; the model server knows the answer by `model`, which is the
   * name.
   */
  readonly request: Members;
  /** How many choices the request asks for: `n` times the number of prompts. */
  readonly choices: number;
  readonly format?: 'json' | 'verbose_json';
  /** Of a stream, without `[DONE]`. */
  readonly events?: readonly Members[];
  /** Of a whole answer. */
  readonly status?: number;
  readonly body?: unknown;
}

/** What tells another run of a request apart from that of the transcript. */
export interface Run {
  readonly created?: number;
  readonly model?: string;
  readonly id?: string;
  /** Goes in front of every text. */
  readonly says?: string;
}

const TEXTS: ReadonlySet<string> = new Set(['content', 'text', 'thinking']);

/** The same value as that run has it. */
function inRun(value: unknown, run: Run): unknown {
  const { says = '', ...constants } = run;
  if (Array.isArray(value)) return value.map((each) => inRun(each, run));
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).map(([name, member]) => {
    if (Object.hasOwn(constants, name)) return [name, constants[name as keyof typeof constants]];
    const isText = TEXTS.has(name) && typeof member === 'string' && member !== '';
    return [name, isText ? `${says}${member}` : inRun(member, run)];
  });
  return Object.fromEntries(members);
}

/** Every shape of response, as that run of the model server gives it. */
export const honestExchanges = (run: Run = {}): readonly HonestExchange[] =>
  TRANSCRIPTS.flatMap(({ endpoint: api, attacked: name, request: members, response }) => {
    if (name === undefined) return [];
    const request: Members = { ...members, model: name, ...literalEndpoint(api).asks };
    const format = api === 'transcription' ? { format: request['response_format'] as 'json' } : {};
    const asked = { name, api, choices: choicesOf(api, request), ...format };
    if (response.kind === 'whole') {
      return { ...asked, request, status: response.status, body: inRun(response.body, run) };
    }
    const events = response.events.flatMap(({ data }) => (data === '[DONE]' ? [] : [data]));
    return { ...asked, request: { ...request, stream: true }, events: inRun(events, run) as Members[] };
  });

const picked = (value: Members, names: readonly string[]): Members =>
  Object.fromEntries(names.filter((name) => Object.hasOwn(value, name)).map((name) => [name, value[name]]));

/**
 * What a client reads of an item of a stream; undefined where it reads nothing: pings, and chunks that carry
 * usage alone. An error is read as that, whatever stands beside it.
 */
export function essenceOfEvent(api: EndpointName, item: Members): Members | undefined {
  if ((item['error'] ?? null) !== null) return { error: item['error'] };
  if (item['type'] === 'ping' && api === 'messages') return undefined;
  const { choices } = item;
  if (api !== 'messages' && Array.isArray(choices) && choices.length === 0) return undefined;
  return picked(item, literalEndpoint(api).read[1] ?? []);
}

/** What a client reads of a whole answer. */
export function essenceOfBody(api: EndpointName, body: unknown): unknown {
  return Array.isArray(body) ? body : picked(body as Members, literalEndpoint(api).read[0]);
}

/** What a client reads of the whole exchange: the items of its stream, or its body as the only one. */
export const essenceOf = ({ api, events, body }: HonestExchange): unknown[] =>
  events === undefined
    ? [essenceOfBody(api, body)]
    : events.map((event) => essenceOfEvent(api, event)).filter((item) => item !== undefined);

/** The elements of a list in the order of their sequence: that of their index as text. */
export const elementsInOrder = (elements: readonly unknown[]): unknown[] =>
  Object.keys(elements)
    .sort((a, b) => (a < b ? -1 : 1))
    .map((index) => elements[Number(index)]);
