/**
 * Takes in the body of a request, and checks it once it is complete: nothing of it can leave before. The next
 * stages are inject-salt.ts and encrypt-body.ts.
 */
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Member, scanInTurns } from '../json/scan.ts';
import { CollectedBytes } from './collected-bytes.ts';
import { boundaryOf, type FormParts, readForm } from './form.ts';
import { checkMediaUrls } from './media-urls.ts';
import { parsedElements } from './parsed-elements.ts';
import {
  askedInForm,
  askedInJson,
  countPrompts,
  demandRules,
  MAX_DECODED_BYTES,
  type UsageWanted,
} from './plain-members.ts';

export type { UsageWanted };

/**
 * Called between the parts of long work: undefined if the work may go on, else a promise that resolves when
 * others have had their turn.
 */
export type Pause = () => Promise<void> | undefined;

/** A request body on its way in: fed as it arrives, ready when it is complete. */
export interface RequestBody<T = ParsedBody> {
  /** Takes the next chunk, and keeps nothing of it. Throws a typed 400 if the body cannot become valid. */
  feed(chunk: Uint8Array): void;
  /**
   * Call it once, after the last chunk. Throws, or rejects with, a typed 400. `hold` reserves memory for what
   * is kept beside the body, or throws.
   */
  finish(hold?: (bytes: number) => void, pause?: Pause): T | Promise<T>;
  /** Frees the memory of the body. Nobody may read what `finish` gave afterwards. */
  release(): void;
}

/** Does the work, with a pause between its steps where one is due; without any, the result is no promise. */
export function inTurns<T>(steps: Generator<undefined, T>, pause?: Pause): T | Promise<T> {
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    const turn = pause?.();
    if (turn !== undefined) return turn.then(() => inTurns(steps, pause));
  }
}

/** A complete, valid request body in plaintext. */
export interface ParsedBody {
  /** For the target-model header; undefined where the endpoint names none. */
  readonly model: string | undefined;
  /** Whether the body asked for an event stream (`stream` is true). */
  readonly streaming: boolean;
  /** How many choices an honest response has: `n` for each prompt, or 1 if the API has no choices. */
  readonly choices: number;
  /**
   * The `response_format` of a transcription as it was sent, which decides the response's members; else
   * undefined.
   */
  readonly format: string | undefined;
  /** Which chunks of a stream the request asked to have their `usage`. */
  readonly usage: UsageWanted;
  /** The body itself, for the steps that follow. */
  readonly content: JsonContent | FormContent | { readonly kind: 'raw'; readonly bytes: Uint8Array };
}

/** What a request that says nothing asks for. */
export const NOTHING_ASKED = {
  streaming: false,
  choices: 1,
  format: undefined,
  usage: 'every',
} as const;

/** A member to be put into the body in place of the bytes from `start` to `end`. */
export interface MemberEdit {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  /** What goes before the value: nothing, or a comma, the name and a colon. */
  readonly prefix: string;
  /** JSON text of the value. */
  readonly value: Uint8Array;
}

/** The model to which a request for `model` goes instead; undefined if it goes to `model` itself. */
export type Rename = (model: string) => string | undefined;

/** A JSON object, and where its members stand in it. */
export interface JsonContent {
  readonly kind: 'json';
  readonly bytes: Buffer;
  readonly members: readonly Member[];
  /** The members that are not encrypted. */
  readonly plain: ReadonlySet<string>;
  /** What replaces the value of `model`; undefined: it stays. */
  readonly modelEdit?: MemberEdit | undefined;
  /** Whether the endpoint has a salt. */
  readonly salted: boolean;
}

/** A form, taken apart. */
export interface FormContent {
  readonly kind: 'form';
  readonly parts: FormParts;
  /** The value fields that are not encrypted. */
  readonly plain: ReadonlySet<string>;
}

/** The part of the endpoint table that says how to receive a body. */
type BodyRules = Pick<Endpoint, 'id' | 'codec' | 'requestPlain' | 'salted'>;

/**
 * Begins to take in a request body of that endpoint; returns undefined if the endpoint takes none. `rename`
 * replaces the model. Throws invalid_multipart if the endpoint takes a form and the content type is not one.
 */
export function createRequestBody(
  endpoint: BodyRules,
  contentType: string | undefined,
  rename?: Rename,
): RequestBody | undefined {
  switch (endpoint.codec) {
    case 'json':
      demandRules('json', endpoint.requestPlain);
      return collectedBody((body, pause) => inTurns(readJson(body, endpoint, contentType, rename), pause));
    case 'multipart': {
      demandRules('multipart', endpoint.requestPlain);
      const boundary = boundaryOf(contentType);
      return collectedBody((body) => readFields(readForm(body, boundary), endpoint, rename));
    }
    case 'raw':
      return collectedBody((bytes) => ({
        ...NOTHING_ASKED,
        model: undefined,
        content: { kind: 'raw', bytes },
      }));
    case 'none':
      return undefined;
  }
}

/** Collects a body, which `read` then reads. */
export function collectedBody<T>(
  read: (body: Buffer, pause: Pause | undefined) => T | Promise<T>,
): RequestBody<T> {
  const body = new CollectedBytes();
  return {
    feed: (chunk) => body.push(chunk),
    finish: (_hold, pause) => read(body.bytes(), pause),
    release: () => body.release(),
  };
}

/** Content types that are not JSON. Some clients send JSON under them, so it is accepted. */
const NO_JSON =
  /^(?:multipart\/form-data|text\/(?:plain|html|xml|csv)|application\/(?:x-www-form-urlencoded|octet-stream|xml))/i;

/** Scans the body. The message of an invalid_json names the content type if that is not JSON. */
function* scanned(body: Buffer, contentType: string | undefined): Generator<undefined, readonly Member[]> {
  try {
    return (yield* scanInTurns(body)).members;
  } catch (thrown) {
    const type = NO_JSON.exec(contentType ?? '')?.[0].toLowerCase();
    const isNoJson = thrown instanceof PrivatemodeError && thrown.code === 'invalid_json';
    if (type === undefined || !isNoJson) throw thrown;
    const message = `the body is ${type}, and this endpoint takes JSON (Content-Type: application/json)`;
    throw new PrivatemodeError('invalid_json', message);
  }
}

/**
 * Reads a JSON object. Throws invalid_json, duplicate_member, unsupported_member_name, missing_model,
 * invalid_model, invalid_plain_member, media_url_refused, hosted_tool_refused and body_too_large.
 */
function* readJson(
  bytes: Buffer,
  { id, requestPlain: plain, salted }: BodyRules,
  contentType: string | undefined,
  rename: Rename | undefined,
): Generator<undefined, ParsedBody> {
  const members = yield* scanned(bytes, contentType);
  const prompts = id === 'completions' ? yield* countPrompts(bytes, members) : 0;
  const asked = askedInJson(bytes, members, plain, prompts);
  // An endpoint with a salt may take messages, and the service inspects the media URLs in them.
  const messages = salted ? members.find(({ name }) => name === 'messages') : undefined;
  if (messages !== undefined) yield* checkMediaUrls(bytes, messages);
  const tools = id === 'messages' ? members.find(({ name }) => name === 'tools') : undefined;
  if (tools !== undefined) yield* checkHostedTools(bytes, tools);
  const model = rename?.(asked.model);
  const modelEdit = model === undefined ? undefined : valueEdit(members, 'model', model);
  const content = { kind: 'json', bytes, members, plain, modelEdit, salted } as const;
  return { ...asked, model: model ?? asked.model, format: undefined, content };
}

const WEB_SEARCH = 'web_search_';

/**
 * Throws hosted_tool_refused if a tool is Anthropic's web search. Anthropic's own service would search; the
 * model server behind this proxy has no such tool, and its error says only that a member is missing. Names do
 * not count, since clients may give such a name to a tool of their own.
 */
function* checkHostedTools(body: Buffer, tools: Member): Generator<undefined, void> {
  for (const tool of yield* parsedElements(body, tools, [`"${WEB_SEARCH}`])) {
    const type = (tool as { readonly type?: unknown } | null)?.type;
    if (typeof type !== 'string' || !type.startsWith(WEB_SEARCH)) continue;
    const shown = /^\d{8}$/.test(type.slice(WEB_SEARCH.length)) ? type : `${WEB_SEARCH}…`;
    throw new PrivatemodeError('hosted_tool_refused', `the service has no tool ${shown}: it searches no web`);
  }
}

/** The edit that gives the member `name` the value `text`; undefined if there is no such member. */
export function valueEdit(members: readonly Member[], name: string, text: string): MemberEdit | undefined {
  const present = members.find((member) => member.name === name);
  return present && { ...present, prefix: '', value: Buffer.from(JSON.stringify(text), 'utf8') };
}

/** The service can encrypt only JSON responses: json, verbose_json, and formats like them that may come. */
const JSON_FORMAT = /json$/;

/**
 * Reads a transcription form. Throws unsupported_response_format, missing_model, invalid_model and
 * invalid_plain_member.
 */
function readFields(parts: FormParts, { requestPlain: plain }: BodyRules, rename?: Rename): ParsedBody {
  const text = (name: string): string | null | undefined => {
    const bytes = parts.values.get(name);
    if (bytes === undefined) return undefined;
    return bytes.length > MAX_DECODED_BYTES ? null : Buffer.from(bytes).toString('utf8');
  };
  const format = text('response_format');
  if (format === null || (format && !JSON_FORMAT.test(format))) {
    throw new PrivatemodeError('unsupported_response_format', 'only JSON answers can be encrypted');
  }
  const asked = askedInForm(text);
  const model = rename?.(asked.model);
  if (model === undefined) return { ...asked, format, content: { kind: 'form', parts, plain } };
  const values = new Map(parts.values).set('model', Buffer.from(model));
  return { ...asked, model, format, content: { kind: 'form', parts: { ...parts, values }, plain } };
}

export type BodyReader<T = ParsedBody> = (
  bytes: Buffer,
  on: { readonly hold?: ((bytes: number) => void) | undefined; readonly pause?: Pause | undefined },
) => T | Promise<T>;
export function bodyReader(...of: Parameters<typeof createRequestBody>): BodyReader | undefined {
  const body = createRequestBody(...of);
  return (
    body &&
    ((bytes, { hold, pause }) => {
      body.feed(bytes);
      return body.finish(hold, pause);
    })
  );
}
