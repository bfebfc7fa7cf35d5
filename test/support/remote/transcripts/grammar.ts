/**
 * docs/protocol/grammar.md once more, as slow and literal code: what it finds wrong with a response, in
 * words. It keeps the transcripts honest, and the simulator.
 */
import { type EndpointName, literalEndpoint, PROMPT } from '../endpoints.ts';
import type { Members, TranscriptEvent, TranscriptResponse } from './transcript.ts';

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Kinds of JSON by name; all other names are of `SHAPES`. */
const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  any: () => true,
  null: (value) => value === null,
  str: (value) => typeof value === 'string',
  int: (value) => Number.isInteger(value),
  num: (value) => typeof value === 'number',
  obj: isObject,
  maybe: (value) => value === null || isObject(value),
  none: (value) => Array.isArray(value) && value.length === 0,
  finish: (value) => ['stop', 'length', 'tool_calls', 'abort', 'repetition', null].includes(value as string),
};

const SAMPLING = 'stop_reason?:int|str|null token_ids?:[int]|null';
const CHUNK = 'id:str created:int model:str usage?:obj|null';

/**
 * The members of objects, and no others: `?` behind the name of one that may be missing, then the kinds of
 * its value, `[kind]` for a list of any length, or the value itself in quotes.
 */
const SHAPES: Readonly<Record<string, string>> = {
  'chat chunk': `${CHUNK} object:"chat.completion.chunk" choices:[chat_part] prompt_token_ids?:[int]|null
    prompt_text?:str|null kv_transfer_params?:maybe system_fingerprint?:str metrics?:obj service_tier?:str|null`,
  chat_part: `index:int delta:delta logprobs?:logprobs|null finish_reason?:finish ${SAMPLING}
    weight_versions?:[any]|null`,
  delta:
    'role?:str content?:str|null reasoning?:str|null reasoning_content?:str|null tool_calls?:[call_part]',
  call_part: 'index:int id?:str type?:"function" function?:obj',
  logprobs: 'content:[obj]|null',
  'completions chunk': `${CHUNK} object:"text_completion" choices:[text_part] kv_transfer_params?:maybe
    system_fingerprint?:str metrics?:obj`,
  text_part: `index:int text:str logprobs?:maybe finish_reason?:finish ${SAMPLING}
    prompt_token_ids?:[int]|null weight_versions?:[any]|null`,
  'transcription chunk': `${CHUNK} object:"transcription.chunk" choices:[audio_part]`,
  audio_part: 'delta:said finish_reason?:finish stop_reason?:int|str|null',
  said: 'content:str',
  'error event': 'error:failure',
  failure: 'message:str type:str param:str|null code:int',

  message_start: 'message:begun',
  begun: `id:str content:none model:str stop_reason:null stop_sequence:null usage:obj type?:"message"
    role?:"assistant"`,
  content_block_start: 'index:int content_block:text|thinking|tool_use',
  text: 'type:"text" text:""',
  thinking: 'type:"thinking" thinking:""',
  tool_use: 'type:"tool_use" id:str name:str input:empty',
  empty: '',
  content_block_delta: 'index:int delta:text_delta|thinking_delta|signature_delta|input_json_delta',
  text_delta: 'type:"text_delta" text:str',
  thinking_delta: 'type:"thinking_delta" thinking:str',
  signature_delta: 'type:"signature_delta" signature:str',
  input_json_delta: 'type:"input_json_delta" partial_json:str',
  content_block_stop: 'index:int',
  message_delta: 'delta:stopped usage:obj context_management?:null',
  stopped: 'stop_reason:str|null stop_sequence?:str|null',
  message_stop: '',
  ping: '',
  error: 'error:message_failure',
  message_failure: 'type:str message:str',

  chat_choice: `index:int message:message logprobs:maybe finish_reason:finish ${SAMPLING}`,
  message: `role:"assistant" content:str|null refusal?:null annotations?:null audio?:null function_call?:null
    tool_calls?:[call] reasoning?:str|null reasoning_content?:str|null`,
  call: 'id:str type:"function" function:called',
  called: 'name:str arguments:str',
  text_choice: `index:int text:str logprobs:maybe finish_reason:finish ${SAMPLING} ${PROMPT}`,
  embedding: 'index:int object:"embedding" embedding:str|[num]',
  verbose_json: 'duration:str|num language:str text:str segments:[obj]|null words:[obj]|null',
  diarized_json: 'task:"transcribe" text:str segments:[segment] duration?:num usage?:obj',
  segment: 'type:str id:str start:num end:num text:str speaker:str',
  element: 'type:str element_id:str text:str metadata:obj',
};

function fits(kinds: string, value: unknown): boolean {
  return kinds.split('|').some((kind) => {
    if (kind.startsWith('"')) return JSON.stringify(value) === kind;
    if (kind.startsWith('['))
      return Array.isArray(value) && value.every((each) => fits(kind.slice(1, -1), each));
    return TYPES[kind]?.(value) ?? (isObject(value) && breachesOf(kind, value).length === 0);
  });
}

function breachesOf(shape: string, value: Members, members = SHAPES[shape] ?? ''): string[] {
  const rules = [...members.matchAll(/(\w+)(\?)?:(\S+)/g)];
  const missing = rules.filter(([, name, optional]) => !optional && !Object.hasOwn(value, name!));
  const wrong = Object.entries(value).filter(([name, item]) => {
    const rule = rules.find(([, each]) => each === name);
    return rule === undefined || !fits(rule[3]!, item);
  });
  return [
    ...missing.map(([, name]) => `${name} is missing`),
    ...wrong.map(([name]) => `${name} is not its own`),
  ];
}

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
  endpoint: EndpointName,
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
    found.push(...breachesOf(`${endpoint} chunk`, chunk));
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
      found.push(...breachesOf('error event', data));
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

/** Of which kind of block a delta may be a part. */
const BLOCK_OF: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'thinking',
  input_json_delta: 'tool_use',
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
    found.push(...breachesOf(name, members).map((breach) => `${name}: ${breach}`));
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

function wholeBreaches(endpoint: EndpointName, request: Members, body: unknown): string[] {
  const { whole } = literalEndpoint(endpoint);
  if (whole.startsWith('[')) return fits(whole, body) ? [] : ['no list of its elements'];
  if (!isObject(body)) return ['not an object'];
  const format = String(request['response_format']);
  const found = breachesOf(format, body, format.endsWith('_json') ? undefined : whole);
  if (endpoint !== 'chat' && endpoint !== 'completions') return found;
  const indexes = (body['choices'] as readonly Members[]).map(({ index }) => index);
  const wanted = Array.from({ length: choicesOf(endpoint, request) }, (_, index) => index);
  return indexes.join() === wanted.join() ? found : [...found, 'choices of other indexes'];
}

function errorBreaches(body: unknown): string[] {
  if (!isObject(body)) return ['not an object'];
  const { error, detail } = body;
  return fits('str|obj', error) || fits('str|[obj]', detail) ? [] : ['neither an error nor a detail'];
}

/** What is wrong with a response that was given to that request; empty where it is honest. */
export function breaches(endpoint: EndpointName, request: Members, response: TranscriptResponse): string[] {
  if (response.kind === 'whole') {
    const { body, status } = response;
    return status >= 400 ? errorBreaches(body) : wholeBreaches(endpoint, request, body);
  }
  if (endpoint === 'messages') return messageBreaches(response.events);
  if (literalEndpoint(endpoint).read.length === 1) return ['a stream'];
  return chunkBreaches(endpoint, request, response.events);
}
