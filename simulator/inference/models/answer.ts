/** What a model server answers before anything is encrypted: the seam between models, backend and response. */

/** One event of a stream: `data` is JSON text, or `[DONE]`; `event` is the name line of the Anthropic dialect. */
export interface ModelEvent {
  readonly event?: string;
  readonly data: string;
}

export type ModelAnswer =
  | { readonly kind: 'unary'; readonly status: number; readonly body: string }
  | { readonly kind: 'stream'; readonly status: number; readonly events: AsyncIterable<ModelEvent> };

export const unary = (status: number, value: unknown): ModelAnswer => ({
  kind: 'unary',
  status,
  body: JSON.stringify(value),
});

export const stream = (events: AsyncIterable<ModelEvent>): ModelAnswer => ({
  kind: 'stream',
  status: 200,
  events,
});

export const data = (value: unknown): ModelEvent => ({ data: JSON.stringify(value) });
export const DONE: ModelEvent = { data: '[DONE]' };
