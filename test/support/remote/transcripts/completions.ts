/** Legacy completions: no role chunks, and one choice for each prompt and each of its `n` outputs. */
import {
  CREATED,
  DONE,
  errorEvent,
  forVersions,
  type Members,
  MODEL,
  type Row,
  SERVED_MODEL,
  since,
  stream,
  type Transcript,
  type TranscriptEvent,
  usage,
  type Version,
  whole,
  wholeUsage,
} from './transcript.ts';

const ID = 'cmpl-51d7b0f2c64e4f0a';
const PROMPT_TOKENS = 4;
const TRIO = ['one', 'two', 'three'];

const asked = (more: Members = {}): Members => ({ model: MODEL, prompt: 'Once', ...more });
const streamed = (more: Members = {}): Members => asked({ stream: true, ...more });

const NOTHING_YET = { finish_reason: null, stop_reason: null };

const text = (value: string, index = 0, more: Members = {}): Members => ({
  index,
  text: value,
  logprobs: null,
  ...NOTHING_YET,
  prompt_token_ids: null,
  token_ids: null,
  ...more,
});

const finish = (reason: string, index = 0, stopReason: number | string | null = null): Members =>
  text('', index, { finish_reason: reason, stop_reason: stopReason });

const head = (model: string): Members => ({ id: ID, object: 'text_completion', created: CREATED, model });

/** From 0.33 on every chunk says so, null as it is; from 0.26 on the closing one names the build. */
const transfer = (version: Version): Members => (since(version, '0.33') ? { kv_transfer_params: null } : {});
const fingerprint = (version: Version): Members =>
  since(version, '0.26') ? { system_fingerprint: `vllm-${version}.0-tp1-90aa14c7` } : {};

function chunks(version: Version, choices: readonly Members[], model = MODEL): TranscriptEvent[] {
  const counts = new Map<unknown, number>();
  return choices.map((choice) => {
    const { index, finish_reason: reason } = choice;
    counts.set(index, (counts.get(index) ?? 0) + (reason === null ? 1 : 0));
    return {
      data: {
        ...head(model),
        choices: [choice],
        usage: usage(PROMPT_TOKENS, counts.get(index) as number),
        ...transfer(version),
      },
    };
  });
}

function streamOf(
  version: Version,
  name: string,
  request: Members,
  choices: readonly Members[],
  { model = MODEL, closing = fingerprint(version) }: { model?: string; closing?: Members } = {},
): Row {
  const tokens = choices.filter(({ finish_reason: reason }) => reason === null).length;
  const last = {
    ...head(model),
    choices: [],
    usage: usage(PROMPT_TOKENS, tokens),
    ...closing,
    ...transfer(version),
  };
  return { name, request, response: stream([...chunks(version, choices, model), { data: last }, DONE]) };
}

const LOGPROBS = {
  text_offset: [0, 5],
  token_logprobs: [-0.25, null],
  tokens: [' upon', ' a'],
  top_logprobs: [{ ' upon': -0.25, ' more': -3.5 }, null],
};

/** Asks for the prompt before the answer, and for log probabilities whose tokens are numbers. */
const SCORING = { echo: true, logprobs: 1, return_tokens_as_token_ids: true };
const SCORES = {
  text_offset: [0, 4],
  token_logprobs: [null, -0.25],
  tokens: ['token_id:5713', 'token_id:2501'],
  top_logprobs: [null, { 'token_id:2501': -0.25, 'token_id:264': -3.5 }],
};
const BATCH = Array.from({ length: 255 }, (_, index) => `Once ${index}`);

const streams = (version: Version): Row[] => [
  streamOf(version, 'plain text', streamed(), [
    text(' upon'),
    text(' a'),
    text(' "time" 🙂\n'),
    finish('stop'),
  ]),
  streamOf(
    version,
    'two outputs, under the first served name',
    streamed({ n: 2 }),
    [text('a', 0), text('b', 1), finish('length', 1), text('c', 0), finish('stop', 0, 'END')],
    { model: SERVED_MODEL },
  ),
  streamOf(version, 'three prompts, interleaved', streamed({ prompt: TRIO }), [
    text('a', 2),
    text('b', 0),
    text('c', 1),
    finish('stop', 0),
    text('d', 2),
    finish('length', 2),
    text('e', 1),
    finish('stop', 1, 2),
  ]),
  streamOf(version, 'three prompts of two outputs each', streamed({ prompt: TRIO, n: 2 }), [
    ...[0, 1, 2, 3, 4, 5].map((index) => text(`x${index}`, index)),
    ...[5, 0, 4, 1, 3, 2].map((index) => finish('stop', index)),
  ]),
  streamOf(
    version,
    'two prompts of token numbers, one after the other',
    streamed({ prompt: [[1, 2], [3]], n: null }),
    [text('a', 1), text('b', 1), finish('stop', 1), text('c', 0), finish('stop', 0)],
  ),
  streamOf(
    version,
    'two prompts as embeddings beside a written one',
    streamed({ prompt_embeds: ['AAAA', 'BBBB'] }),
    [...[0, 1, 2].map((index) => text('x', index)), ...[2, 1, 0].map((index) => finish('stop', index))],
  ),
  streamOf(
    version,
    'one prompt as an embedding, and none that is written',
    streamed({ prompt: null, prompt_embeds: 'AAAA' }),
    [text('x'), finish('stop')],
  ),
  streamOf(version, 'one prompt of token numbers', streamed({ prompt: [1, 2, 3] }), [
    text('a'),
    finish('length'),
  ]),
  streamOf(version, 'the text and its finish in one chunk', streamed({ max_tokens: 1 }), [
    text(' upon', 0, { finish_reason: 'length' }),
  ]),
  streamOf(version, 'log probabilities and token ids', streamed({ logprobs: 2, return_token_ids: true }), [
    text(' upon a', 0, { logprobs: LOGPROBS, prompt_token_ids: [5713], token_ids: [2501, 264] }),
    text('', 0, { finish_reason: 'stop', stop_reason: 128_009, token_ids: [2] }),
  ]),
  streamOf(version, 'the prompt and the first token in one chunk', streamed({ ...SCORING, max_tokens: 2 }), [
    text('Once upon', 0, { logprobs: SCORES }),
    text(' a', 0, { finish_reason: 'length' }),
  ]),
  streamOf(version, 'the prompt alone', streamed({ ...SCORING, max_tokens: 0 }), [
    text('Once', 0, { logprobs: SCORES, finish_reason: 'length' }),
  ]),
  streamOf(version, '255 prompts', streamed({ prompt: BATCH }), [
    ...BATCH.map((_, index) => text(`x${index}`, index)),
    ...BATCH.map((_, index) => finish('stop', index)),
  ]),
  ...['abort', 'repetition'].map((reason) =>
    streamOf(version, `finished by ${reason}`, streamed(), [text('x'), finish(reason)]),
  ),
  { name: 'an error first', request: streamed(), response: stream([errorEvent, DONE]), ends: 'error' },
  {
    name: 'an error after content',
    request: streamed(),
    response: stream([...chunks(version, [text(' up')]), errorEvent, DONE]),
    ends: 'error',
  },
];

const laterStreams = (version: Version): Row[] => [
  streamOf(version, 'metrics in the closing chunk', streamed(), [text('x'), finish('stop')], {
    closing: { ...fingerprint(version), metrics: { time_to_first_token_ms: 12.5 } },
  }),
];

const latestStreams = (version: Version): Row[] => [
  {
    name: 'versions of the weights, and transfer parameters at the finish',
    request: streamed(),
    response: stream([
      ...chunks(version, [text('x', 0, { weight_versions: ['7'] })]),
      {
        data: {
          ...head(MODEL),
          choices: [{ ...finish('stop'), weight_versions: null }],
          usage: usage(PROMPT_TOKENS, 1),
          kv_transfer_params: { remote_block_ids: [4] },
        },
      },
      {
        data: {
          ...head(MODEL),
          choices: [],
          usage: usage(PROMPT_TOKENS, 1),
          ...fingerprint(version),
          ...transfer(version),
        },
      },
      DONE,
    ]),
  },
];

const wholeChoice = (index: number, value: string, more: Members = {}): Members => ({
  index,
  text: value,
  logprobs: null,
  finish_reason: 'stop',
  stop_reason: null,
  token_ids: null,
  prompt_logprobs: null,
  prompt_token_ids: null,
  ...more,
});

const completion = (version: Version, choices: readonly Members[], more: Members = {}): Members => ({
  id: ID,
  object: 'text_completion',
  created: CREATED,
  model: MODEL,
  choices,
  service_tier: null,
  system_fingerprint: null,
  ...fingerprint(version),
  usage: wholeUsage(PROMPT_TOKENS, 3),
  kv_transfer_params: null,
  ...(since(version, '0.26') ? { ec_transfer_params: null, metrics: null } : {}),
  ...more,
});

const wholes = (version: Version): Row[] => [
  {
    name: 'a whole answer',
    request: asked(),
    response: whole(completion(version, [wholeChoice(0, ' upon a time')])),
  },
  {
    name: 'a whole answer to three prompts of two outputs each',
    request: asked({ prompt: TRIO, n: 2 }),
    response: whole(
      completion(
        version,
        [0, 1, 2, 3, 4, 5].map((index) => wholeChoice(index, `x${index}`)),
        { model: SERVED_MODEL },
      ),
    ),
  },
  {
    name: 'a whole answer with the log probabilities and ids of prompt and answer',
    request: asked({ logprobs: 2, prompt_logprobs: 1 }),
    response: whole(
      completion(version, [
        wholeChoice(0, ' upon a', {
          logprobs: LOGPROBS,
          finish_reason: 'length',
          token_ids: [2501, 264],
          prompt_logprobs: [null, { '733': { logprob: -1.5, rank: 2, decoded_token: 'Once' } }],
          prompt_token_ids: [5713, 733],
        }),
      ]),
    ),
  },
];

const evaluations = (version: Version): Row[] => [
  {
    name: 'a whole answer that is the prompt alone, with its log probabilities by token number',
    request: asked({ ...SCORING, max_tokens: 0 }),
    response: whole(
      completion(version, [wholeChoice(0, 'Once', { logprobs: SCORES, finish_reason: 'length' })]),
    ),
  },
  {
    name: 'a whole answer to 255 prompts',
    request: asked({ ...SCORING, prompt: BATCH, max_tokens: 0 }),
    response: whole(
      completion(
        version,
        BATCH.map((text, index) => wholeChoice(index, text, { logprobs: SCORES, finish_reason: 'length' })),
      ),
    ),
  },
];

export const COMPLETIONS: readonly Transcript[] = forVersions('completions', (version) => [
  ...streams(version),
  ...(since(version, '0.26') ? laterStreams(version) : []),
  ...(since(version, '0.33') ? latestStreams(version) : []),
  ...wholes(version),
  ...evaluations(version),
]);
