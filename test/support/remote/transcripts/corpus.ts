/**
 * All transcripts, and how the service hands them on: what tests of honest responses and of attacks on them
 * begin with.
 */
import { CHAT } from './chat.ts';
import { COMPLETIONS } from './completions.ts';
import { EMBEDDINGS } from './embeddings.ts';
import { ERRORS } from './errors.ts';
import { MESSAGES } from './messages.ts';
import type { EndpointName, Members, Transcript, TranscriptResponse } from './transcript.ts';
import { TRANSCRIPTION } from './transcription.ts';
import { UNSTRUCTURED } from './unstructured.ts';

export const TRANSCRIPTS: readonly Transcript[] = [
  ...CHAT,
  ...COMPLETIONS,
  ...MESSAGES,
  ...EMBEDDINGS,
  ...TRANSCRIPTION,
  ...UNSTRUCTURED,
  ...ERRORS,
];

export const PATHS: Readonly<Record<EndpointName, string>> = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  messages: '/v1/messages',
  embeddings: '/v1/embeddings',
  transcription: '/v1/audio/transcriptions',
  unstructured: '/unstructured/general/v0/general',
};

export const titleOf = ({ endpoint, version, name }: Transcript): string => `${endpoint} ${version}: ${name}`;

/** The transcript of that title. Throws where there is none. */
export function transcriptOf(title: string): Transcript {
  const found = TRANSCRIPTS.find((transcript) => titleOf(transcript) === title);
  if (found === undefined) throw new Error(`no transcript ${title}`);
  return found;
}

/**
 * The service repeats `reasoning` of a chat as `reasoning_content`; nothing else differs from what the model
 * server sent.
 */
export function served({ endpoint, response }: Transcript): TranscriptResponse {
  if (endpoint !== 'chat') return response;
  const repeated = (holder: unknown): unknown =>
    holder !== undefined && Object.hasOwn(holder as Members, 'reasoning')
      ? { ...(holder as Members), reasoning_content: (holder as Members)['reasoning'] }
      : holder;
  const changed = (members: Members): Members => {
    if (!Object.hasOwn(members, 'choices')) return members;
    const choices = (members['choices'] as readonly Members[]).map((choice) => ({
      ...choice,
      ...(choice['delta'] === undefined ? {} : { delta: repeated(choice['delta']) }),
      ...(choice['message'] === undefined ? {} : { message: repeated(choice['message']) }),
    }));
    return { ...members, choices };
  };
  if (response.kind === 'whole') return { ...response, body: changed(response.body as Members) };
  const events = response.events.map(({ event, data }) => ({
    ...(event === undefined ? {} : { event }),
    data: data === '[DONE]' ? data : changed(data),
  }));
  return { kind: 'stream', events };
}
