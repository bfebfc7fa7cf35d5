/** The tool call of `sim-tools`: which tool, and arguments that fit its schema. */
import type { JsonObject } from '../request.ts';

export interface ToolCall {
  readonly name: string;
  readonly arguments: JsonObject;
  /** The arguments' JSON text in the pieces in which a stream delivers it. */
  readonly pieces: readonly string[];
}

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

const SAMPLES: Readonly<Record<string, unknown>> = {
  string: 'sim',
  integer: 1,
  number: 1.5,
  boolean: true,
  array: [],
  object: {},
  null: null,
};

function sampleOf(schema: unknown): unknown {
  if (!isObject(schema)) return SAMPLES['string'];
  const { enum: choices, type } = schema as { enum?: unknown; type?: unknown };
  if (Array.isArray(choices)) return choices[0];
  return SAMPLES[String(type)] ?? SAMPLES['string'];
}

function sampleArguments(schema: unknown): JsonObject {
  const { properties, required } = (isObject(schema) ? schema : {}) as {
    properties?: unknown;
    required?: unknown;
  };
  if (!isObject(properties)) return {};
  const names = Array.isArray(required) ? required.map(String) : Object.keys(properties);
  return Object.fromEntries(names.map((name) => [name, sampleOf(properties[name])]));
}

/** OpenAI: a message of role `tool`; Anthropic: a content block `tool_result` in the last message. */
function hasToolResult(messages: unknown): boolean {
  const last = Array.isArray(messages) ? messages.at(-1) : undefined;
  if (!isObject(last)) return false;
  const { role, content } = last as { role?: unknown; content?: unknown };
  if (role === 'tool') return true;
  return Array.isArray(content) && content.some((part) => isObject(part) && part['type'] === 'tool_result');
}

/** OpenAI wraps a tool in `function` and calls the schema `parameters`; Anthropic says `input_schema`. */
function firstTool(tools: unknown): { name: string; schema: unknown } {
  const first = Array.isArray(tools) ? tools[0] : undefined;
  if (!isObject(first)) {
    return { name: 'get_weather', schema: { properties: { city: { type: 'string' } } } };
  }
  const tool = isObject(first['function']) ? first['function'] : first;
  return { name: String(tool['name']), schema: tool['parameters'] ?? tool['input_schema'] };
}

/** The call to make; undefined once the conversation ends with a tool's result. */
export function toolCallFor(request: JsonObject): ToolCall | undefined {
  if (hasToolResult(request['messages'])) return undefined;
  const { name, schema } = firstTool(request['tools']);
  const values = sampleArguments(schema);
  return { name, arguments: values, pieces: JSON.stringify(values).match(/.{1,8}/gs) ?? [] };
}
