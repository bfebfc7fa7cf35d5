/**
 * In which order the events of a stream come, and when it is complete. The events that end a stream (`[DONE]`, `message_stop`)
 * are plain: a gateway could forge them or bring them forward. So they count only after what is authenticated says that the
 * response is complete.
 */
import { notAuthentic } from '../decrypter.ts';
import type { StreamGrammar } from '../grammar.ts';

export interface StreamOrder {
  /**
   * Takes the next event: its type, and the parsed values of `choices` or `delta`, and of `index`, where it has them.
   * Throws response_not_authentic where it cannot come here.
   */
  take(type: string, content: unknown, index: unknown): void;
  /** Whether the event that ends the stream would be the truth now. */
  readonly complete: boolean;
}

type Choice = Readonly<Record<string, unknown>>;

const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** A choice that has only named its role has no tokens yet. */
function isRoleOnly({ delta }: Choice): boolean {
  if (typeof delta !== 'object' || delta === null) return false;
  const { role, ...rest } = delta as Choice;
  return typeof role === 'string' && Object.values(rest).every((value) => value === '' || !isSet(value));
}

/**
 * Chat and completions: choices 0 to `wanted` - 1 finish once each, and nothing follows the finish of a choice. The closing
 * chunk without choices comes last; after it, an only choice that got no token needs no finish (vLLM 0.20 sends none). Of
 * several choices all must finish: the closing chunk could be that of a run for which fewer were asked.
 */
function choicesOrder(wanted: number): StreamOrder {
  const began = new Map<number, 'role' | 'content' | 'finished'>();
  let finished = 0;
  let closed = false;

  const takeChoice = (choice: Choice): void => {
    const { index, finish_reason: finish } = choice;
    if (!(Number.isInteger(index) && (index as number) >= 0 && (index as number) < wanted)) {
      throw notAuthentic('a choice of the stream was not asked for');
    }
    const state = began.get(index as number);
    if (state === 'finished') throw notAuthentic('a choice of the stream goes on after its end');
    if (isSet(finish)) {
      began.set(index as number, 'finished');
      finished += 1;
    } else if (state !== 'content') {
      began.set(index as number, state === undefined && isRoleOnly(choice) ? 'role' : 'content');
    }
  };

  const order = {
    complete: false,
    take(type: string, content: unknown): void {
      if (type !== 'chunk') return;
      if (closed) throw notAuthentic('the stream goes on after its last chunk');
      const choices = content as readonly Choice[];
      for (const choice of choices) takeChoice(choice);
      closed = choices.length === 0 && began.size > 0;
      order.complete = finished === wanted || (closed && wanted === 1 && began.get(0) === 'role');
    },
  };
  return order;
}

/** Transcriptions: each stretch of audio finishes, so only the closing chunk, without choices, says that all have. */
function audioOrder(): StreamOrder {
  let began = false;
  const order = {
    complete: false,
    take(type: string, content: unknown): void {
      if (type !== 'chunk') return;
      if (order.complete) throw notAuthentic('the stream goes on after its last chunk');
      const isEmpty = (content as readonly Choice[]).length === 0;
      order.complete = isEmpty && began;
      began ||= !isEmpty;
    },
  };
  return order;
}

type BlocksState = 'new' | 'between' | 'block' | 'closing' | 'stopped';

/** After which states an event of a message may come, the state after it, and whether its `index` is that of the block at hand. */
const BLOCK_EVENTS: ReadonlyMap<
  string,
  { readonly after: readonly BlocksState[]; readonly next: BlocksState; readonly ofBlock: boolean }
> = new Map([
  ['message_start', { after: ['new'], next: 'between', ofBlock: false }],
  ['content_block_start', { after: ['between'], next: 'block', ofBlock: true }],
  ['content_block_delta', { after: ['block'], next: 'block', ofBlock: true }],
  ['content_block_stop', { after: ['block'], next: 'between', ofBlock: true }],
  ['message_delta', { after: ['between', 'closing'], next: 'closing', ofBlock: false }],
]);

/**
 * Messages: the start; blocks 0, 1, ... each begun, continued by deltas of its index, and stopped; then the deltas of the message,
 * of which one has a stop_reason; then the end. `ping` and `error` may come at any time.
 */
function blocksOrder(): StreamOrder {
  let state: BlocksState = 'new';
  let block = 0; // the number of the open block, or of the next one
  const order = {
    complete: false,
    take(type: string, content: unknown, index: unknown): void {
      const row = BLOCK_EVENTS.get(type);
      if (row === undefined) return;
      const allowed = row.after.includes(state) && (!row.ofBlock || index === block);
      if (!allowed) throw notAuthentic('an event of the message comes where it cannot');
      state = row.next;
      if (type === 'content_block_stop') block += 1;
      if (type !== 'message_delta' || !isSet((content as Choice)['stop_reason'])) return;
      state = 'stopped';
      order.complete = true;
    },
  };
  return order;
}

const ORDERS: Readonly<Record<StreamGrammar['order'], (choices: number) => StreamOrder>> = {
  choices: choicesOrder,
  audio: audioOrder,
  blocks: blocksOrder,
};

/** `choices`: how many were asked for, at least 1. */
export const streamOrder = (kind: StreamGrammar['order'], choices: number): StreamOrder =>
  ORDERS[kind](choices);
