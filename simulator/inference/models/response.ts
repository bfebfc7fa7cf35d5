/** The response of a model server before it is encrypted. Models and backend make it; sealing takes it. */

/** One event: `data` is JSON text, or `[DONE]`; `event` is the name line of the Anthropic style. */
export interface ModelEvent {
  readonly event?: string;
  readonly data: string;
}

export type ModelResponse =
  | { readonly kind: 'unary'; readonly status: number; readonly body: string }
  | { readonly kind: 'stream'; readonly status: number; readonly events: AsyncIterable<ModelEvent> };

export const unary = (status: number, value: unknown): ModelResponse => ({
  kind: 'unary',
  status,
  body: JSON.stringify(value),
});

export const stream = (events: AsyncIterable<ModelEvent>): ModelResponse => ({
  kind: 'stream',
  status: 200,
  events,
});

export const data = (value: unknown): ModelEvent => ({ data: JSON.stringify(value) });
export const DONE: ModelEvent = { data: '[DONE]' };
