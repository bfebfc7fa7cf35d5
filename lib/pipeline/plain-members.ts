/** Which values may leave in clear: no text, and none with two readings (docs/protocol/inference.md 5.4). */
import { PrivatemodeError } from '../errors.ts';
import { type Member, scanInTurns } from '../json/scan.ts';
import type { FormPart } from './form.ts';

/** Which chunks of a stream have `usage`. `last`: the closing one alone, which is left out if it has none. */
export type UsageWanted = 'every' | 'last' | 'none';

const MOST_BYTES = 4096; // a longer value is read as NaN, which no rule accepts
const TOKEN_IDS = /^\[[ \t\n\r]*[-0-9]/; // a list of them is one prompt
/** The end of a message "… must be …", and whether a value is as it says. */
type Rule = readonly [accepted: string, holds: (value: unknown) => boolean];
const COUNT: Rule = [
  'an integer from 0, a string of at most 10 digits, or null',
  (value) =>
    typeof value === 'string'
      ? /^[0-9]{1,10}$/.test(value)
      : value === null || (Number.isSafeInteger(value) && Number(value) >= 0),
];
const FLAG: Rule = ['true, false or null', (value) => value === null || typeof value === 'boolean'];
const NAMES = ['include_usage', 'continuous_usage_stats', 'include_obfuscation'];
const OPTIONS: Rule = [
  `null, or an object of ${NAMES.join(', ')}, each at most once and true, false or null`,
  (value) =>
    typeof value === 'object' &&
    Object.entries(value ?? {}).every(([name, flag]) => NAMES.includes(name) && FLAG[1](flag)),
];

const RULES: ReadonlyMap<string, Rule> = new Map([
  ['n', COUNT],
  ['max_tokens', COUNT],
  ['max_completion_tokens', COUNT],
  ['stream', FLAG],
  ['stream_options', OPTIONS],
  ['stream_include_usage', FLAG],
  ['stream_continuous_usage_stats', FLAG],
]);

/**
 * The model name, which leaves as a header: its parser drops blanks around it, and accepts the bytes of C1
 * controls. Throws missing_model and invalid_model.
 */
export function modelNamed(model: unknown): string {
  if (model === undefined || (typeof model === 'string' && /^[ \t]*$/.test(model))) {
    throw new PrivatemodeError('missing_model', 'no model is named in the request');
  }
  const isName = typeof model === 'string' && model.isWellFormed() && !/^ | $|[\x00-\x1f\x7f]/.test(model);
  if (isName && Buffer.byteLength(model) <= 256) return model;
  const message = 'the model is no short string, or holds control characters, or has blanks around it';
  throw new PrivatemodeError('invalid_model', message);
}

/** The value of a member; NaN for a list, and for an object with a repeated name, or an object in it. */
export function memberIn(body: Buffer, members: readonly Member[], wanted: string): unknown {
  const member = members.find(({ name }) => name === wanted);
  if (member === undefined) return undefined;
  const { start, end, kind, objectMembers } = member;
  if (end - start > MOST_BYTES) return Number.NaN;
  const value: unknown = JSON.parse(body.toString('utf8', start, end));
  const own = kind === 'object' ? Object.keys(value as object).length : 0;
  return kind !== 'array' && objectMembers === own ? value : Number.NaN;
}

/** The value of a field of a form: a text, or a flag, which is `true` or `false` in any letter case. */
export function fieldIn(parts: readonly FormPart[], wanted: string): unknown {
  const part = parts.find(({ name, isFile }) => name === wanted && !isFile);
  if (part === undefined) return undefined;
  if (part.bytes.length > MOST_BYTES) return Number.NaN;
  const text = part.bytes.toString('utf8');
  const isFlag = RULES.get(wanted) === FLAG && /^(?:true|false)$/i.test(text);
  return isFlag ? text.toLowerCase() === 'true' : text;
}

/** How many prompts a completions request has; 1 if it has none. What the service refuses gets some count. */
export function* countPrompts(body: Buffer, members: readonly Member[]): Generator<undefined, number> {
  let prompts = 0;
  for (const { name, kind, start, end } of members) {
    if (name !== 'prompt' && name !== 'prompt_embeds') continue;
    const isList = kind === 'array' && !TOKEN_IDS.test(body.toString('latin1', start, start + 64));
    if (isList) prompts += (yield* scanInTurns(body.subarray(start, end), { array: true })).members.length;
    else if (kind === 'array' || kind === 'string') prompts += 1;
  }
  return prompts || 1;
}

/** What the members of `plain` ask for. Throws as modelNamed does, invalid_plain_member, and `internal`. */
export function askedIn(read: (name: string) => unknown, plain: ReadonlySet<string>) {
  const model = modelNamed(read('model'));
  const values = new Map<string, unknown>();
  for (const name of plain) {
    if (name === 'model') continue;
    const [accepted, holds] = RULES.get(name) ?? [];
    if (holds === undefined) throw new PrivatemodeError('internal', `no rule for the plain member "${name}"`);
    const value = read(name);
    if (value !== undefined && !holds(value)) {
      throw new PrivatemodeError('invalid_plain_member', `"${name}" must be ${accepted}`);
    }
    values.set(name, value);
  }
  const options = (values.get('stream_options') ?? {}) as Readonly<Record<string, unknown>>;
  const isSet = (name: string): boolean => options[name] === true || values.get(`stream_${name}`) === true;
  let usage: UsageWanted = 'every';
  if (values.has('stream_options') || values.has('stream_include_usage')) {
    if (!isSet('include_usage')) usage = 'none';
    else if (!isSet('continuous_usage_stats')) usage = 'last';
  }
  const choices = Number(values.get('n') ?? 0) || 1; // 0 and null mean 1
  return { model, streaming: values.get('stream') === true, choices, usage };
}
