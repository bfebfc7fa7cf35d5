/** The server repeats `reasoning` as `reasoning_content` in each choice (docs/protocol/inference.md 5.6). */
import type { ModelAnswer, ModelEvent } from './models/answer.ts';
import type { JsonObject } from './request.ts';

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

const withCopy = (holder: unknown): unknown =>
  isObject(holder) && holder['reasoning'] !== undefined && holder['reasoning_content'] === undefined
    ? { ...holder, reasoning_content: holder['reasoning'] }
    : holder;

function mirror(text: string): string {
  if (!text.includes('"reasoning"')) return text; // almost every chunk
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return text; // sealing will refuse it
  }
  if (!isObject(value) || !Array.isArray(value['choices'])) return text;
  const choices = value['choices'].map((choice: unknown) => {
    if (!isObject(choice)) return choice;
    const { delta, message } = choice as { delta?: unknown; message?: unknown };
    return {
      ...choice,
      ...(delta !== undefined && { delta: withCopy(delta) }),
      ...(message !== undefined && { message: withCopy(message) }),
    };
  });
  return JSON.stringify({ ...value, choices });
}

async function* mirrored(events: AsyncIterable<ModelEvent>): AsyncGenerator<ModelEvent> {
  for await (const event of events) yield { ...event, data: mirror(event.data) };
}

/** The answer with the copies made. */
export const mirrorReasoning = (answer: ModelAnswer): ModelAnswer =>
  answer.kind === 'unary'
    ? { ...answer, body: mirror(answer.body) }
    : { ...answer, events: mirrored(answer.events) };
