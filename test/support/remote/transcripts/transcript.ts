/**
 * What honest model servers send, as the service hands it on: transcripts.txt beside this file. A transcript
 * is one response of vLLM, complete, with its members in the order in which that version dumps them
 * (docs/protocol/grammar.md says which rows they are examples of). A section has the title, perhaps with the
 * name under which it is attacked, the members or form fields of the request that decide about the response,
 * and the response: the status and the body, or the data of each event. 0.20 runs behind the service of
 * v1.40; the later ones are what it may move to.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EndpointName } from '../endpoints.ts';

/** A JSON object whose members stand in the order in which they are sent. */
export type Members = { readonly [name: string]: unknown };

/** One event of a stream; `event` is the name line, which messages alone have. */
export interface TranscriptEvent {
  readonly event?: string;
  readonly data: Members | '[DONE]';
}

export type TranscriptResponse =
  | { readonly kind: 'stream'; readonly events: readonly TranscriptEvent[] }
  | { readonly kind: 'whole'; readonly status: number; readonly body: unknown };

export interface Transcript {
  /** Begins with the endpoint and the version. */
  readonly title: string;
  readonly endpoint: EndpointName;
  /** The name of the attacked exchange with this response, if there is one. It begins with the endpoint. */
  readonly attacked?: string | undefined;
  readonly request: Members;
  readonly response: TranscriptResponse;
}

/**
 * The name that requests ask for. The service need not answer under it: an alias is answered as the first
 * served name.
 */
export const MODEL = 'honest-model';
/** Seconds since 1970; taken once per request, so one number per response. */
export const CREATED = 1_763_800_000;

function readResponse(endpoint: EndpointName, lines: readonly string[]): TranscriptResponse {
  const [, status, body = ''] = /^(\d{3}) (.*)$/s.exec(lines[0]!) ?? [];
  if (status !== undefined) return { kind: 'whole', status: Number(status), body: JSON.parse(body) };
  const events = lines.map((line): TranscriptEvent => {
    if (line === '[DONE]') return { data: line };
    const data = JSON.parse(line) as Members;
    return endpoint === 'messages' ? { event: String(data['type']), data } : { data };
  });
  return { kind: 'stream', events };
}

export const TRANSCRIPTS: readonly Transcript[] = readFileSync(
  join(import.meta.dirname, 'transcripts.txt'),
  'utf8',
)
  .split(/^=== /m)
  .slice(1)
  .map((section) => {
    const [head = '', request = '', ...lines] = section.trimEnd().split('\n');
    const [, title = '', endpoint, attacked] = /^((\w+) .*?)(?: \[(.+)\])?$/.exec(head) ?? [];
    const name = endpoint as EndpointName;
    return {
      ...{ title, endpoint: name, attacked },
      ...{ request: JSON.parse(request), response: readResponse(name, lines) },
    };
  });
