/**
 * Reads the body of a request once it is complete, and checks it: nothing of it can leave before. The next
 * stages are inject-salt.ts and encrypt-body.ts.
 */
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Member, scanInTurns } from '../json/scan.ts';
import type { Content, Value } from './encrypt-body.ts';
import { boundaryOf, type FormParts, formContent, readForm } from './form.ts';
import { checkElements, checkMediaUrls } from './media-urls.ts';
import {
  askedInForm,
  askedInJson,
  countPrompts,
  MAX_DECODED_BYTES,
  type UsageWanted,
} from './plain-members.ts';

export type { UsageWanted };

/**
 * Called between the parts of long work: undefined if the work may go on, else a promise that resolves when
 * others have had their turn.
 */
export type Pause = () => Promise<void> | undefined;

/**
 * Reads a complete body, and throws, or rejects with, a typed 400. What it returns has views of `bytes`.
 * `hold` reserves memory for what is kept beside the body, or throws.
 */
export type BodyReader<T = ParsedBody> = (
  bytes: Buffer,
  on: { readonly hold?: (bytes: number) => void; readonly pause?: Pause },
) => T | Promise<T>;

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
  /** The `response_format` of a transcription, which decides the response's members; else undefined. */
  readonly format: string | undefined;
  /** Which chunks of a stream the request asked to have their `usage`. */
  readonly usage: UsageWanted;
  /** The body itself, for the steps that follow. */
  readonly content: Content;
}

/** What a request that says nothing asks for. */
export const NOTHING_ASKED = {
  streaming: false,
  choices: 1,
  format: undefined,
  usage: 'every',
} as const;

/** The model to which a request for `model` goes instead; undefined: to `model` itself. */
export type Rename = (model: string) => string | undefined;

/** The part of the endpoint table that says how to read a body. */
type BodyRules = Pick<Endpoint, 'id' | 'codec' | 'requestPlain' | 'salted'>;

const NOTHING = new Uint8Array(0);

/**
 * Makes what reads the bodies of that endpoint; returns undefined if the endpoint takes none. `rename`
 * replaces the model. Throws invalid_multipart if the endpoint takes a form and the content type is not one.
 */
export function bodyReader(
  endpoint: BodyRules,
  contentType: string | undefined,
  rename?: Rename,
): BodyReader | undefined {
  switch (endpoint.codec) {
    case 'json':
      return (bytes, { pause }) => inTurns(readJson(bytes, endpoint, contentType, rename), pause);
    case 'multipart': {
      const boundary = boundaryOf(contentType);
      return (bytes) => readFields(readForm(bytes, boundary), endpoint, rename);
    }
    case 'raw': // one message, also where the body is empty (docs/protocol/inference.md 6.4)
      return (bytes) => {
        const values = [{ name: '', before: NOTHING, bytes, isPlain: false }];
        const content = { values, end: NOTHING, byName: false, salted: false };
        return { ...NOTHING_ASKED, model: undefined, content };
      };
    case 'none':
      return undefined;
  }
}

/** A content type that is not JSON. Some clients send JSON under one, so it is accepted. */
const NO_JSON = /^(?!application\/json)[\w.+-]{1,40}\/[\w.+-]{1,80}/i;

/** Scans the body. The message of an invalid_json names the content type if that is not JSON. */
function* scanned(body: Buffer, contentType = ''): Generator<undefined, readonly Member[]> {
  try {
    return (yield* scanInTurns(body)).members;
  } catch (thrown) {
    const [type] = NO_JSON.exec(contentType) ?? [];
    if (type === undefined || (thrown as PrivatemodeError).code !== 'invalid_json') throw thrown;
    const message = `the body is ${type.toLowerCase()}, and this endpoint takes JSON (Content-Type: application/json)`;
    throw new PrivatemodeError('invalid_json', message);
  }
}

/**
 * Reads a JSON object. Throws invalid_json, duplicate_member, unsupported_member_name, missing_model,
 * invalid_model, invalid_plain_member, media_url_refused, hosted_tool_refused and body_too_large.
 */
function* readJson(
  body: Buffer,
  { id, requestPlain: plain, salted }: BodyRules,
  contentType: string | undefined,
  rename: Rename | undefined,
): Generator<undefined, ParsedBody> {
  const members = yield* scanned(body, contentType);
  const prompts = id === 'completions' ? yield* countPrompts(body, members) : 0;
  const asked = askedInJson(body, members, plain, prompts);
  // An endpoint with a salt may take messages, and the service inspects the media URLs in them.
  const messages = salted ? members.find(({ name }) => name === 'messages') : undefined;
  if (messages !== undefined) yield* checkMediaUrls(body, messages);
  const tools = id === 'messages' ? members.find(({ name }) => name === 'tools') : undefined;
  if (tools !== undefined) yield* checkElements(body, tools, [`"${WEB_SEARCH}`], checkHostedTool);
  const model = rename?.(asked.model);
  let at = 0;
  const values = members.map(({ name, start, end }): Value => {
    const before = body.subarray(at, start);
    at = end;
    const isRenamed = name === 'model' && model !== undefined;
    const bytes = isRenamed ? Buffer.from(JSON.stringify(model)) : body.subarray(start, end);
    return { name, before, bytes, isPlain: plain.has(name) };
  });
  const content = { values, end: body.subarray(at), byName: true, salted };
  return { ...asked, model: model ?? asked.model, format: undefined, content };
}

const WEB_SEARCH = 'web_search_';

/**
 * Throws hosted_tool_refused if the tool is Anthropic's web search. Anthropic's own service would search; the
 * model server behind this proxy has no such tool, and its error says only that a member is missing. Names do
 * not count, since clients may give such a name to a tool of their own.
 */
function checkHostedTool(tool: unknown): void {
  const type = (tool as { readonly type?: unknown } | null)?.type;
  if (typeof type !== 'string' || !type.startsWith(WEB_SEARCH)) return;
  const shown = /^\d{8}$/.test(type.slice(WEB_SEARCH.length)) ? type : `${WEB_SEARCH}…`;
  throw new PrivatemodeError('hosted_tool_refused', `the service has no tool ${shown}: it searches no web`);
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
    return bytes.length > MAX_DECODED_BYTES ? null : bytes.toString('utf8');
  };
  const format = text('response_format');
  if (format === null || (format && !JSON_FORMAT.test(format))) {
    throw new PrivatemodeError('unsupported_response_format', 'only JSON answers can be encrypted');
  }
  const asked = askedInForm(plain, text);
  const model = rename?.(asked.model) ?? asked.model;
  const values = new Map(parts.values).set('model', Buffer.from(model));
  return { ...asked, model, format, content: formContent({ ...parts, values }, plain) };
}
