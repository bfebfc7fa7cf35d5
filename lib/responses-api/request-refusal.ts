/** The errors of requests that cannot be translated, and the places in a request that the errors name. */
import { PrivatemodeError } from '../errors.ts';

/** An error 400 of the Responses API. `param`: the place in the request, like `input[3].content[0]`. */
export class RequestRefusal extends PrivatemodeError {
  constructor(code: string, param: string, message: string, remedy: string) {
    super('not_supported', message, { remedy, api: { param, code } });
  }
}

/** An error 413. `what` completes the sentence "the request has …". */
export const tooLarge = (param: string, what: string) =>
  new PrivatemodeError('body_too_large', `the ${param} has ${what}`, {
    remedy: 'Send smaller texts and images, and fewer items.',
    api: { param, code: 'invalid_value' },
  });

export type PlainObject = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is PlainObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The value of a JSON text; undefined if the text is not JSON. */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A value of the request, and its place. Reading a wrong kind throws an error that hides the value. */
export class Placed {
  readonly name: string;
  readonly value: unknown;

  /** `name`: the place, like `input[3]`. The whole request has an empty name. */
  constructor(name: string, value: unknown) {
    this.name = name;
    this.value = value;
  }

  unsupported(message: string, remedy: string): RequestRefusal {
    return new RequestRefusal('unsupported_parameter', this.name, message, remedy);
  }

  /** `expected` completes the sentence "Send …". */
  invalid(expected: string): RequestRefusal {
    const message = `${this.name} has a value that cannot be translated`;
    return new RequestRefusal('invalid_value', this.name, message, `Send ${expected}.`);
  }

  /** Whether the request sets the value. Null counts as absent. */
  get isSet(): boolean {
    return this.value !== undefined && this.value !== null;
  }

  get string(): string {
    if (typeof this.value !== 'string') throw this.invalid('a string');
    return this.value;
  }

  /** Returns the value if it is a text that is not empty; throws otherwise. */
  get word(): string {
    if (this.string === '') throw this.invalid('a text that is not empty');
    return this.string;
  }

  get object(): PlainObject {
    if (!isObject(this.value)) throw this.invalid('an object');
    return this.value;
  }

  get list(): readonly Placed[] {
    if (!Array.isArray(this.value)) throw this.invalid('an array');
    return this.value.map((value, k) => new Placed(`${this.name}[${k}]`, value));
  }

  /** The value of a member of this object, with its place. */
  at(member: string): Placed {
    return new Placed(this.name === '' ? member : `${this.name}.${member}`, this.object[member]);
  }
}

const STORED = 'Set `store: false` in the client, so that it sends the items themselves: nothing is stored.';
const AS_TOOL = 'Define the tool as a function or a custom tool.';
const AS_TEXT = 'Send what it held as text, as a call with its output, or as an image.';
/** Remedies for types of the API that have no translation. AS_TEXT is also the remedy for unknown types. */
const INSTEAD: readonly (readonly [remedy: string, types: RegExp])[] = [
  [STORED, /^item_reference$/],
  ['Send the conversation itself.', /^compaction(?:_trigger)?$/],
  ['Set the members of the request.', /^configuration_update$/],
  ['Send its text, or its pages as images.', /^input_file$/],
  ['Send its words as text.', /^input_audio$/],
  [AS_TOOL, /^(?:apply_patch|local_shell|shell)_call(?:_output)?$/],
  [AS_TEXT, /^(?:code_interpreter|file_search|image_generation|mcp|web_search)_call$/],
  [
    AS_TEXT,
    /^(?:computer_call(?:_output)?|mcp_list_tools|mcp_approval_re(?:quest|sponse)|program(?:_output)?)$/,
  ],
];

/** The refusal of an item or a part. It names only types of the API, never a word of the client. */
export function untranslatable(what: 'an item' | 'a part', place: Placed): RequestRefusal {
  const type = place.at('type');
  const known = INSTEAD.find(([, types]) => typeof type.value === 'string' && types.test(type.value));
  const which = known === undefined ? 'an unknown type' : `type ${type.value}`;
  return type.unsupported(`${what} of ${which} cannot be translated`, known?.[0] ?? AS_TEXT);
}
