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

/** Most bytes of a plain value, or of a form field that is read here. No accepted value is longer. */
export const MAX_DECODED_BYTES = 4096;

const STREAM_OPTIONS = ['include_usage', 'continuous_usage_stats', 'include_obfuscation'];

/** The end of a message "… must be …", and whether a value, whose JSON text comes along, is as it says. */
type PlainRule = readonly [accepted: string, holds: (value: unknown, text: string) => boolean];

/** `2.0` and `1e3` are integers. */
const COUNT: PlainRule = [
  'an integer from 0, a string of at most 10 digits, or null',
  (value) =>
    typeof value === 'string'
      ? /^[0-9]{1,10}$/.test(value)
      : value === null || (Number.isSafeInteger(value) && (value as number) >= 0),
];

/** The text of an object of flags has one colon per flag: a repeated name would add another. */
const OPTIONS: PlainRule = [
  `null, or an object of ${STREAM_OPTIONS.join(', ')}, each at most once and true or false`,
  (value, text) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value === null;
    const options = Object.entries(value);
    const areKnown = options.every(
      ([name, flag]) => STREAM_OPTIONS.includes(name) && typeof flag === 'boolean',
    );
    return areKnown && text.split(':').length - 1 === options.length;
  },
];

/** The rule of each plain member but `model`, which modelNamed checks because it leaves as a header too. */
const RULES: ReadonlyMap<string, PlainRule> = new Map([
  ['n', COUNT],
  ['max_tokens', COUNT],
  ['max_completion_tokens', COUNT],
  ['stream', ['true, false or null', (value) => value === null || typeof value === 'boolean']],
  ['stream_options', OPTIONS],
]);

/** The flags of a form. */
const FORM_FLAGS = ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'] as const;

/** Throws `internal` if a member of `plain` may leave unencrypted, but no rule says what it may hold. */
function demandRules(plain: ReadonlySet<string>, ruled: readonly string[]): void {
  for (const name of plain) {
    if (name !== 'model' && !ruled.includes(name)) {
      throw new PrivatemodeError('internal', `no rule says what the plain member "${name}" may hold`);
    }
  }
}

const refused = (name: string, accepted: string): PrivatemodeError =>
  new PrivatemodeError('invalid_plain_member', `"${name}" must be ${accepted}`);

const MODEL_BYTES = 256;

/**
 * Returns the model name, which leaves as a header. Throws missing_model if it is absent, empty or blank.
 * Throws invalid_model if it is not a string, is longer than 256 bytes of UTF-8, holds control characters or
 * lone surrogates, or has blanks around it: a parser of headers drops them, and reads another name than the
 * body has. C1 controls pass: their bytes in UTF-8, C2 80 to C2 9F, are header characters.
 */
function modelNamed(model: unknown): string {
  if (model === undefined || (typeof model === 'string' && /^[ \t]*$/.test(model))) {
    throw new PrivatemodeError('missing_model', 'no model is named in the request');
  }
  const isName = typeof model === 'string' && model.isWellFormed() && !/^ | $|[\x00-\x1f\x7f]/.test(model);
  if (isName && Buffer.byteLength(model) <= MODEL_BYTES) return model;
  const message = 'the model is no short string, or holds control characters, or has blanks around it';
  throw new PrivatemodeError('invalid_model', message);
}

/** The model that a JSON object names. Throws missing_model and invalid_model. */
export function modelIn(body: Buffer, members: readonly Member[]): string {
  const member = members.find(({ name }) => name === 'model');
  if (member === undefined) return modelNamed(undefined);
  return modelNamed(decoded(body, member).value ?? null);
}

/** Text and value of a member; none if it is longer than MAX_DECODED_BYTES. */
function decoded(body: Buffer, { start, end }: Member): { readonly text: string; readonly value: unknown } {
  const text = end - start > MAX_DECODED_BYTES ? '' : body.toString('utf8', start, end);
  return { text, value: text === '' ? undefined : JSON.parse(text) };
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
    const isList =
      kind === 'array' && !TOKEN_IDS.test(body.toString('latin1', start, Math.min(end, start + 64)));
    if (isList) prompts += (yield* scanInTurns(body.subarray(start, end), { array: true })).members.length;
    else if (kind === 'array' || kind === 'string') prompts += 1;
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
  demandRules(plain, [...RULES.keys()]);
  const model = modelIn(body, members);
  const values = new Map<string, unknown>();
  for (const member of members) {
    const rule = plain.has(member.name) ? RULES.get(member.name) : undefined;
    if (rule === undefined) continue;
    const [accepted, holds] = rule;
    const { text, value } = decoded(body, member);
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
export function askedInForm(plain: ReadonlySet<string>, text: (name: string) => string | null | undefined) {
  demandRules(plain, FORM_FLAGS);
  const model = modelNamed(text('model'));
  const flag = (name: (typeof FORM_FLAGS)[number]): boolean => {
    const value = text(name);
    if (value !== undefined && !/^(?:true|false)$/i.test(value ?? '')) throw refused(name, 'true or false');
    return value?.toLowerCase() === 'true';
  };
  const streaming = flag('stream');
  const usage = usageWanted(flag('stream_include_usage'), flag('stream_continuous_usage_stats'));
  return { model, streaming, choices: 1, usage };
}
