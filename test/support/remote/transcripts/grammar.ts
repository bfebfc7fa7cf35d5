/**
 * docs/protocol/grammar.md once more, as slow and literal code: what it finds wrong with a response, in
 * words. It keeps the transcripts honest, and the simulator.
 */
import type { EndpointName, Members, TranscriptEvent, TranscriptResponse } from './transcript.ts';

type Check = (value: unknown) => boolean;

const str: Check = (value) => typeof value === 'string';
const int: Check = (value) => Number.isInteger(value);
const num: Check = (value) => typeof value === 'number';
const nothing: Check = (value) => value === null;
const obj: Check = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const is =
  (...constants: readonly unknown[]): Check =>
  (value) =>
    constants.includes(value);
const or =
  (...checks: readonly Check[]): Check =>
  (value) =>
    checks.some((check) => check(value));
const list =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);

/** The members that must be there, and those that may; no others. */
interface Shape {
  readonly must: Readonly<Record<string, Check>>;
  readonly may?: Readonly<Record<string, Check>>;
}

const fits =
  ({ must, may = {} }: Shape): Check =>
  (value) =>
    obj(value) && breachesOf({ must, may }, value as Members).length === 0;

function breachesOf({ must, may = {} }: Shape, value: Members): string[] {
  const missing = Object.keys(must).filter((name) => !Object.hasOwn(value, name));
  const wrong = Object.entries(value).filter(([name, item]) => {
    const check = Object.hasOwn(must, name) ? must[name] : may[name];
    return check === undefined || !check(item);
  });
  return [...missing.map((name) => `${name} is missing`), ...wrong.map(([name]) => `${name} is not its own`)];
}

const ids = or(nothing, list(int));
const object = or(nothing, obj);
const text = or(nothing, str);
const stopReason = or(nothing, int, str);
const finishReason = or(nothing, is('stop', 'length', 'tool_calls', 'abort', 'repetition'));
const sampling = { stop_reason: stopReason, token_ids: ids };
const weights = {
  weight_versions: or(
    nothing,
    list(() => true),
  ),
};
const usage = { usage: object };

const DELTA: Shape = {
  must: {},
  may: {
    role: str,
    content: text,
    reasoning: text,
    reasoning_content: text,
    tool_calls: list(fits({ must: { index: int }, may: { id: str, type: is('function'), function: obj } })),
  },
};

const CHUNK_CHOICE = {
  chat: fits({
    must: { index: int, delta: fits(DELTA) },
    may: {
      logprobs: or(nothing, fits({ must: { content: or(nothing, list(obj)) } })),
      finish_reason: finishReason,
      ...sampling,
      ...weights,
    },
  }),
  completions: fits({
    must: { index: int, text: str },
    may: {
      logprobs: object,
      finish_reason: finishReason,
      ...sampling,
      prompt_token_ids: ids,
      ...weights,
    },
  }),
  transcription: fits({
    must: { delta: fits({ must: { content: str } }) },
    may: { finish_reason: finishReason, stop_reason: stopReason },
  }),
};

type ChunkEndpoint = keyof typeof CHUNK_CHOICE;

const chunkShape = (endpoint: ChunkEndpoint, name: string, may: Shape['may']): Shape => ({
  must: { id: str, choices: list(CHUNK_CHOICE[endpoint]), created: int, model: str, object: is(name) },
  may: { ...usage, ...may },
});

const CHUNKS: Readonly<Record<ChunkEndpoint, Shape>> = {
  chat: chunkShape('chat', 'chat.completion.chunk', {
    prompt_token_ids: ids,
    prompt_text: text,
    kv_transfer_params: object,
    system_fingerprint: str,
    metrics: obj,
    service_tier: text,
  }),
  completions: chunkShape('completions', 'text_completion', {
    kv_transfer_params: object,
    system_fingerprint: str,
    metrics: obj,
  }),
  transcription: chunkShape('transcription', 'transcription.chunk', {}),
};

const ERROR_EVENT: Shape = {
  must: { error: fits({ must: { message: str, type: str, param: text, code: int } }) },
};

const CONSTANTS = ['id', 'created', 'model', 'object'];

/** p of the grammar: the prompts of a completions request. */
function promptsOf({ prompt, prompt_embeds: embeds }: Members): number {
  const ofEmbeds = Array.isArray(embeds) ? embeds.length : typeof embeds === 'string' ? 1 : 0;
  const several = Array.isArray(prompt) && !prompt.every((item) => typeof item === 'number');
  const ofPrompt = several ? prompt.length : prompt === undefined || prompt === null ? 0 : 1;
  return ofEmbeds + ofPrompt;
}

export function choicesOf(endpoint: EndpointName, request: Members): number {
  const n = typeof request['n'] === 'number' ? request['n'] : 1;
  return endpoint === 'completions' ? n * promptsOf(request) : n;
}

/** Chat, completions and transcriptions: chunks, the closing one, the end. */
function chunkBreaches(
  endpoint: ChunkEndpoint,
  request: Members,
  events: readonly TranscriptEvent[],
): string[] {
  const found: string[] = [];
  const wanted = choicesOf(endpoint, request);
  const roles = new Set<number>();
  const begun = new Set<number>();
  const finished = new Set<number>();
  let first: Members | undefined;
  let state: 'open' | 'closed' | 'failed' | 'ended' = 'open';

  function take(chunk: Members): void {
    found.push(...breachesOf(CHUNKS[endpoint], chunk));
    first ??= chunk;
    for (const name of CONSTANTS) if (chunk[name] !== first[name]) found.push(`${name} changes`);
    if (!Object.hasOwn(chunk, 'usage')) found.push('a chunk without usage');
    const choices = chunk['choices'] as readonly Members[];
    if (state !== 'open') found.push('a chunk after the closing one');
    if (choices.length === 0) state = 'closed';
    else if (choices.length > 1) found.push('more than one choice in a chunk');
    else if (endpoint !== 'transcription') choice(choices[0] as Members);
  }

  function choice({ index, delta, finish_reason: reason }: Members): void {
    const at = index as number;
    if (at < 0 || at >= wanted) found.push(`an index of ${at}`);
    if (finished.has(at)) found.push('a choice goes on after its finish');
    if (endpoint === 'chat') {
      const isRole = Object.hasOwn(delta as Members, 'role');
      if (isRole === roles.has(at)) found.push(isRole ? 'a second role chunk' : 'no role chunk first');
      roles.add(at);
      if (!isRole) begun.add(at);
    }
    if (reason !== null && reason !== undefined) finished.add(at);
  }

  for (const { event, data } of events) {
    if (event !== undefined) found.push('an event with a name');
    if (state === 'ended') found.push('an event after the end');
    if (data === '[DONE]') {
      if (state === 'open') found.push('no closing chunk');
      state = 'ended';
    } else if (Object.hasOwn(data, 'error')) {
      found.push(...breachesOf(ERROR_EVENT, data));
      if (state !== 'open') found.push('an error after the closing chunk');
      state = 'failed';
    } else take(data);
  }
  if (state !== 'ended') found.push('no end');
  const failed = events.some(({ data }) => data !== '[DONE]' && Object.hasOwn(data, 'error'));
  // A choice of a chat that got no token after its role has no finish in 0.20.
  const empty = [...roles].filter((at) => !begun.has(at) && !finished.has(at)).length;
  if (!failed && endpoint !== 'transcription' && finished.size + empty !== wanted)
    found.push('a choice without a finish');
  return found;
}

const BLOCKS: Readonly<Record<string, Shape>> = {
  text: { must: { type: is('text'), text: is('') } },
  thinking: { must: { type: is('thinking'), thinking: is('') } },
  tool_use: { must: { type: is('tool_use'), id: str, name: str, input: fits({ must: {} }) } },
};

const DELTAS: Readonly<Record<string, Shape>> = {
  text_delta: { must: { type: is('text_delta'), text: str } },
  thinking_delta: { must: { type: is('thinking_delta'), thinking: str } },
  signature_delta: { must: { type: is('signature_delta'), signature: str } },
  input_json_delta: { must: { type: is('input_json_delta'), partial_json: str } },
};

/** Of which kind of block a delta may be a part. */
const BLOCK_OF: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'thinking',
  input_json_delta: 'tool_use',
};

const oneOf =
  (shapes: Readonly<Record<string, Shape>>): Check =>
  (value) =>
    obj(value) && fits(shapes[String((value as Members)['type'])] ?? { must: { '': str } })(value);

const MESSAGE_EVENTS: Readonly<Record<string, Shape>> = {
  message_start: {
    must: {
      message: fits({
        must: {
          id: str,
          content: (value) => Array.isArray(value) && value.length === 0,
          model: str,
          stop_reason: nothing,
          stop_sequence: nothing,
          usage: obj,
        },
        may: { type: is('message'), role: is('assistant') },
      }),
    },
  },
  content_block_start: { must: { index: int, content_block: oneOf(BLOCKS) } },
  content_block_delta: { must: { index: int, delta: oneOf(DELTAS) } },
  content_block_stop: { must: { index: int } },
  message_delta: {
    must: { delta: fits({ must: { stop_reason: text }, may: { stop_sequence: text } }), usage: obj },
    may: { context_management: nothing },
  },
  message_stop: { must: {} },
  ping: { must: {} },
  error: { must: { error: fits({ must: { type: str, message: str } }) } },
};

/** Which event may follow which; pings may stand anywhere. */
const NEXT: Readonly<Record<string, readonly string[]>> = {
  '': ['message_start', 'error'],
  message_start: ['content_block_start', 'message_delta', 'error'],
  content_block_start: ['content_block_delta', 'content_block_stop', 'error'],
  content_block_delta: ['content_block_delta', 'content_block_stop', 'error'],
  content_block_stop: ['content_block_start', 'message_delta', 'error'],
  message_delta: ['message_stop'],
  message_stop: [],
  error: [],
};

function messageBreaches(events: readonly TranscriptEvent[]): string[] {
  const found: string[] = [];
  let last = '';
  let blocks = 0;
  let kind = '';
  for (const { event, data } of events) {
    if (data === '[DONE]') return ['[DONE]'];
    const { type, ...members } = data;
    const name = String(type);
    if (event !== name) found.push('the name of an event is not its type');
    found.push(
      ...breachesOf(MESSAGE_EVENTS[name] ?? { must: { '': str } }, members).map((it) => `${name}: ${it}`),
    );
    if (name === 'ping') continue;
    if (!NEXT[last]?.includes(name)) found.push(`${name} after ${last}`);
    const block = members['content_block'] as Members | undefined;
    if (block !== undefined) {
      kind = String(block['type']);
      blocks++;
    }
    if (name.startsWith('content_block') && members['index'] !== blocks - 1) found.push('a wrong index');
    const delta = members['delta'] as Members | undefined;
    if (name === 'content_block_delta' && BLOCK_OF[String(delta?.['type'])] !== kind)
      found.push('a foreign delta');
    last = name;
  }
  if (last !== 'message_stop' && last !== 'error') found.push('no end');
  return found;
}

const completion = (name: string, choice: Shape, may: Shape['may']): Shape => ({
  must: { id: str, choices: list(fits(choice)), created: int, model: str, object: is(name), usage: obj },
  may: {
    service_tier: text,
    system_fingerprint: text,
    kv_transfer_params: object,
    ec_transfer_params: object,
    metrics: object,
    ...may,
  },
});

const prompt = { prompt_logprobs: or(nothing, list(object)), prompt_token_ids: ids };

const MESSAGE: Shape = {
  must: { role: is('assistant'), content: text },
  may: {
    refusal: nothing,
    annotations: nothing,
    audio: nothing,
    function_call: nothing,
    tool_calls: list(
      fits({
        must: { id: str, type: is('function'), function: fits({ must: { name: str, arguments: str } }) },
      }),
    ),
    reasoning: text,
    reasoning_content: text,
  },
};

const finish = { logprobs: object, finish_reason: finishReason };

const transcriptShape = ({ response_format: format }: Members): Shape => {
  if (format === 'verbose_json') {
    const objects = or(nothing, list(obj));
    return { must: { duration: or(str, num), language: str, text: str, segments: objects, words: objects } };
  }
  if (format === 'diarized_json') {
    const segment = fits({ must: { type: str, id: str, start: num, end: num, text: str, speaker: str } });
    return {
      must: { task: is('transcribe'), text: str, segments: list(segment) },
      may: { duration: num, usage: obj },
    };
  }
  return { must: { text: str }, may: { usage: obj } };
};

const WHOLES: Readonly<Record<Exclude<EndpointName, 'unstructured'>, (request: Members) => Shape>> = {
  chat: () =>
    completion(
      'chat.completion',
      { must: { index: int, message: fits(MESSAGE), ...finish }, may: sampling },
      { ...prompt, prompt_text: text },
    ),
  completions: () =>
    completion(
      'text_completion',
      { must: { index: int, text: str, ...finish }, may: { ...sampling, ...prompt } },
      {},
    ),
  embeddings: () => ({
    must: {
      object: is('list'),
      data: list(fits({ must: { index: int, object: is('embedding'), embedding: or(str, list(num)) } })),
      model: text,
      id: str,
      usage: obj,
    },
    may: { created: int },
  }),
  messages: () => ({
    must: {
      id: str,
      type: is('message'),
      role: is('assistant'),
      content: list(obj),
      model: str,
      stop_reason: str,
      usage: obj,
    },
    may: { stop_sequence: str, kv_transfer_params: obj, ec_transfer_params: obj },
  }),
  transcription: transcriptShape,
};

const ELEMENT = fits({ must: { type: str, element_id: str, text: str, metadata: obj } });

function wholeBreaches(endpoint: EndpointName, request: Members, body: unknown): string[] {
  if (endpoint === 'unstructured') {
    return list(or(ELEMENT, list(ELEMENT)))(body) ? [] : ['not the elements of files'];
  }
  if (!obj(body)) return ['not an object'];
  const members = body as Members;
  const found = breachesOf(WHOLES[endpoint](request), members);
  if (endpoint !== 'chat' && endpoint !== 'completions') return found;
  const indexes = (members['choices'] as readonly Members[]).map(({ index }) => index);
  const wanted = Array.from({ length: choicesOf(endpoint, request) }, (_, index) => index);
  return indexes.join() === wanted.join() ? found : [...found, 'choices of other indexes'];
}

function errorBreaches(body: unknown): string[] {
  if (!obj(body)) return ['not an object'];
  const { error, detail } = body as Members;
  return or(str, obj)(error) || or(str, list(obj))(detail) ? [] : ['neither an error nor a detail'];
}

/** What is wrong with a response that was given to that request; empty where it is honest. */
export function breaches(endpoint: EndpointName, request: Members, response: TranscriptResponse): string[] {
  if (response.kind === 'whole') {
    const { body: given, status } = response;
    const body: unknown = typeof given === 'string' ? JSON.parse(given) : given;
    return status >= 400 ? errorBreaches(body) : wholeBreaches(endpoint, request, body);
  }
  if (endpoint === 'messages') return messageBreaches(response.events);
  if (endpoint === 'embeddings' || endpoint === 'unstructured') return ['a stream'];
  return chunkBreaches(endpoint, request, response.events);
}
