/**
 * What an honest model server sends, as data: one transcript is one response of vLLM, complete, with its
 * members in the order in which that version dumps them (docs/protocol/grammar.md says which rows they are
 * examples of).
 */

/** vLLM 0.20 runs behind the service of v1.40; the later ones are what it may move to. */
export const VERSIONS = ['0.20', '0.26', '0.33'] as const;
export type Version = (typeof VERSIONS)[number];

export type EndpointName =
  | 'chat'
  | 'completions'
  | 'messages'
  | 'embeddings'
  | 'transcription'
  | 'unstructured';

/** A JSON object whose members stand in the order in which they are sent. */
export type Members = { readonly [name: string]: unknown };

/** One event of a stream; `event` is the name line, which messages alone have. */
export interface TranscriptEvent {
  readonly event?: string;
  readonly data: Members | '[DONE]';
}

export type TranscriptResponse =
  | { readonly kind: 'stream'; readonly events: readonly TranscriptEvent[] }
  /** `body` is what `JSON.stringify` makes the text of, or that text itself. */
  | { readonly kind: 'whole'; readonly status: number; readonly body: unknown };

export interface Transcript {
  readonly endpoint: EndpointName;
  readonly version: Version;
  /** Unique together with endpoint and version. */
  readonly name: string;
  /** The members, or form fields, of the request that decide about the shape of the response. */
  readonly request: Members;
  readonly response: TranscriptResponse;
  /**
   * How it ends. `error`: an error event, or a status of 400 and above. `unfinished`: without the finish by
   * which a receiver knows that it is whole.
   */
  readonly ends: 'well' | 'error' | 'unfinished';
}

/** What differs between the transcripts of one endpoint and version. */
export type Row = Pick<Transcript, 'name' | 'request' | 'response'> & { readonly ends?: Transcript['ends'] };

/**
 * The name that requests ask for. The service need not answer under it: an alias is answered as the first
 * served name.
 */
export const MODEL = 'honest-model';
export const SERVED_MODEL = 'served/honest-model-fp8';
/** Seconds since 1970; taken once per request, so one number per response. */
export const CREATED = 1_763_800_000;

export const DONE: TranscriptEvent = { data: '[DONE]' };

/** Whether `version` is `first` or later. */
export const since = (version: Version, first: Version): boolean =>
  VERSIONS.indexOf(version) >= VERSIONS.indexOf(first);

export const stream = (events: readonly TranscriptEvent[]): TranscriptResponse => ({
  kind: 'stream',
  events,
});

export const whole = (body: unknown, status = 200): TranscriptResponse => ({ kind: 'whole', status, body });

/** Usage as streams have it, where members that were never set are left out. */
export const usage = (promptTokens: number, completionTokens: number): Members => ({
  prompt_tokens: promptTokens,
  total_tokens: promptTokens + completionTokens,
  completion_tokens: completionTokens,
});

/** Usage as whole responses have it. */
export const wholeUsage = (promptTokens: number, completionTokens: number): Members => ({
  ...usage(promptTokens, completionTokens),
  prompt_tokens_details: null,
});

/** The error event of chat, completions and transcriptions: alone in its event, then the end. */
export const errorEvent: TranscriptEvent = {
  data: {
    error: {
      message: 'EngineCore encountered an issue.',
      type: 'InternalServerError',
      param: null,
      code: 500,
    },
  },
};

/** The text that goes over the wire between the model server and the service in front of it. */
export function textOf(response: TranscriptResponse): string {
  if (response.kind === 'whole') {
    return typeof response.body === 'string' ? response.body : JSON.stringify(response.body);
  }
  return response.events
    .map(({ event, data }) => {
      const name = event === undefined ? '' : `event: ${event}\n`;
      return `${name}data: ${data === '[DONE]' ? data : JSON.stringify(data)}\n\n`;
    })
    .join('');
}

/** The transcripts of one endpoint, for each version. */
export const forVersions = (
  endpoint: EndpointName,
  rows: (version: Version) => readonly Row[],
): readonly Transcript[] =>
  VERSIONS.flatMap((version) =>
    rows(version).map(({ ends = 'well', ...row }) => ({ endpoint, version, ends, ...row })),
  );
