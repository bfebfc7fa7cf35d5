/**
 * Which values the unencrypted members of a request may hold, and what they say about the response. Any other
 * value is refused here: text of a client would travel in clear, and a value that the service reads in
 * another way than this proxy leads to a wrong response (docs/protocol/inference.md 5.4).
 */
import { PrivatemodeError } from '../errors.ts';
import { type Member, scanInTurns } from '../json/scan.ts';

/**
 * Which chunks of a stream have `usage`. `last`: only the closing chunk, which has no choices. `none`: no
 * chunk. The closing chunk is then left out, because it says nothing else.
 */
export type UsageWanted = 'every' | 'last' | 'none';

/**
 * Most bytes of a plain value, or of a form field that is read here, that are decoded. No accepted value is
 * longer.
 */
export const MAX_DECODED_BYTES = 4096;

/** An integer from 0 (`2.0` and `1e3` are integers), a string of 1 to 10 digits, or null. */
function isCount(value: unknown): boolean {
  if (typeof value === 'string') return /^[0-9]{1,10}$/.test(value);
  return value === null || (Number.isSafeInteger(value) && (value as number) >= 0);
}

const STREAM_OPTIONS = ['include_usage', 'continuous_usage_stats', 'include_obfuscation'];

/**
 * Whether the value is null, or an object that holds only flags with known names, each once. Its text then
 * has one colon per flag; a repeated name would add another.
 */
function areStreamOptions(value: unknown, text: string): boolean {
  if (value === null) return true;
  if (typeof value !== 'object' || Array.isArray(value)) return false;
  const options = Object.entries(value);
  return (
    options.every(([name, flag]) => STREAM_OPTIONS.includes(name) && typeof flag === 'boolean') &&
    text.split(':').length - 1 === options.length
  );
}

/** The end of a message "… must be …", and whether a value, whose JSON text comes along, is as it says. */
type PlainRule = readonly [accepted: string, holds: (value: unknown, text: string) => boolean];

const COUNT: PlainRule = ['an integer from 0, a string of at most 10 digits, or null', isCount];

/**
 * The rule of each plain member. `model` is not here: checkModelName checks it, because it leaves as a header
 * too.
 */
const RULES: ReadonlyMap<string, PlainRule> = new Map([
  ['n', COUNT],
  ['max_tokens', COUNT],
  ['max_completion_tokens', COUNT],
  ['stream', ['true, false or null', (value: unknown) => value === null || typeof value === 'boolean']],
  [
    'stream_options',
    [
      `null, or an object of ${STREAM_OPTIONS.join(', ')}, each at most once and true or false`,
      areStreamOptions,
    ],
  ],
]);

/** The flags of a form. checkModelName checks `model` here too. */
const FORM_FLAGS = ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'] as const;

const JUDGED = { json: ['model', ...RULES.keys()], multipart: ['model', ...FORM_FLAGS] };

/**
 * Throws `internal` if a member of `plain` has no rule here: it may leave unencrypted, but nothing says what
 * it may hold.
 */
export function demandRules(codec: keyof typeof JUDGED, plain: ReadonlySet<string>): void {
  for (const name of plain) {
    if (!JUDGED[codec].includes(name)) {
      throw new PrivatemodeError('internal', `no rule says what the plain member "${name}" may hold`);
    }
  }
}

const refused = (name: string, accepted: string): PrivatemodeError =>
  new PrivatemodeError('invalid_plain_member', `"${name}" must be ${accepted}`);

const textOf = (body: Buffer, { start, end }: Member): string => body.toString('utf8', start, end);

const MODEL_BYTES = 256;
/** Bytes of JSON text: no model name is longer, even with every byte escaped (256 times `\u0041`). */
const MODEL_TEXT_BYTES = 2048;

/**
 * Returns the model name, which leaves as a header. Throws missing_model if it is absent, empty or blank.
 * Throws invalid_model if it is not a string, is longer than 256 bytes of UTF-8, holds control characters or
 * lone surrogates, or has blanks around it: a parser of headers drops them, and reads another name than the
 * body has.
 */
function checkModelName(model: unknown): string {
  if (model === undefined || (typeof model === 'string' && /^[ \t]*$/.test(model))) {
    throw new PrivatemodeError('missing_model', 'no model is named in the request');
  }
  if (typeof model !== 'string')
    throw new PrivatemodeError('invalid_model', 'the model is not a short string');
  // C1 controls are not header characters either. They pass, because they travel as the UTF-8 bytes C2 80 to
  // C2 9F, which are.
  if (
    /^ | $|[\x00-\x1f\x7f]/.test(model) ||
    !model.isWellFormed() ||
    Buffer.byteLength(model) > MODEL_BYTES
  ) {
    const message = 'the model name is too long, holds control characters, or has blanks around it';
    throw new PrivatemodeError('invalid_model', message);
  }
  return model;
}

/**
 * The model name of a JSON object, checked by checkModelName. A text that is far too long is not decoded but
 * refused.
 */
export function modelIn(body: Buffer, members: readonly Member[]): string {
  const member = members.find(({ name }) => name === 'model');
  if (member === undefined) return checkModelName(undefined);
  const isShort = member.kind === 'string' && member.end - member.start <= MODEL_TEXT_BYTES;
  return checkModelName(isShort ? JSON.parse(textOf(body, member)) : null);
}

/** Behind the bracket of a list of token ids, which is one prompt. */
const TOKEN_IDS = /^\[[ \t\n\r]*[-0-9]/;

/**
 * Counts the prompts of a completions request, each of which gets `n` choices. A string is one prompt, and so
 * is an array of token ids; any other array has as many prompts as elements. Arrays that mix kinds, and
 * values of other kinds, get some count. It does not matter, because the service refuses them. Yields and
 * throws as the scan does.
 */
export function* countPrompts(body: Buffer, members: readonly Member[]): Generator<undefined, number> {
  let prompts = 0;
  for (const { name, kind, start, end } of members) {
    if (name !== 'prompt' && name !== 'prompt_embeds') continue;
    const isIds = TOKEN_IDS.test(body.toString('latin1', start, Math.min(end, start + 64)));
    if (kind === 'string' || (kind === 'array' && isIds)) prompts += 1;
    else if (kind === 'array') {
      const { members: elements } = yield* scanInTurns(body.subarray(start, end), { array: true });
      prompts += elements.length;
    }
  }
  return prompts;
}

/** Which chunks have their usage. The flag for continuous usage has no effect alone. */
const usageWanted = (included: boolean, continuous: boolean): UsageWanted =>
  included ? (continuous ? 'every' : 'last') : 'none';

/**
 * What the plain members of a JSON body ask for. `prompts`: how many prompts it has. Throws missing_model and
 * invalid_model, and invalid_plain_member if the value of a member of `plain` breaks its rule.
 */
export function askedInJson(
  body: Buffer,
  members: readonly Member[],
  plain: ReadonlySet<string>,
  prompts: number,
) {
  const model = modelIn(body, members);
  const values = new Map<string, unknown>();
  for (const member of members) {
    const rule = plain.has(member.name) ? RULES.get(member.name) : undefined;
    if (rule === undefined) continue;
    const [accepted, holds] = rule;
    const text = member.end - member.start <= MAX_DECODED_BYTES ? textOf(body, member) : '';
    const value: unknown = text === '' ? undefined : JSON.parse(text);
    if (!holds(value, text)) throw refused(member.name, accepted);
    values.set(member.name, value);
  }
  // `n` of 0 or null means 1, and a body without a prompt counts as one prompt.
  const perPrompt = Number(values.get('n') ?? 0) || 1;
  const options = (values.get('stream_options') ?? {}) as Readonly<Record<string, boolean>>;
  return {
    model,
    streaming: members.some(({ name, kind }) => name === 'stream' && kind === 'true'),
    choices: perPrompt * (prompts || 1),
    usage: plain.has('stream_options')
      ? usageWanted(options['include_usage'] === true, options['continuous_usage_stats'] === true)
      : 'every',
  } as const;
}

/**
 * What a transcription form asks for. `text` returns a field as text: null if it is longer than
 * MAX_DECODED_BYTES, undefined if it is absent. Throws missing_model and invalid_model, and
 * invalid_plain_member if a flag is neither `true` nor `false`, in any letter case. By the text of these
 * flags the server decides whether it sends the closing chunk, so each text must have one meaning only.
 */
export function askedInForm(text: (name: string) => string | null | undefined) {
  const model = checkModelName(text('model'));
  const flag = (name: (typeof FORM_FLAGS)[number]): boolean => {
    const value = text(name);
    if (value !== undefined && !/^(?:true|false)$/i.test(value ?? '')) throw refused(name, 'true or false');
    return value?.toLowerCase() === 'true';
  };
  const streaming = flag('stream');
  const usage = usageWanted(flag('stream_include_usage'), flag('stream_continuous_usage_stats'));
  return { model, streaming, choices: 1, usage };
}
