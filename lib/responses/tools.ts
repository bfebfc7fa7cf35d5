/** The tools of a request as the functions that chat completions have, under names that lead back to them. */
import {
  invalid,
  isObject,
  isSet,
  type JsonObject,
  listAt,
  objectAt,
  stringAt,
  unsupported,
} from './refusal.ts';

/** A tool of the application, as its calls name it. */
export interface ToolOrigin {
  readonly kind: 'function' | 'custom' | 'tool_search';
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** What the service takes for a name. */
const VALID_NAME = /^[\w-]{1,64}$/;
const LONGEST_NAME = 64;
const DIGEST_LENGTH = 8;

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

/** FNV-1a: the same tool needs the same name in every request, or the prompt cache of the service misses. It keeps no secret. */
function digest(text: string): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash >>> 0).toString(16).padStart(DIGEST_LENGTH, '0');
}

export class Tools {
  /** Function tools of the chat request, in the order in which they were added. */
  readonly functions: JsonObject[] = [];
  /** By the name under which chat knows them; also tools that only earlier calls name. */
  readonly origins = new Map<string, ToolOrigin>();
  /** Types of the hosted tools that were left out. */
  readonly hosted = new Set<string>();
  readonly #names = new Map<string, string>(); // by keyOf
  readonly #added = new Set<string>(); // by their names in chat

  /** Adds the tools at `param`; returns their names in chat. A tool that was there before counts once: of two definitions, the first. */
  add(param: string, value: unknown): readonly string[] {
    const list = listAt(param, value).map((tool, at) => objectAt(`${param}[${at}]`, tool));
    // Functions keep their names where they can; so they choose first.
    for (const { type, name } of list) {
      if (type === 'function' && typeof name === 'string') this.nameOf({ kind: 'function', name });
    }
    return list.flatMap((tool, at) => this.#addOne(`${param}[${at}]`, tool));
  }

  #addOne(param: string, tool: JsonObject, namespace?: string): string[] {
    const type = stringAt(`${param}.type`, tool['type']);
    if (type === 'function' || type === 'custom') {
      const name = stringAt(`${param}.name`, tool['name']);
      if (name === '') throw invalid(`${param}.name`, 'a name');
      const origin = { kind: type, name, namespace } as const;
      return [this.#push(origin, type === 'function' ? ofFunction(param, tool) : ofCustom(param, tool))];
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
      return [this.#push(SEARCH, { description: tool['description'], parameters: tool['parameters'] })];
    }
    this.hosted.add(type);
    return [];
  }

  #push(origin: ToolOrigin, { description, parameters, strict }: JsonObject): string {
    const name = this.nameOf(origin);
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

  /** The name under which chat knows a tool; the same for the same tool. */
  nameOf(origin: ToolOrigin): string {
    const key = keyOf(origin);
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    const plain = origin.namespace === undefined ? origin.name : `${origin.namespace}__${origin.name}`;
    let name = plain;
    for (let round = 0; !VALID_NAME.test(name) || this.origins.has(name); round++) {
      const readable = plain.slice(0, LONGEST_NAME - DIGEST_LENGTH - 1).replace(/[^\w-]/g, '_');
      name = `${readable}_${digest(`${round}${key}`)}`;
    }
    this.#names.set(key, name);
    this.origins.set(name, origin);
    return name;
  }

  nameOfSearch(): string {
    return this.nameOf(SEARCH);
  }

  /** `tools` and `tool_choice` of the chat request. To be called once, when all tools were added. */
  chosen(choice: unknown): JsonObject {
    const { functions } = this;
    if (!isSet(choice) || CHOICES.has(choice)) {
      if (functions.length === 0 && choice === 'required') {
        throw invalid('tool_choice', '"auto": no tool of the request runs on your side');
      }
      if (functions.length === 0) return {};
      return { tools: functions, ...(typeof choice === 'string' && { tool_choice: choice }) };
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
    const allowed = new Set<string>();
    for (const [at, tool] of listAt('tool_choice.tools', wanted['tools']).entries()) {
      const place = `tool_choice.tools[${at}]`;
      const named = objectAt(place, tool);
      if (named['type'] !== 'namespace') allowed.add(this.#find(place, named));
      else
        for (const name of this.#added)
          if (this.origins.get(name)?.namespace === named['name']) allowed.add(name);
    }
    if (allowed.size === 0) throw invalid('tool_choice.tools', 'tools that are in "tools"');
    const isAllowed = (tool: JsonObject) => allowed.has((tool['function'] as { name: string }).name);
    return { tools: functions.filter(isAllowed), tool_choice: mode };
  }

  /** The name in chat of the tool that a choice names. */
  #find(param: string, { type, name, namespace }: JsonObject): string {
    const isOurs = type === 'function' || type === 'custom' || type === 'tool_search';
    if (!isOurs || (type === 'tool_search' && !this.#added.has(this.nameOfSearch()))) {
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

function ofFunction(param: string, { description, parameters, strict }: JsonObject): JsonObject {
  if (isSet(parameters)) objectAt(`${param}.parameters`, parameters);
  return { description, parameters, strict };
}

function ofCustom(param: string, { description, format }: JsonObject): JsonObject {
  const texts = typeof description === 'string' ? [description] : [];
  if (isSet(format)) {
    const { type, syntax, definition } = objectAt(`${param}.format`, format);
    if (type === 'grammar') {
      const language = stringAt(`${param}.format.syntax`, syntax);
      const grammar = stringAt(`${param}.format.definition`, definition);
      texts.push(`The input has to match this ${language} grammar:\n${grammar}`);
    } else if (type !== 'text') throw invalid(`${param}.format.type`, '"text" or "grammar"');
  }
  return { description: texts.join('\n\n'), parameters: CUSTOM_PARAMETERS, strict: undefined };
}
