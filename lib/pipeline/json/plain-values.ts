/**
 * What the members may hold that leave unencrypted. Anything else is refused here: text of a client would travel in clear,
 * and a value that the service reads in another way than this proxy ends as a wrong response (inference.md 5.4).
 */
import { PrivatemodeError } from '../../errors.ts';
import type { UsageWanted } from '../request-body.ts';
import type { ByteChain } from './byte-chain.ts';
import { createJsonIndex, type JsonKind, type JsonMember } from './json-index.ts';

/** Bytes beyond which a plain value, or a form field that is read here, is not decoded: nothing accepted is longer. */
export const MAX_DECODED_BYTES = 4096;

/**
 * The number of an integer from 0 (`2.0` and `1e3` are integers), or of a string of 1 to 10 digits; 0 for null. Undefined
 * where it is none of them. `text` is JSON of that kind.
 */
function countIn(kind: JsonKind, text: string): number | undefined {
  if (kind === 'null') return 0;
  if (kind === 'string') {
    const digits = JSON.parse(text) as string;
    return /^[0-9]{1,10}$/.test(digits) ? Number(digits) : undefined;
  }
  if (kind !== 'number') return undefined;
  const value = Number(text);
  return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

const isFlag = (kind: JsonKind): boolean => kind === 'true' || kind === 'false';

const STREAM_OPTIONS: ReadonlySet<string> = new Set([
  'include_usage',
  'continuous_usage_stats',
  'include_obfuscation',
]);

/** Whether the object holds flags of known names alone, each once. */
function areStreamOptions(text: string): boolean {
  const index = createJsonIndex();
  try {
    index.feed(Buffer.from(text));
    return index.finish().every(({ name, kind }) => STREAM_OPTIONS.has(name) && isFlag(kind));
  } catch {
    return false; // a repeated name, or one that the service cannot address
  }
}

interface PlainRule {
  /** Completes "must be". */
  readonly accepted: string;
  readonly holds: (kind: JsonKind, text: string) => boolean;
}

const COUNT: PlainRule = {
  accepted: 'an integer from 0, a string of at most 10 digits, or null',
  holds: (kind, text) => countIn(kind, text) !== undefined,
};

/** By member. `model` is not here: checkModelName judges it, because it leaves as a header too. */
const RULES: ReadonlyMap<string, PlainRule> = new Map([
  ['n', COUNT],
  ['max_tokens', COUNT],
  ['max_completion_tokens', COUNT],
  ['stream', { accepted: 'true, false or null', holds: (kind) => isFlag(kind) || kind === 'null' }],
  [
    'stream_options',
    {
      accepted: `null, or an object of ${[...STREAM_OPTIONS].join(', ')}, each at most once and true or false`,
      holds: (kind, text) => kind === 'null' || (kind === 'object' && areStreamOptions(text)),
    },
  ],
]);

const refused = (name: string, accepted: string): PrivatemodeError =>
  new PrivatemodeError('invalid_plain_member', `"${name}" must be ${accepted}`);

/** Throws invalid_plain_member where a member of `plain` holds what its rule does not accept. */
export function checkPlainValues(
  chain: ByteChain,
  members: readonly JsonMember[],
  plain: ReadonlySet<string>,
): void {
  for (const { name, kind, start, end } of members) {
    const rule = plain.has(name) ? RULES.get(name) : undefined;
    if (rule === undefined) continue;
    if (end - start > MAX_DECODED_BYTES || !rule.holds(kind, chain.bytes(start, end).toString('utf8'))) {
      throw refused(name, rule.accepted);
    }
  }
}

/** How many choices a prompt gets, from an `n` that checkPlainValues has accepted: 0, null and none are 1. */
export const choicesPerPrompt = (chain: ByteChain, n: JsonMember | undefined): number =>
  (n && countIn(n.kind, chain.bytes(n.start, n.end).toString('latin1'))) || 1;

/** Which chunks have their usage: continuous usage alone means nothing. */
const usageWanted = (included: boolean, continuous: boolean): UsageWanted => {
  if (!included) return 'none';
  return continuous ? 'every' : 'last';
};

/** The usage that `stream_options`, accepted by checkPlainValues, ask for. */
export function usageInOptions(chain: ByteChain, options: JsonMember | undefined): UsageWanted {
  if (options?.kind !== 'object') return 'none';
  const text = chain.bytes(options.start, options.end).toString('utf8');
  const values = JSON.parse(text) as Readonly<Record<string, boolean>>;
  return usageWanted(values['include_usage'] === true, values['continuous_usage_stats'] === true);
}

/** The usage that the fields of a form, accepted by checkFormFlags, ask for. */
export function usageInForm(text: (name: string) => string | null | undefined): UsageWanted {
  const isTrue = (name: string): boolean => /^true$/i.test(text(name) ?? '');
  return usageWanted(isTrue('stream_include_usage'), isTrue('stream_continuous_usage_stats'));
}

/** Plain fields of a form: by their text the server decides on the closing chunk, so it must read as one thing only. */
const FORM_FLAGS = ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'] as const;

/**
 * Throws invalid_plain_member where a flag of a transcription form is neither `true` nor `false`, in any letter case. `text`
 * gives a field as text, null where it is too long, undefined where it is absent.
 */
export function checkFormFlags(text: (name: string) => string | null | undefined): void {
  for (const name of FORM_FLAGS) {
    const value = text(name);
    if (value !== undefined && !/^(?:true|false)$/i.test(value ?? '')) throw refused(name, 'true or false');
  }
}
