/**
 * Translates the tools of a request into the functions of a chat completion, under names that lead back to
 * the tools.
 */

import { sha256 } from '#crypto';
import {
  invalid,
  isObject,
  isSet,
  listAt,
  objectAt,
  type PlainObject,
  stringAt,
  unsupported,
} from './request-refusal.ts';

/** A tool of the application, as its calls name it. */
export interface ToolOrigin {
  readonly kind: 'function' | 'custom' | 'tool_search';
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** Names that the service accepts. */
const VALID_NAME = /^[\w-]{1,64}$/;
/** Characters of such a name that come from the tool's own, and from a digest. */
const READABLE_LENGTH = 47;
const DIGEST_LENGTH = 16;

/**
 * Tools of one request, including the types of hosted tools and the tools that only earlier calls name. Each
 * is kept until the response has ended.
 */
const MOST_TOOLS = 1024;
/** Bytes of a namespace, and of a name; both are hashed and compared. */
const MOST_NAME_BYTES = 256;

/** The one parameter of a custom tool. */
const CUSTOM_PARAMETERS = {
  type: 'object',
  properties: { input: { type: 'string' } },
  required: ['input'],
  additionalProperties: false,
};

/** Choices that name no tool. */
const CHOICES: ReadonlySet<unknown> = new Set(['auto', 'none', 'required']);

const SEARCH: ToolOrigin = { kind: 'tool_search', name: 'tool_search' };

const keyOf = ({ kind, name, namespace }: ToolOrigin): string =>
  JSON.stringify([kind, namespace ?? null, name]);

function demandShort(param: string, word: string): void {
  if (Buffer.byteLength(word) > MOST_NAME_BYTES) throw invalid(param, `at most ${MOST_NAME_BYTES} bytes`);
}

/** Members of the chat request; absent if no tool runs on the side of the application. */
interface ChosenTools {
  readonly tools?: readonly PlainObject[];
  readonly tool_choice?: unknown;
}

export class Tools {
  /** Function tools of the chat request, in the order in which they were added. */
  readonly functions: PlainObject[] = [];
  /** The tools by their names in chat, including those that only earlier calls name. */
  readonly origins = new Map<string, ToolOrigin>();
  /** Types of the hosted tools that were left out. */
  readonly hosted = new Set<string>();
  readonly #names = new Map<string, string>(); // by keyOf
  readonly #added = new Set<string>(); // by their names in chat

  /**
   * Adds the tools at `param`, and returns their names in chat. If a tool is defined twice, the first
   * definition counts.
   */
  add(param: string, value: unknown): readonly string[] {
    const list = listAt(param, value).map((tool, at) => objectAt(`${param}[${at}]`, tool));
    // Functions get their names first, so that they can keep them.
    for (const [at, { type, name }] of list.entries()) {
      if (type === 'function' && typeof name === 'string')
        this.nameOf(`${param}[${at}].name`, { kind: 'function', name });
    }
    return list.flatMap((tool, at) => this.#addOne(`${param}[${at}]`, tool));
  }

  #addOne(param: string, tool: PlainObject, namespace?: string): string[] {
    const type = stringAt(`${param}.type`, tool['type']);
    if (type === 'function' || type === 'custom') {
      const name = stringAt(`${param}.name`, tool['name']);
      if (name === '') throw invalid(`${param}.name`, 'a name');
      const origin = { kind: type, name, namespace } as const;
      if (type === 'custom') return [this.#push(`${param}.name`, origin, ofCustom(param, tool))];
      if (isSet(tool['parameters'])) objectAt(`${param}.parameters`, tool['parameters']);
      return [this.#push(`${param}.name`, origin, tool)];
    }
    if (namespace !== undefined) {
      throw unsupported(param, 'a namespace holds functions and custom tools only', 'Leave this tool out.');
    }
    if (type === 'namespace') {
      const name = stringAt(`${param}.name`, tool['name']);
      return listAt(`${param}.tools`, tool['tools']).flatMap((inner, at) => {
        const place = `${param}.tools[${at}]`;
        return this.#addOne(place, objectAt(place, inner), name);
      });
    }
    if (type === 'tool_search' && tool['execution'] === 'client') {
      return [this.#push(param, SEARCH, { ...tool, strict: undefined })];
    }
    demandShort(`${param}.type`, type);
    if (!this.hosted.has(type)) this.#demandRoom(param);
    this.hosted.add(type);
    return [];
  }

  #push(param: string, origin: ToolOrigin, { description, parameters, strict }: PlainObject): string {
    const name = this.nameOf(param, origin);
    if (this.#added.has(name)) return name;
    this.#added.add(name);
    const definition = {
      name,
      ...(typeof description === 'string' && { description }),
      ...(isObject(parameters) && { parameters }),
      ...(typeof strict === 'boolean' && { strict }),
    };
    this.functions.push({ type: 'function', function: definition });
    return name;
  }

  /** Throws a RequestRefusal if the request has as many tools as it may have. */
  #demandRoom(param: string): void {
    if (this.#names.size + this.hosted.size < MOST_TOOLS) return;
    throw invalid(param, `at most ${MOST_TOOLS} different tools, those that earlier calls name among them`);
  }

  /**
   * The name of a tool in chat, by default of the search; the same tool gets the same name. Throws a
   * RequestRefusal that names `param` if the request has too many tools, if the name or namespace is too
   * long, or if another tool has the name.
   */
  nameOf(param: string, origin: ToolOrigin = SEARCH): string {
    const { name, namespace } = origin;
    demandShort(param, name);
    if (namespace !== undefined) demandShort(param, namespace);
    const key = keyOf(origin);
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    this.#demandRoom(param);
    const plain = namespace === undefined ? name : `${namespace}__${name}`;
    const chosen = VALID_NAME.test(plain) && !this.origins.has(plain) ? plain : digested(plain, key);
    if (this.origins.has(chosen)) throw invalid(param, 'another name: a tool of the request has it');
    this.#names.set(key, chosen);
    this.origins.set(chosen, origin);
    return chosen;
  }

  /** `tools` and `tool_choice` of the chat request. The caller asks once, when all tools have been added. */
  chosen(choice: unknown): ChosenTools {
    const { functions } = this;
    if (!isSet(choice) || CHOICES.has(choice)) {
      if (functions.length > 0) return { tools: functions, ...(isSet(choice) && { tool_choice: choice }) };
      if (choice !== 'required') return {};
      throw invalid('tool_choice', '"auto": no tool of the request runs on your side');
    }
    const wanted = objectAt('tool_choice', choice);
    if (wanted['type'] !== 'allowed_tools') {
      return {
        tools: functions,
        tool_choice: { type: 'function', function: { name: this.#find('tool_choice', wanted) } },
      };
    }
    const { mode } = wanted;
    if (mode !== 'auto' && mode !== 'required') throw invalid('tool_choice.mode', '"auto" or "required"');
    const names = new Set<string>();
    const namespaces = new Set<unknown>();
    for (const [at, tool] of listAt('tool_choice.tools', wanted['tools']).entries()) {
      const place = `tool_choice.tools[${at}]`;
      const named = objectAt(place, tool);
      if (named['type'] === 'namespace') namespaces.add(stringAt(`${place}.name`, named['name']));
      else names.add(this.#find(place, named));
    }
    const allowed = functions.filter((tool) => {
      const { name } = tool['function'] as { name: string };
      return names.has(name) || namespaces.has(this.origins.get(name)?.namespace);
    });
    if (allowed.length === 0) throw invalid('tool_choice.tools', 'tools that are in "tools"');
    return { tools: allowed, tool_choice: mode };
  }

  /**
   * The name in chat of the tool that a choice names. Throws a RequestRefusal if no such tool was added, or
   * if the tool is hosted.
   */
  #find(param: string, { type, name, namespace }: PlainObject): string {
    const isOurs = type === 'function' || type === 'custom' || type === 'tool_search';
    if (!isOurs || (type === 'tool_search' && !this.#added.has(this.#names.get(keyOf(SEARCH)) ?? ''))) {
      throw unsupported(
        param,
        'the service runs no hosted tools',
        'Choose a function or a custom tool, or "auto".',
      );
    }
    const origin: ToolOrigin =
      type === 'tool_search'
        ? SEARCH
        : {
            kind: type,
            name: stringAt(`${param}.name`, name),
            namespace: typeof namespace === 'string' ? namespace : undefined,
          };
    const found = this.#names.get(keyOf(origin));
    if (found === undefined || !this.#added.has(found))
      throw invalid(param, 'the name of a tool that is in "tools"');
    return found;
  }
}

/** The beginning of `plain` and a digest of the tool: the same in every request, or prompt caches miss. */
function digested(plain: string, key: string): string {
  const digest = Buffer.from(sha256(Buffer.from(key))).toString('hex', 0, DIGEST_LENGTH / 2);
  return `${plain.slice(0, READABLE_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`;
}

function ofCustom(param: string, { description, format }: PlainObject): PlainObject {
  const texts = typeof description === 'string' ? [description] : [];
  if (isSet(format)) {
    const { type, syntax, definition } = objectAt(`${param}.format`, format);
    if (type === 'grammar') {
      const language = stringAt(`${param}.format.syntax`, syntax);
      const grammar = stringAt(`${param}.format.definition`, definition);
      texts.push(`The input has to match this ${language} grammar:\n${grammar}`);
    } else if (type !== 'text') throw invalid(`${param}.format.type`, '"text" or "grammar"');
  }
  return { description: texts.join('\n\n'), parameters: CUSTOM_PARAMETERS };
}
