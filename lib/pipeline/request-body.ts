/** Reads and checks the complete body of a request. Nothing of the body is sent before the check. */
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { inTurns, type Member, type Pause, scanInTurns } from '../json/scan.ts';
import type { Content, Value } from './encrypt-body.ts';
import { boundaryOf, type FormPart, formContent, readForm } from './form.ts';
import { checkElements, checkMediaUrls, LONGEST } from './media-urls.ts';
import { askedIn, countPrompts, fieldIn, memberIn, type UsageWanted } from './plain-values.ts';

/** Reads a body, or throws an error of status 400. The result refers to the body; `hold` reserves memory. */
export type BodyReader<T = ParsedBody> = (
  bytes: Buffer,
  on: { readonly hold?: (bytes: number) => void; readonly pause?: Pause },
) => T | Promise<T>;

export interface ParsedBody extends Content {
  readonly model: string | undefined; // undefined if the endpoint takes no model
  readonly streaming: boolean;
  readonly choices: number; // choices of an honest response: `n` for each prompt; 1 if the API has no `n`
  readonly format: string | undefined; // format of a transcription; decides which members the response has
  readonly usage: UsageWanted;
}

/** The defaults of a request: no stream, one choice, no format, and usage in every chunk. */
export const NOTHING_ASKED = { streaming: false, choices: 1, format: undefined, usage: 'every' } as const;

type BodyRules = Pick<Endpoint, 'id' | 'codec' | 'requestPlain' | 'salted'>;
type Rename = (model: string) => string | undefined; // returns the model that replaces `model`, if any

/** Makes the reader of an endpoint's bodies; undefined if it takes no body. Throws what boundaryOf throws. */
export function bodyReader(
  endpoint: BodyRules,
  contentType: string | undefined,
  rename: Rename = () => undefined,
): BodyReader | undefined {
  const { codec, requestPlain } = endpoint;
  if (codec === 'none') return undefined;
  if (codec === 'json') return (bytes, { pause }) => inTurns(readJson(bytes, endpoint, rename), pause);
  if (codec === 'raw') return readRaw;
  const boundary = boundaryOf(contentType);
  return (bytes) => readFields(readForm(bytes, boundary), requestPlain, rename);
}

/** Makes one message of a raw body, even of an empty one (docs/protocol/inference.md 6.4). */
function readRaw(bytes: Buffer): ParsedBody {
  const end = bytes.subarray(0, 0);
  const values = [{ name: '', before: end, bytes, isPlain: false }];
  return { ...NOTHING_ASKED, model: undefined, values, end, salted: false };
}

/** Reads a JSON body. Throws media_url_refused, hosted_tool_refused, what scanInTurns and askedIn throw. */
function* readJson(body: Buffer, rules: BodyRules, rename: Rename): Generator<undefined, ParsedBody> {
  const { id, requestPlain: plain, salted } = rules;
  const { members } = yield* scanInTurns(body);
  const prompts = id === 'completions' ? yield* countPrompts(body, members) : 1;
  const asked = askedIn((name) => memberIn(body, members, name), plain);
  const model = rename(asked.model);
  const values: Value[] = [];
  let at = 0;
  for (const member of members) {
    const { name, start, end } = member;
    // Only endpoints that take a cache salt take messages, whose media URLs the service inspects.
    if (salted && name === 'messages') yield* checkElements(body, member, mayHoldUrl, checkMediaUrls);
    if (id === 'messages' && name === 'tools') yield* checkElements(body, member, mayBeHosted, checkTool);
    const isRenamed = name === 'model' && model !== undefined;
    const bytes = isRenamed ? Buffer.from(JSON.stringify(model)) : body.subarray(start, end);
    values.push({ name, before: body.subarray(at, start), bytes, isPlain: plain.has(name) });
    at = end;
  }
  const choices = asked.choices * prompts;
  const end = body.subarray(at);
  return { ...asked, model: model ?? asked.model, choices, format: undefined, values, end, salted };
}

const mayHoldUrl = (member: Member): boolean => member.mayHoldUrl;
const mayBeHosted = (_: Member, bytes: Buffer): boolean =>
  // `\u00` begins the escape of a letter. Longer bytes are refused, or searched element by element.
  bytes.length > LONGEST || bytes.includes('web_search_') || bytes.includes('\\u00');

/** Refuses web search, which the service lacks: the service would report only that a member is missing. */
function checkTool(tool: unknown): void {
  const type = (tool as { readonly type?: unknown } | null)?.type;
  if (typeof type === 'string' && type.startsWith('web_search_')) {
    throw new PrivatemodeError('hosted_tool_refused', 'no web_search tool: the service searches no web');
  }
}

/** Reads a transcription form. Throws unsupported_response_format, and what askedIn throws. */
function readFields(parts: readonly FormPart[], plain: ReadonlySet<string>, rename: Rename): ParsedBody {
  const format = fieldIn(parts, 'response_format');
  // The service can encrypt JSON responses only. Any format whose name ends in `json` passes, even a new one.
  if (format !== undefined && !/(?:json|^)$/.test(String(format))) {
    throw new PrivatemodeError('unsupported_response_format', 'only JSON answers can be encrypted');
  }
  const asked = askedIn((name) => fieldIn(parts, name), plain);
  const model = rename(asked.model) ?? asked.model;
  const isModel = ({ name, isFile }: FormPart) => name === 'model' && !isFile;
  const sent = parts.map((part) => (isModel(part) ? { ...part, bytes: Buffer.from(model) } : part));
  return { ...asked, model, format: format as string | undefined, ...formContent(sent, plain) };
}
