/**
 * The model that people use first, `sim-chat`: it repeats what the person said, without the text that an
 * agent adds. In the demo it may ask the agent for the edit that the prompt names.
 */
import { join } from 'node:path';
import { shellWord } from '../../../lib/text.ts';
import { isObject, type JsonObject } from '../request.ts';
import { callOf, hasToolResult, type ToolCall, toolsOf } from './tools.ts';

const WHO_I_AM = 'I am a simulated model: I understand nothing, and only repeat what you say.';

/** Blocks that agents add to a person's text: `<system-reminder>`, `<environment_context>` and the like. */
const OF_AN_AGENT = /<([a-z]+[-_][a-z_-]+)>.*?<\/\1>/gs;
/** Most characters that it repeats. */
const LONGEST = 200;

/** What the person wrote, without the blocks of the agent. */
const personsWords = (text: string): string => text.replace(OF_AN_AGENT, '').trim();

/** What the model says about the text of a user's message. */
export function answerTo(text: string): string {
  const words = personsWords(text);
  if (words === '') return `You said nothing. ${WHO_I_AM}`;
  const said = words.length > LONGEST ? `${words.slice(0, LONGEST)} …` : words;
  return `You said: ${said}${/[.!?…]$/.test(said) ? '' : '.'} ${WHO_I_AM}`;
}

/** "Write TEXT to FILE": no path, no hidden file. `opencode run` puts quotes around a prompt. */
const EDIT =
  /^(?<around>"?)write (?<quote>["'`]?)(?<text>[^\n]{1,200}?)\k<quote> (?:in)?to (?<mark>["'`]?)(?<file>\w[\w-]*(?:\.\w[\w-]*)*)\k<mark>[.!]?\k<around>$/i;

/** The arguments with which a known agent's tool writes a file: `write`, or the shell of Codex. */
function argumentsFor(
  { name, schema }: { readonly name: string; readonly schema: unknown },
  path: string,
  text: string,
): JsonObject | undefined {
  const properties =
    isObject(schema) && isObject(schema['properties']) ? Object.keys(schema['properties']) : [];
  if (/^write$/i.test(name)) {
    const [file, content] = [/path/i, /content/i].map((like) => properties.find((key) => like.test(key)));
    return file && content ? { [file]: path, [content]: `${text}\n` } : undefined;
  }
  return name === 'exec_command' && properties.includes('cmd')
    ? { cmd: `printf '%s\\n' ${shellWord(text)} > ${shellWord(path)}` }
    : undefined;
}

/**
 * The tool call that makes the edit that the prompt asks for, in a file directly below `directory`. Undefined
 * if the prompt asks for none, if the agent offers no tool that we know, or if a tool has already responded:
 * each prompt gets one edit.
 */
export function editFor(text: string, request: JsonObject, directory: string): ToolCall | undefined {
  const asked = EDIT.exec(personsWords(text))?.groups;
  if (asked === undefined || hasToolResult(request['messages'])) return undefined;
  const path = join(directory, asked['file'] as string);
  for (const tool of toolsOf(request['tools'])) {
    const values = argumentsFor(tool, path, asked['text'] as string);
    if (values !== undefined) return callOf(tool.name, values);
  }
  return undefined;
}

/** What it says after a tool has responded. */
export const AFTER_A_TOOL =
  'Your agent has run the tool that I asked for. I am a simulated model: that is all I can do.';
