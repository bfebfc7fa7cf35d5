/** Refuses free text and ambiguous values in members sent in clear (docs/protocol/inference.md 5.4). */
import { modelNamed } from '../api/model-names.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Member, scanInTurns } from '../json/scan.ts';
import type { FormPart } from './form.ts';

/** Which chunks of a stream have `usage`. `last`: the closing chunk. `none`: the closing chunk is omitted. */
export type UsageWanted = 'every' | 'last' | 'none';

const MOST_BYTES = 4096; // a longer value is read as NaN, which no rule accepts
const TOKEN_IDS = /^\[[ \t\n\r]*[-0-9]/; // a list of token ids is one prompt
/** The words after "must be" in the error message, and a function that says whether a value fits them. */
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

/** A member's value. NaN stands for long values, lists, and objects with nested objects or repeated names. */
export function memberIn(body: Buffer, members: readonly Member[], wanted: string): unknown {
  const member = members.find(({ name }) => name === wanted);
  if (member === undefined) return undefined;
  const { start, end, kind, objectMembers } = member;
  if (end - start > MOST_BYTES) return Number.NaN;
  const value: unknown = JSON.parse(body.toString('utf8', start, end));
  const own = kind === 'object' ? Object.keys(value as object).length : 0;
  return kind !== 'array' && objectMembers === own ? value : Number.NaN;
}

/** The value of a form field: a text. A flag `true` or `false`, in any letter case, becomes a boolean. */
export function fieldIn(parts: readonly FormPart[], wanted: string): unknown {
  const part = parts.find(({ name, isFile }) => name === wanted && !isFile);
  if (part === undefined) return undefined;
  if (part.bytes.length > MOST_BYTES) return Number.NaN;
  const text = part.bytes.toString('utf8');
  const isFlag = RULES.get(wanted) === FLAG && /^(?:true|false)$/i.test(text);
  return isFlag ? text.toLowerCase() === 'true' : text;
}

/** How many prompts a completions request has, at least 1. The count is wrong only for refused requests. */
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

/** Reads the plain members. Throws what modelNamed throws, invalid_plain_member, and `internal`. */
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
  const choices = Number(values.get('n') ?? 0) || 1; // an `n` of 0 or null means 1
  return { model, streaming: values.get('stream') === true, choices, usage };
}
