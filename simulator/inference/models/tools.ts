/** Tools in a request, and the call of `sim-tools`: of the first, with arguments that fit its schema. */
import { isObject, type JsonObject } from '../request.ts';

export interface ToolCall {
  readonly name: string;
  readonly arguments: JsonObject;
  /** The JSON text of the arguments, cut into the pieces that a stream delivers. */
  readonly pieces: readonly string[];
}

const SAMPLES: JsonObject = { integer: 1, number: 1.5, boolean: true, array: [], object: {}, null: null };

function sampleOf(schema: unknown): unknown {
  const { enum: choices, type } = (isObject(schema) ? schema : {}) as { enum?: unknown[]; type?: string };
  if (Array.isArray(choices)) return choices[0];
  return Object.hasOwn(SAMPLES, String(type)) ? SAMPLES[String(type)] : 'sim';
}

function sampleArguments(schema: unknown): JsonObject {
  const { properties, required }: JsonObject = isObject(schema) ? schema : {};
  if (!isObject(properties)) return {};
  const names = Array.isArray(required) ? required.map(String) : Object.keys(properties);
  return Object.fromEntries(names.map((name) => [name, sampleOf(properties[name])]));
}

/** How many tools' results a message holds: OpenAI has a message for each, Anthropic a content block. */
function resultsIn(message: unknown): number {
  if (!isObject(message)) return 0;
  const { role, content } = message;
  if (role === 'tool') return 1;
  return Array.isArray(content)
    ? content.filter((part) => isObject(part) && part['type'] === 'tool_result').length
    : 0;
}

/** How many tools' results the conversation holds. */
export const countToolResults = (messages: unknown): number =>
  (Array.isArray(messages) ? messages : []).reduce<number>((sum, message) => sum + resultsIn(message), 0);

/** Whether the conversation ends with a tool's result. */
export const hasToolResult = (messages: unknown): boolean =>
  Array.isArray(messages) && resultsIn(messages.at(-1)) > 0;

/** `schema`: the JSON schema of its arguments. */
type Tool = { readonly name: string; readonly schema: unknown };

/** The tools that a request offers; OpenAI calls a schema `parameters`, Anthropic `input_schema`. */
export const toolsOf = (tools: unknown): readonly Tool[] =>
  (Array.isArray(tools) ? tools : []).filter(isObject).map((offered) => {
    const tool = isObject(offered['function']) ? offered['function'] : offered;
    return { name: String(tool['name']), schema: tool['parameters'] ?? tool['input_schema'] };
  });

const WITHOUT_TOOLS: Tool = { name: 'get_weather', schema: { properties: { city: {} } } };

/** A call with these arguments, streamed in pieces. */
export const callOf = (name: string, values: JsonObject): ToolCall => ({
  name,
  arguments: values,
  pieces: JSON.stringify(values).match(/.{1,8}/gs) ?? [],
});

/** The call to make; undefined if the conversation ends with a tool's result. */
export function toolCallFor(request: JsonObject): ToolCall | undefined {
  if (hasToolResult(request['messages'])) return undefined;
  const { name, schema } = toolsOf(request['tools'])[0] ?? WITHOUT_TOOLS;
  return callOf(name, sampleArguments(schema));
}
