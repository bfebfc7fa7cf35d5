/** Reads options by their rules (option-rules.ts), each value once, and refuses what no rule takes. */
import type { ClientOptions as AnthropicOptions } from '@anthropic-ai/sdk';
import type { ClientOptions } from 'openai';
import type { PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import {
  ANTHROPIC,
  CREDENTIALS,
  FETCH,
  INSIDE,
  isRefusal,
  MEMBERS,
  ONE_KEY,
  PINS,
  PRIVATEMODE_AI,
  type Rule,
  type Rules,
} from './option-rules.ts';
import { invalid, manifestBytes, type PrivatemodeOptions } from './options.ts';

interface Divided {
  readonly own: PrivatemodeOptions;
  readonly sdk: ClientOptions;
}

/** The options of createPrivatemodeFetch, each read once. Throws config_invalid. */
export const ownOptions = (options: unknown): PrivatemodeOptions =>
  divide(options, 'createPrivatemodeFetch', FETCH).own;

/** The options of PrivatemodeAI, each read once, by whose they are. Throws config_invalid. */
export const divideOptions = (options: unknown): Divided => divide(options, 'PrivatemodeAI', PRIVATEMODE_AI);

/** The options of anthropic(), each read once. Throws config_invalid. */
export const anthropicOptions = (options: unknown): AnthropicOptions =>
  divide(options, 'anthropic()', ANTHROPIC).sdk as AnthropicOptions;

function divide(options: unknown, what: string, rules: Rules): Divided {
  // Older ones install with a warning, and would fail later with the name of a function.
  if (Promise.withResolvers === undefined)
    throw invalid('this runtime is too old for privatemode-ai, which needs Node 22 or a browser of 2024');
  const taken = { own: new Map<string, Given>(), sdk: new Map<string, Given>() };
  take(options, what, rules, taken);
  const [own, sdk] = [taken.own, taken.sdk].map((given) =>
    Object.fromEntries([...given].map(([name, { value }]) => [name, value])),
  );
  return { own, sdk } as Divided;
}

/** A value, and the name that it was given under. */
interface Given {
  readonly shown: string;
  readonly value: unknown;
}

/** Puts each option where its rule says. Throws config_invalid for one that is refused, unknown, or given twice and differently. */
function take(
  options: unknown,
  what: string,
  rules: Rules,
  taken: Readonly<Record<'own' | 'sdk', Map<string, Given>>>,
): void {
  const put = (where: Map<string, Given>, name: string, given: Given): void => {
    const other = where.get(name);
    if (other !== undefined && !isSame(other.value, given.value)) {
      throw invalid(`${other.shown} and ${given.shown} say different things; give one of them`);
    }
    where.set(name, given);
  };
  for (const [name, value] of valuesOf(options, what)) {
    const shown = what === 'openAIOptions' ? `${what}.${name}` : name;
    if (PINS.includes(name) && (value === undefined || value === null)) {
      throw invalid(
        `${shown} is ${value}, which pins nothing; leave it out to follow the published manifest`,
      );
    }
    if (value === undefined) continue;
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (rule === undefined) throw unknownOption(name, what, rules);
    if (rule === 'nothing') continue;
    if (rule === 'spread') take(value, name, INSIDE, taken);
    else if (rule === 'own') put(taken.own, name, { shown, value: withMembers(name, value) });
    else if (typeof rule === 'string') {
      const header = rule === 'headers' ? credentialIn(value) : undefined;
      if (header !== undefined) throw invalid(`${shown} holds ${header}: ${ONE_KEY.refused}`);
      put(taken.sdk, name, { shown, value });
    } else if ('as' in rule) put(taken.own, rule.as, { shown, value });
    else if (value !== null && value !== rule.inherited)
      throw invalid(`${shown} is refused: ${rule.refused}`);
  }
}

/**
 * Every named value of an object, its prototypes' included, each read once: a getter cannot say something else later, and a pin
 * counts wherever it is inherited from. Symbols are not names. Throws config_invalid for what is no object.
 */
function valuesOf(options: unknown, what: string): Map<string, unknown> {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw invalid(`the options of ${what} are not an object`);
  }
  const values = new Map<string, unknown>();
  let at: object | null = options;
  do {
    for (const name of Object.getOwnPropertyNames(at)) {
      if (values.has(name) || (at !== options && name === 'constructor')) continue;
      values.set(name, (options as Readonly<Record<string, unknown>>)[name]);
    }
    at = Object.getPrototypeOf(at);
  } while (at !== null && !isRoot(at));
  return values;
}

/** Whether this is Object.prototype, of whichever realm. */
const isRoot = (object: object): boolean =>
  Object.getPrototypeOf(object) === null && Object.hasOwn(object, 'isPrototypeOf');

/** A value of ours; an object of named members with each of them read once. Throws config_invalid for an unknown member. */
function withMembers(name: string, value: unknown): unknown {
  if (!Object.hasOwn(MEMBERS, name)) return value;
  const rules: Rules = MEMBERS[name as keyof typeof MEMBERS];
  return divide(value, name, rules).own;
}

/** Options that a message names all; of more, those that begin alike. */
const FEW = 5;

/** config_invalid that names the option which was meant, as far as can be told. */
function unknownOption(name: string, what: string, rules: Rules): PrivatemodeError {
  const shown = JSON.stringify(name.slice(0, 64)).slice(1, -1);
  const meant = nearest(name.slice(0, 64), Object.keys(rules));
  const rule = meant === undefined ? undefined : rules[meant];
  const hint =
    rule !== undefined && isRefusal(rule) ? `${meant} is refused: ${rule.refused}` : `Did you mean ${meant}?`;
  const known = Object.keys(rules).filter((each) => !isRefusal(rules[each] as Rule));
  const begin = (name: string): string => name.slice(0, 3).toLowerCase();
  const alike = known.filter((each) => begin(each) === begin(name));
  const others = alike.length > 0 || known.length > FEW ? alike : known;
  const named = others.length > 0 ? `There are ${others.join(', ')}` : 'The README lists them all';
  return invalid(`${shown} is not an option of ${what}. ${meant === undefined ? `${named}.` : hint}`);
}

/** The name of a header that holds a credential. */
function credentialIn(headers: unknown): string | undefined {
  if (typeof headers !== 'object' || headers === null) return undefined;
  const entries = Symbol.iterator in headers ? [...(headers as Headers)] : Object.entries(headers);
  for (const entry of entries) {
    const [name, value] = Array.isArray(entry) ? entry : [];
    if (value !== null && value !== undefined && CREDENTIALS.test(String(name))) return String(name);
  }
  return undefined;
}

/** Whether two values say the same; a text of a manifest and its bytes do. */
function isSame(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  const isManifest = [one, other].some((value) => ArrayBuffer.isView(value));
  return isManifest && Buffer.compare(manifestBytes(one), manifestBytes(other)) === 0;
}
