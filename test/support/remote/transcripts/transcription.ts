/** Transcriptions: `id` is sealed here, choices have no index, and each stretch of audio may finish. */
import {
  CREATED,
  DONE,
  errorEvent,
  forVersions,
  type Members,
  MODEL,
  type Row,
  since,
  stream,
  type Transcript,
  type TranscriptEvent,
  usage,
  type Version,
  whole,
} from './transcript.ts';

const HEAD = { id: 'trsc-2b9e6d0c41aa4f7e', object: 'transcription.chunk', created: CREATED, model: MODEL };
const AUDIO_TOKENS = 60;

const streamed: Members = { model: MODEL, stream: 'true' };
const asked = (format: string): Members => ({ model: MODEL, response_format: format });

const said = (content: string, more: Members = {}): Members => ({ delta: { content }, ...more });
const STOP = { finish_reason: 'stop', stop_reason: null };
const NOT_YET = { finish_reason: null, stop_reason: null };

function chunks(choices: readonly Members[]): TranscriptEvent[] {
  return choices.map((choice, index) => ({
    data: { ...HEAD, choices: [choice], usage: usage(AUDIO_TOKENS, index + 1) },
  }));
}

const streamOf = (choices: readonly Members[]): Row['response'] =>
  stream([
    ...chunks(choices),
    { data: { ...HEAD, choices: [], usage: usage(AUDIO_TOKENS, choices.length) } },
    DONE,
  ]);

const STRETCHES: readonly Row[] = [
  {
    name: 'one stretch of audio',
    request: streamed,
    response: streamOf([said(' Hello'), said(' "wörld"'), said('.', STOP)]),
  },
  {
    name: 'two stretches of audio, each with its finish',
    request: streamed,
    response: streamOf([
      said(' The first'),
      said(' half'),
      said('', STOP),
      said(' and the second'),
      said(' half', NOT_YET),
      said('.', { finish_reason: 'length', stop_reason: 50_257 }),
    ]),
  },
  {
    name: 'a finish of null before the last',
    request: streamed,
    response: streamOf([said(' a', NOT_YET), said(' b', { finish_reason: null }), said('', STOP)]),
  },
  { name: 'silence', request: streamed, response: streamOf([said('', STOP)]) },
  { name: 'an error first', request: streamed, response: stream([errorEvent, DONE]), ends: 'error' },
  {
    name: 'an error after content',
    request: streamed,
    response: stream([...chunks([said(' Hel')]), errorEvent, DONE]),
    ends: 'error',
  },
];

const SEGMENT = {
  id: 0,
  avg_logprob: -0.25,
  compression_ratio: 1.5,
  end: 2.5,
  no_speech_prob: null,
  seek: 0,
  start: 0.5,
  temperature: 0.5,
  text: ' Hello.',
  tokens: [50_364, 2425, 13],
};

const verbose = (version: Version, segments: unknown, words: unknown): Members => ({
  duration: since(version, '0.33') ? 2.5 : '2.5',
  language: 'en',
  text: ' Hello.',
  segments,
  words,
});

const wholes = (version: Version): Row[] => [
  ...['json', 'text'].map((format) => ({
    name: `a whole transcript, asked for as ${format}`,
    request: asked(format),
    response: whole({ text: ' Hello "wörld".\n', usage: { type: 'duration', seconds: 3 } }),
  })),
  {
    name: 'a whole transcript with segments',
    request: asked('verbose_json'),
    response: whole(verbose(version, [SEGMENT, { ...SEGMENT, id: 1, no_speech_prob: 0.125 }], null)),
  },
  {
    name: 'a whole transcript with words',
    request: { ...asked('verbose_json'), 'timestamp_granularities[]': 'word' },
    response: whole(verbose(version, null, [{ end: 1.5, start: 0.5, word: 'Hello' }])),
  },
  {
    name: 'a whole transcript of silence',
    request: asked('verbose_json'),
    response: whole(verbose(version, [], null)),
  },
];

const latest: readonly Row[] = [
  {
    name: 'a whole transcript by speakers',
    request: asked('diarized_json'),
    response: whole({
      task: 'transcribe',
      duration: 2.5,
      text: 'Hello. Hi.',
      segments: [
        { type: 'transcript.text.segment', id: 'seg_0', start: 0.5, end: 1.5, text: 'Hello.', speaker: 'A' },
        { type: 'transcript.text.segment', id: 'seg_1', start: 1.5, end: 2.5, text: 'Hi.', speaker: 'B' },
      ],
      usage: { type: 'duration', seconds: 3 },
    }),
  },
];

export const TRANSCRIPTION: readonly Transcript[] = forVersions('transcription', (version) => [
  ...STRETCHES,
  ...wholes(version),
  ...(since(version, '0.33') ? latest : []),
]);
