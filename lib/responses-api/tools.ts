/** Translates tools into functions of a chat completion, under names that lead back to the tools. */
import { sha256 } from '#crypto';
import { Placed, type PlainObject } from './request-refusal.ts';

/** A tool of the application, as calls in the Responses API name it. */
export interface ToolOrigin {
  readonly kind: 'function' | 'custom' | 'tool_search';
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** Names of functions that the service accepts. */
const VALID_NAME = /^[\w-]{1,64}$/;
/** A replaced name keeps READABLE_LENGTH characters. A digest of DIGEST_BYTES bytes follows, in hex. */
const READABLE_LENGTH = 47;
const DIGEST_BYTES = 8;

/**
 * Limit for the tools of one request. Types of hosted tools count, too, as do tools that only earlier calls
 * name: all are kept until the response has ended.
 */
const MOST_TOOLS = 1024;
/** The most bytes of a namespace or of a name. There is a limit because both are hashed and compared. */
const MOST_NAME_BYTES = 256;

/** The parameters of the function that stands for a custom tool: the only parameter is a text. */
const CUSTOM_PARAMETERS = {
  type: 'object',
  properties: { input: { type: 'string' } },
  required: ['input'],
  additionalProperties: false,
};

/** The tool that a call, a tool or a choice names. Throws a RequestRefusal if the name is missing. */
export function originAt(place: Placed, kind: ToolOrigin['kind']): ToolOrigin {
  if (kind === 'tool_search') return { kind, name: kind };
  const namespace = place.at('namespace');
  return { kind, name: place.at('name').string, namespace: namespace.isSet ? namespace.string : undefined };
}

const keyOf = ({ kind, name, namespace }: ToolOrigin): string =>
  JSON.stringify([kind, namespace ?? null, name]);

function demandShort(place: Placed, word = ''): void {
  if (Buffer.byteLength(word) > MOST_NAME_BYTES) throw place.invalid(`at most ${MOST_NAME_BYTES} bytes`);
}

export class Tools {
  /** The tools by the names of their functions. Tools that only earlier calls name are included. */
  readonly origins = new Map<string, ToolOrigin>();
  /** Types of the hosted tools that were left out. */
  readonly hosted = new Set<string>();
  /** Function tools of the chat request by their names, in the order in which they were added. */
  readonly #functions = new Map<string, PlainObject>();
  readonly #names = new Map<string, string>(); // names of functions, by keyOf

  /**
   * Adds a list of tools, and returns the names of their functions. If a tool is defined twice, the first
   * definition counts.
   */
  add(tools: Placed): readonly string[] {
    const list = tools.list;
    // Functions are named first, so that no tool of another kind takes one of their names.
    for (const tool of list) {
      const { type, name } = tool.object;
      if (type === 'function' && typeof name === 'string')
        this.nameOf(tool.at('name'), { kind: 'function', name });
    }
    return list.flatMap((tool) => this.#addOne(tool));
  }

  #addOne(tool: Placed, namespace?: string): string[] {
    const type = tool.at('type').string;
    if (type === 'function' || type === 'custom') {
      const name = tool.at('name');
      const definition = type === 'custom' ? ofCustom(tool) : tool;
      return [this.#push(name, { kind: type, name: name.word, namespace }, definition)];
    }
    if (namespace !== undefined) {
      throw tool.unsupported('a namespace holds functions and custom tools only', 'Leave this tool out.');
    }
    if (type === 'namespace') {
      const name = tool.at('name').string;
      return tool.at('tools').list.flatMap((inner) => this.#addOne(inner, name));
    }
    if (type === 'tool_search' && tool.object['execution'] === 'client') {
      return [this.#push(tool, originAt(tool, type), tool)];
    }
    demandShort(tool.at('type'), type);
    if (!this.hosted.has(type)) this.#demandRoom(tool);
    this.hosted.add(type);
    return [];
  }

  #push(place: Placed, origin: ToolOrigin, definition: Placed): string {
    const name = this.nameOf(place, origin);
    const { description, strict } = definition.object;
    const parameters = definition.at('parameters');
    const chat = {
      name,
      description: description ?? undefined,
      parameters: parameters.isSet ? parameters.object : undefined,
      strict: strict ?? undefined,
    };
    if (!this.#functions.has(name)) this.#functions.set(name, { type: 'function', function: chat });
    return name;
  }

  /** Throws a RequestRefusal if the request already has as many tools as it may have. */
  #demandRoom(place: Placed): void {
    if (this.#names.size + this.hosted.size < MOST_TOOLS) return;
    throw place.invalid(`at most ${MOST_TOOLS} different tools, those that earlier calls name among them`);
  }

  /**
   * The name of the function for a tool; the same tool gets the same name. Throws a RequestRefusal that names
   * the place if the request has too many tools, if the name or namespace is too long, or if another tool has
   * the name.
   */
  nameOf(place: Placed, origin: ToolOrigin): string {
    const { name, namespace } = origin;
    demandShort(place, name);
    demandShort(place, namespace);
    const key = keyOf(origin);
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    this.#demandRoom(place);
    let chosen = namespace === undefined ? name : `${namespace}__${name}`;
    if (!VALID_NAME.test(chosen) || this.origins.has(chosen)) {
      // The replaced name is the same in every request, because a new name would miss the prompt cache.
      const digest = Buffer.from(sha256(Buffer.from(key))).toString('hex', 0, DIGEST_BYTES);
      chosen = `${chosen.slice(0, READABLE_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`;
    }
    if (this.origins.has(chosen)) throw place.invalid('another name: a tool of the request has it');
    this.#names.set(key, chosen);
    this.origins.set(chosen, origin);
    return chosen;
  }

  /** The functions of the chat request, and its `tool_choice`. Called when all tools have been added. */
  chosen(choice: Placed): readonly [functions: readonly PlainObject[], choice?: unknown] {
    const functions = [...this.#functions.values()];
    if (!choice.isSet || ['auto', 'none', 'required'].includes(choice.value as string)) {
      if (functions.length > 0) return [functions, choice.value ?? undefined];
      if (choice.value !== 'required') return [[]];
      throw choice.invalid('"auto": no tool of the request runs on your side');
    }
    if (choice.at('type').value !== 'allowed_tools') {
      return [functions, { type: 'function', function: { name: this.#find(choice) } }];
    }
    const mode = choice.at('mode');
    if (mode.value !== 'auto' && mode.value !== 'required') throw mode.invalid('"auto" or "required"');
    const names = new Set<string>();
    const namespaces = new Set<unknown>();
    for (const tool of choice.at('tools').list) {
      if (tool.at('type').value === 'namespace') namespaces.add(tool.at('name').string);
      else names.add(this.#find(tool));
    }
    const isAllowed = (name: string) => names.has(name) || namespaces.has(this.origins.get(name)?.namespace);
    const allowed = [...this.#functions].filter(([name]) => isAllowed(name)).map(([, tool]) => tool);
    if (allowed.length === 0) throw choice.at('tools').invalid('tools that are in "tools"');
    return [allowed, mode.value];
  }

  /**
   * The name of the function for the tool that a choice names. Throws a RequestRefusal if no such tool was
   * added, or if the tool is hosted.
   */
  #find(choice: Placed): string {
    const { type } = choice.object;
    const isOurs = type === 'function' || type === 'custom' || type === 'tool_search';
    const found = isOurs ? this.#names.get(keyOf(originAt(choice, type))) : undefined;
    if (found !== undefined && this.#functions.has(found)) return found;
    if (isOurs && type !== 'tool_search') throw choice.invalid('the name of a tool that is in "tools"');
    const remedy = 'Choose a function or a custom tool, or "auto".';
    throw choice.unsupported('the service runs no hosted tools', remedy);
  }
}

function ofCustom(tool: Placed): Placed {
  const { description } = tool.object;
  const texts = typeof description === 'string' ? [description] : [];
  const format = tool.at('format');
  const type = format.isSet ? format.at('type').value : 'text';
  if (type === 'grammar') {
    const [language, grammar] = [format.at('syntax').string, format.at('definition').string];
    texts.push(`The input has to match this ${language} grammar:\n${grammar}`);
  } else if (type !== 'text') throw format.at('type').invalid('"text" or "grammar"');
  return new Placed(tool.name, { description: texts.join('\n\n'), parameters: CUSTOM_PARAMETERS });
}
